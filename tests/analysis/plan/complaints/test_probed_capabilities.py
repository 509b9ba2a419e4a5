"""Two short answers before a run, and what they take from a forecast."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.plan.complaints.probed_capabilities import (
    ProbeAnswers,
    confirmed_sight,
    probe_findings,
)
from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, missing_capabilities
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Claims, Rounds
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.golden_words import says
from tests.builders.slo import objective, slo

SPEED = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.PLAIN
EVERYTHING = SPEED | Sight.ROUNDS | Sight.CLAIMED_ROUNDS | Sight.COLD | Sight.MEMORY
PLAIN = Answer(0, 9, tuple(Arrival(at, 1) for at in range(8)), "text", output_tokens=8, claims=Claims(cached_tokens=0))
DRAFTED = replace(PLAIN, rounds=Rounds(2, 8, 6), claims=Claims(drafted=8, accepted=6, cached_tokens=0))


def test_what_is_shown_is_believed() -> None:
    """Two whole answers with everything in them take nothing from the forecast."""
    sight = confirmed_sight(ProbeAnswers(PLAIN, DRAFTED), EVERYTHING, uncached=False)

    assert EVERYTHING == sight
    # Where the prompt cache is off by our own doing, an answer's silence on it is no loss.
    assert Sight.COLD in confirmed_sight(ProbeAnswers(replace(PLAIN, claims=Claims()), None), EVERYTHING, uncached=True)
    assert [] == probe_findings(ProbeAnswers(PLAIN, DRAFTED), EVERYTHING, "")


@pytest.mark.parametrize(
    ("plain", "drafted", "lost"),
    [
        ({"output_tokens": None}, {}, Sight.TOKEN_COUNT),
        ({"arrivals": (Arrival(8, None),)}, {}, Sight.ARRIVALS),
        ({}, {"rounds": None}, Sight.ROUNDS),
        ({}, {"claims": Claims(cached_tokens=0)}, Sight.CLAIMED_ROUNDS),
        ({}, {"claims": Claims(drafted=8, cached_tokens=0)}, Sight.CLAIMED_ROUNDS),
        ({"claims": Claims()}, {}, Sight.COLD),
    ],
)
def test_what_is_not_shown_is_not_seen(plain: dict[str, object], drafted: dict[str, object], lost: Sight) -> None:
    """Whatever two answers lack of a forecast is taken from it, and nothing else."""
    glance = ProbeAnswers(replace(PLAIN, **plain), replace(DRAFTED, **drafted))  # type: ignore[arg-type]

    assert EVERYTHING & ~lost == confirmed_sight(glance, EVERYTHING, uncached=False)


def test_a_short_answer_shows_no_stream() -> None:
    """An answer of one token in one piece neither adds arrivals to a forecast nor takes them."""
    glance = ProbeAnswers(replace(PLAIN, arrivals=(Arrival(8, 1),), output_tokens=1), None)

    assert Sight.ARRIVALS in confirmed_sight(glance, EVERYTHING, uncached=False)
    assert Sight.ARRIVALS not in confirmed_sight(glance, EVERYTHING & ~Sight.ARRIVALS, uncached=False)


def test_times_are_the_kernels_where_all_sound_answers_say_so() -> None:
    """A process's where one has not the kernel's; without a sound answer it is not known."""
    stamped, failed = replace(PLAIN, read_delay_ns=0), replace(PLAIN, fault="timeout: none")

    assert "kernel" == ProbeAnswers(stamped, stamped).arrival_times == ProbeAnswers(failed, stamped).arrival_times
    assert "process" == ProbeAnswers(stamped, DRAFTED).arrival_times
    assert ProbeAnswers(failed, None).arrival_times is None


def test_log_probabilities_count_where_they_come() -> None:
    """Log-probabilities that did not come are taken from the forecast, with a finding each; those that came where
    nothing was forecast are added; without a request nothing changes.
    """
    logprobs = Sight.LOGPROBS | Sight.VERIFIED
    neither, likeliest = ProbeAnswers(PLAIN, DRAFTED, False, False), ProbeAnswers(PLAIN, DRAFTED, True)

    assert EVERYTHING == confirmed_sight(neither, EVERYTHING | logprobs, uncached=False)
    assert EVERYTHING | Sight.LOGPROBS == confirmed_sight(likeliest, EVERYTHING, uncached=False)
    assert EVERYTHING | logprobs == confirmed_sight(ProbeAnswers(PLAIN, DRAFTED), EVERYTHING | logprobs, uncached=False)
    assert ["log_probabilities_not_shown"] * 2 == [
        finding.kind for finding in probe_findings(neither, EVERYTHING | logprobs, "")
    ]
    assert [] == probe_findings(neither, EVERYTHING, "")


def test_a_failure_is_the_runs_to_record() -> None:
    """An answer that failed takes nothing from the forecast, and is a finding of its arm."""
    glance = ProbeAnswers(replace(PLAIN, fault="HTTP 500: no", output_tokens=None), None)

    assert EVERYTHING == confirmed_sight(glance, EVERYTHING, uncached=False)
    assert [("first_answer_failed", "glance, plain")] == [
        (finding.kind, finding.about) for finding in probe_findings(glance, EVERYTHING, "")
    ]


@pytest.mark.parametrize("drafted", [replace(DRAFTED, rounds=Rounds(8, 0, 0)), replace(PLAIN, claims=Claims(0, 0))])
def test_a_silent_draft_is_named_with_its_usual_cause(drafted: Answer) -> None:
    """A draft that proposes nothing is a finding before the run, and the advice is this system's own."""
    findings = probe_findings(ProbeAnswers(PLAIN, drafted), EVERYTHING, "pass --spec-type")

    assert [("silent_speculation", "pass --spec-type")] == [(finding.kind, finding.advice) for finding in findings]


@pytest.mark.parametrize(("forecast", "kinds"), [(EVERYTHING, ["drafting_not_shown"]), (SPEED, [])])
def test_a_draft_nobody_tells_of_is_named(forecast: Sight, kinds: list[str]) -> None:
    """It is a finding where this kind of system tells of its drafting and this answer does not."""
    findings = probe_findings(ProbeAnswers(PLAIN, PLAIN), forecast, "the target must bring MTP heads")

    assert kinds == [finding.kind for finding in findings]


def test_two_names_are_two_models() -> None:
    """Arms that answer under different names may be different targets."""
    plain, drafted = (
        replace(reply, claims=replace(reply.claims, model=name)) for reply, name in ((PLAIN, "a"), (DRAFTED, "b"))
    )

    assert ["other_model"] == [finding.kind for finding in probe_findings(ProbeAnswers(plain, drafted), SPEED, "")]


def test_promises_that_need_more_are_refused_here() -> None:
    """What this server does not show, though its kind can, is refused as this host's lack, with what to look at."""
    promised = slo(objective("acceptance_rate", at_least=0.5, **{"from": "claims"}), objective("ttft", at_most=1.0))
    kind = BackendTraits("server", EVERYTHING & ~Sight.ROUNDS, 8, frozenset())

    complaints = missing_capabilities(promised, kind, SPEED, "pass --spec-type")

    hints = {complaint.about.split(",")[0].removeprefix("objective "): complaint.hint for complaint in complaints}
    assert {"acceptance_rate", "ttft"} == hints.keys()
    assert {"not-here"} == {complaint.weight for complaint in complaints}
    assert "pass --spec-type" == hints["acceptance_rate"]
    says("complaints", "objectives that need more are refused here", hints["ttft"])
    assert [] == missing_capabilities(promised, kind, kind.sight, "")


@pytest.mark.parametrize(
    ("shown", "metric", "refused"),
    [
        (EVERYTHING & ~(Sight.ROUNDS | Sight.CLAIMED_ROUNDS | Sight.ARRIVALS), "error_rate", ["speculation_engaged"]),
        (EVERYTHING & ~(Sight.ROUNDS | Sight.CLAIMED_ROUNDS), "error_rate", []),
        (EVERYTHING & ~Sight.TOKEN_COUNT, "energy_per_token", ["energy_per_token"]),
        (EVERYTHING & ~Sight.TOKEN_COUNT, "power_mean", []),
    ],
)
def test_what_no_answer_can_show_is_refused_before_the_run(shown: Sight, metric: str, refused: list[str]) -> None:
    """Whether a draft is used follows from counts or bursts, and energy per token from the tokens of answers."""
    kind = BackendTraits("openai", EVERYTHING, 8, frozenset())

    complaints = missing_capabilities(slo(objective(metric, at_most=1.0)), kind, shown, "")

    about = [complaint.about.split(",")[0].removeprefix("objective ") for complaint in complaints]
    assert refused == [name for name in about if name in {"speculation_engaged", "energy_per_token", "power_mean"}]


@pytest.mark.parametrize(
    ("pieces", "counted", "refused"),
    [(8, True, False), (8, False, True), (26, False, False), (32, False, False), (1, False, False)],
)
def test_a_gap_per_token_needs_the_tokens_of_each_piece(pieces: int, counted: bool, refused: bool) -> None:
    """Several tokens a piece that no count tells are refused before the run; a few characters held back are not."""
    arrivals = tuple(Arrival(at, 32 // pieces if counted else None) for at in range(pieces))
    glance = ProbeAnswers(PLAIN, replace(DRAFTED, arrivals=arrivals, output_tokens=32))
    kind = BackendTraits("openai", EVERYTHING, 8, frozenset())

    complaints = missing_capabilities(
        slo(objective("itl_p50", at_most=0.2)), kind, EVERYTHING, "", counts_pieces=glance.counts_pieces
    )

    assert refused == bool(complaints)
    assert all("each piece" in complaint.message for complaint in complaints)
