"""What a plan cannot prove, each with the number that would make it provable."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.slo import CHOSEN, CONDITIONS, Slo
from tests.builders.golden_words import says
from tests.builders.slo import canaries, objective, slo

EVERYTHING = Sight.ARRIVALS
for _flag in Sight:
    EVERYTHING |= _flag
SEES_ALL = BackendTraits("all-seeing", EVERYTHING, 8, frozenset({*CHOSEN, *CONDITIONS}))
ONE_DRAFT = {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "s.json"}
ONE_RUNG = {"subject": ONE_DRAFT, "sweep": {"num_draft_tokens": [4]}}
ONE_LOOK = {"soak": {"duration": 600, "until": "duration"}}


def found(
    written: Slo,
    frozen: Sequence[Canary] | int = 400,
    kind: BackendTraits = SEES_ALL,
    lacks: Mapping[str, str] | None = None,
) -> list[Complaint]:
    prompts = canaries(frozen) if isinstance(frozen, int) else frozen
    return complaints(written, {workload.name: prompts for workload in written.workload}, kind, lacks or {})


def only(complaints_found: list[Complaint]) -> Complaint:
    assert 1 == len(complaints_found), complaints_found
    return complaints_found[0]


LONG_TAIL, SHARE = objective("itl_p95", at_most=1.0), objective("error_rate", at_most=0.05, scope="population")
BY_WORKLOAD = [objective("throughput_ratio", **bound) for bound in ({"at_least": 2.0}, {"at_most": 1.5})]
NO_DRAFT: dict[str, Any] = {"subject": {"backend": "scripted", "target": "t", "script": "s.json"}, "sweep": {}}
REFUSED: dict[str, tuple[Slo, int, str, str]] = {
    **{
        f"one canary too few for {metric}": (
            slo(objective(metric, at_most=1.0), **ONE_RUNG), 58, "needs 59 distinct canaries;", "add 1 canaries",
        )
        for metric in ("itl_p95", "stall_p95", "itl_p99")
    },
    "the error is split over three steps": (slo(LONG_TAIL), 79, "needs 80 distinct canaries", "add 1 canaries"),
    "and so it is for a share": (slo(SHARE, **ONE_LOOK), 79, "5.000 % is allowed", "add canaries, to 80"),
    # Its first look, after a sixth of the longest duration, has a third of the error.
    "a soak that may continue": (
        slo(SHARE, **ONE_RUNG, soak={"duration": 600, "max_duration": 3600}), 80, "", "add canaries, to 81",
    ),
    # The sweep chooses on half of the canaries and the soak proves on the other.
    "an interval for prompts like them": (
        slo({**LONG_TAIL, "scope": "population"}, **ONE_RUNG, **ONE_LOOK), 117, "the workload has 58 ", "add 2 ",
    ),
    "a p99 of prompts like them": (
        slo(objective("itl_p99", at_most=1.0, scope="population")), 200, "", "itl_p95",
    ),
    "windows that do not fit the soak": (
        slo(objective("acceptance_window_min", at_least=0.4), soak={"duration": "600 s", "window": "300 s"}),
        400, "three windows of 300 s", '"200 s"',
    ),
    "bounds that exclude each other": (
        slo(objective("ttft", at_least="900 ms"), objective("ttft", at_most="500 ms")), 400, "900 ms", "500 ms",
    ),
    "agreement above temperature 0": (
        slo(objective("token_agreement"), sampling={"temperature": 0.7}), 400, "at temperature 0", "",
    ),
    "all prompts without a failure": (
        slo({**SHARE, "at_most": 0}, **ONE_RUNG), 10_000, "no number of canaries", 'scope = "frozen"',
    ),
    "all prompts with the same words": (
        slo(objective("token_agreement", at_least=1, scope="population"), **ONE_RUNG), 10_000, "no number of ", "",
    ),
    "required speculation without a draft": (slo(**NO_DRAFT), 400, "", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_plan_cannot_prove_is_refused(case: str) -> None:
    """One complaint, with the number that would make it provable."""
    written, count, message, hint = REFUSED[case]

    complaint = only(found(written, count))

    assert "never" == complaint.weight
    assert message in complaint.message
    assert hint in complaint.hint


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (slo(objective("throughput_ratio"), objective("itl_p99", at_most=0.1)), 408),
        *((slo(objective(metric, at_most=1.0), **ONE_RUNG), 59) for metric in ("itl_p95", "stall_p95", "itl_p99")),
        (slo(SHARE, **ONE_LOOK), 80),
        (slo(objective("ttft_delta", at_least=-0.1), objective("ttft_delta", at_most=0.1)), 400),
        (
            slo(
                {**BY_WORKLOAD[0], "workloads": ["easy"]},
                {**BY_WORKLOAD[1], "workloads": ["hard"]},
                workload=[{"name": name, "canaries": name} for name in ("easy", "hard")],
            ),
            400,
        ),
        (slo(**NO_DRAFT, workload=[{"name": "easy", "canaries": "e", "speculation": "optional"}]), 400),
    ],
)
def test_a_provable_plan_has_no_complaint(written: Slo, count: int) -> None:
    """Enough canaries, bounds that can both hold, or that are of two workloads, and drafts that nothing requires."""
    assert [] == found(written, count)


def test_few_canaries_leave_no_ratio_and_no_choice() -> None:
    """Four pairs are nothing to resample, and a budget of four leaves the sweep without a choice."""
    decoding, whole = found(slo(), 4)

    assert decoding.message == whole.message
    says("complaints", "a ratio needs five canaries", whole.message)
    assert "budget = 4" in found(slo(sweep={"num_draft_tokens": [4], "budget": 4}))[0].message


@pytest.mark.parametrize(
    "metric",
    [metric for metric in ALL if metric.needs and not metric.host and metric.measured_by != "warm_cache"],
    ids=lambda m: m.name,
)
def test_what_a_backend_does_not_show_is_refused(metric: Any) -> None:
    """Every metric that needs sight is refused on a blind backend, with what is missing."""
    blind = BackendTraits("blind", Sight.NOTHING, 1, SEES_ALL.knobs)
    written = slo(objective(metric.name, at_least=0.5))

    complained = [
        complaint for complaint in found(written, kind=blind) if complaint.about.startswith(f"objective {metric.name},")
    ]

    assert "never" == only(complained).weight
    assert all(flag.words in only(complained).message for flag in metric.needs)


def test_what_the_first_answers_may_show_is_not_refused() -> None:
    """An objective on what a forecast lacks and the first answers may show is noted, not refused."""
    kind = replace(SEES_ALL, sight=EVERYTHING & ~Sight.COLD, may_show=Sight.COLD)

    complained = found(slo(objective("ttft", at_most=1.0)), kind=kind)

    assert ["weak"] == [complaint.weight for complaint in complained if complaint.about.startswith("objective ttft,")]


def test_a_claim_is_enough_only_where_it_is_asked_for() -> None:
    """A server that only claims its acceptance is refused, unless the objective says `from = "claims"`; one that does
    not even claim it is refused all the same.
    """
    claims = replace(SEES_ALL, sight=EVERYTHING & ~Sight.ROUNDS)
    silent = replace(claims, sight=claims.sight & ~Sight.CLAIMED_ROUNDS)
    ours, theirs = (
        slo(objective("acceptance_rate", at_least=0.5, **{"from": source})) for source in ("ours", "claims")
    )

    weights = [
        [complaint.weight for complaint in found(*plan)] for plan in ((ours, 400, claims), (theirs, 400, claims))
    ]

    assert [["never"], []] == weights
    assert "never" in {
        complaint.weight for complaint in found(theirs, 400, silent) if "does not show" in complaint.message
    }


def test_an_unknown_knob_and_too_many_streams() -> None:
    """What a backend cannot turn or serve is refused, with what it has."""
    narrow = BackendTraits("narrow", EVERYTHING, 1, frozenset({"draft", "num_draft_tokens"}))
    written = slo(sweep={"num_draft_tokens": [4], "window": [256]}, soak={"concurrency": 4})

    refusals = {complaint.about: complaint for complaint in found(written, kind=narrow) if complaint.weight == "never"}

    assert {"sweep.window", "soak.concurrency"} == refusals.keys()
    assert "draft, num_draft_tokens" in refusals["sweep.window"].hint
    says("complaints", "an unknown knob and too many streams", refusals["soak.concurrency"].message)


def test_a_knob_that_a_server_of_ones_own_may_have_names_the_table_for_it() -> None:
    """The complaint names the table that says how a server takes a knob, where it may."""
    fixed = BackendTraits("fixed", EVERYTHING, 1, frozenset())

    own, other = (
        only(found(slo(sweep={"num_draft_tokens": [4]}), kind=kind)).hint
        for kind in (replace(fixed, takes_knobs=True), fixed)
    )

    assert "[subject.knobs.num_draft_tokens]" in own
    assert "[subject.knobs" not in other


@pytest.mark.parametrize(("longest", "notes"), [(40, ["sweep.num_draft_tokens"]), (16, [])])
def test_a_draft_length_that_hardly_pays_is_noted(longest: int, notes: list[str]) -> None:
    """It is a note, not a refusal, and says which lengths pay."""
    complaints_found = found(slo(sweep={"num_draft_tokens": [4, longest]}))

    assert notes == [complaint.about for complaint in complaints_found]
    assert all(complaint.weight == "weak" and "2 to 8" in complaint.hint for complaint in complaints_found)


@pytest.mark.parametrize(
    ("metric", "temperature", "default", "message"),
    [
        ("token_agreement", 0, 0.7, "at temperature 0"),
        ("token_agreement", 0.7, 0, None),
        ("sampled_answers_p_value", 0, 0.7, None),
        ("sampled_answers_p_value", 0.7, 0, "nothing is drawn"),
    ],
)
def test_the_temperature_of_a_sweep_is_that_of_the_run(
    metric: str, temperature: float, default: float, message: str | None
) -> None:
    """Where the sweep's default has a temperature of its own, that one decides which words can be compared."""
    sweep = {"num_draft_tokens": [4], "default": {"num_draft_tokens": 4, "temperature": default}}
    written = slo(objective(metric, at_least=0.001), sweep=sweep, sampling={"temperature": temperature})

    messages = [complaint.message for complaint in found(written) if complaint.weight == "never"]

    assert [message is not None] * len(messages) == [str(message) in text for text in messages]
    assert bool(message) == bool(messages)


def test_a_pass_delta_without_an_expectation() -> None:
    """Named for a workload whose canaries expect nothing it is refused; meant for all, it only has to be narrowed."""
    narrowed = slo(objective("json_pass_delta", at_least=0, workloads=["easy"]))

    says("complaints", "a pass delta without an expectation", only(found(narrowed)).message)
    assert "workloads = [...]" in only(found(slo(objective("task_pass_delta", at_least=0)))).hint


@pytest.mark.parametrize(("count", "least"), [(40, -0.005), (597, -0.005), (100, 0.0)])
def test_a_population_pass_delta_is_underpowered(count: int, least: float) -> None:
    """±0.5 % of a population is refused on few canaries, with the bound that even no flip would leave."""
    promise = objective("task_pass_delta", at_least=least, scope="population")
    frozen = canaries(count, expect={"equals": "x"})

    complaint = only(found(slo(promise, **ONE_RUNG, **ONE_LOOK), frozen))

    assert f"even if {count} canaries all pass" in complaint.message
    assert 'scope = "frozen"' in complaint.hint


SHARES = [
    objective("error_rate", at_most=0.05),
    objective("truncation_rate", at_most=0.05),
    objective("speculation_engaged", at_least=0.95),
    objective("token_agreement", at_least=0.95),
    objective("warm_cache_agreement", at_least=0.95),
]
WARM_TOO = {**ONE_DRAFT, "prompt_cache": "as-deployed"}
CACHES = replace(SEES_ALL, caches=True)


@pytest.mark.parametrize("promise", SHARES, ids=lambda share: str(share["metric"]))
def test_a_population_share_needs_its_canaries(promise: dict[str, Any]) -> None:
    """5 % of all prompts is what 59 canaries can show at best at 95 %: 58 are refused with that number, as many as 59
    are not, and of the frozen set a few are enough.
    """
    plan = {"subject": WARM_TOO, "sweep": {"num_draft_tokens": [4]}, **ONE_LOOK}
    beyond = slo({**promise, "scope": "population"}, **plan)

    complaint = only(found(beyond, 58, CACHES))

    assert ("never", True) == (complaint.weight, complaint.about.startswith(f"objective {promise['metric']}"))
    says("complaints", "a population share needs its canaries", complaint.message)
    assert "5.000 % is allowed" in complaint.message
    assert complaint.hint.startswith("add canaries, to 59")
    assert [] == found(beyond, 59, CACHES)
    assert [] == found(slo(promise, **plan), 8, CACHES)


@pytest.mark.parametrize("counter", [Sight.ROUNDS, Sight.CLAIMED_ROUNDS, Sight.NOTHING])
def test_engagement_beyond_the_run_wants_a_counter(counter: Sight) -> None:
    """Where neither we nor the server counts drafted tokens, only the run as a whole shows that a draft was used."""
    kind = replace(SEES_ALL, sight=(EVERYTHING & ~(Sight.ROUNDS | Sight.CLAIMED_ROUNDS)) | counter)
    promise = objective("speculation_engaged", at_least=0.9)

    refused = found(slo({**promise, "scope": "population"}), 400, kind)

    assert [] == found(slo(promise), 400, kind)
    assert (["never"] if counter is Sight.NOTHING else []) == [complaint.weight for complaint in refused]


def test_weak_points_are_notes() -> None:
    """A short soak is a demo, an empty ladder cannot grade back, per-answer speed hides a queue: said, not refused."""
    written = slo(objective("throughput_ratio"), soak={"duration": "60 s", "concurrency": 4}, fallback={"ladder": []})

    assert {("weak", "soak.duration"), ("weak", "fallback.ladder")} <= {
        (complaint.weight, complaint.about) for complaint in found(written)
    }
    assert {"weak"} == {complaint.weight for complaint in found(written)}
    assert any("queueing" in complaint.message for complaint in found(written))


def test_a_certificate_that_expires_at_once_is_noted() -> None:
    """30 without a unit are seconds, as in every duration; a validity that short draws a note that says so."""
    complained = {
        valid_for: [
            complaint
            for complaint in found(slo(promote={"valid_for": valid_for}))
            if complaint.about == "promote.valid_for"
        ]
        for valid_for in (30, "30 d")
    }

    assert [] == complained["30 d"]
    assert [("weak", True)] == [(complaint.weight, "30 s" in complaint.message) for complaint in complained[30]]


def test_the_hopeless_come_first_and_none_twice() -> None:
    """Complaints are sorted by weight, and the same one is made once."""
    written = slo(
        objective("itl_p99", at_most=1.0),
        objective("itl_p99", at_most=2.0),
        objective("throttle_time", at_most=0),
        soak={"duration": "60 s"},
    )

    complained = found(written, 50, lacks={"throttle_time": "no thermal level", "power_mean": "no sensor"})

    assert ["never", "not-here", "weak"] == [complaint.weight for complaint in complained]
    assert "no thermal level" in complained[1].message
    assert all(complaint.hint for complaint in complained)


@pytest.mark.parametrize(("count", "wanted", "need"), [(8, 0.4, 24), (8, 0.9, None), (24, 0.4, None), (24, 0.2, 50)])
def test_canaries_that_give_a_harm_test_no_power_are_counted(count: int, wanted: float, need: int | None) -> None:
    """A plan says how many canaries would find as much harm as is wanted; replayed rounds need none."""
    written = slo(visible_harm=wanted)

    told, replayed = (
        [complaint for complaint in found(written, count, kind) if "numerics_harm" in complaint.about]
        for kind in (replace(SEES_ALL, sight=SEES_ALL.sight & ~Sight.REPLAY), SEES_ALL)
    )

    assert [] == replayed
    assert [f"to {need} in all workloads" in complaint.hint for complaint in told] == ([True] if need else [])


def test_canaries_that_give_the_test_of_whole_answers_no_power_are_counted() -> None:
    """Eight canaries would not show other words in 40 %: the plan says how many would."""
    text_alone = replace(SEES_ALL, sight=SEES_ALL.sight & ~Sight.REPLAY)
    written = slo(sampling={"temperature": 0.7})

    def told(count: int) -> list[str]:
        return [complaint.hint for complaint in found(written, count, text_alone) if "sampled_" in complaint.about]

    (hint,) = told(8)
    need = int(hint.partition("to about ")[2].partition(",")[0])
    assert 12 <= need <= 32
    assert [] == told(need)
