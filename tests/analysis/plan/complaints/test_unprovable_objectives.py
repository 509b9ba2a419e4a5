"""What a plan cannot prove, each with the number that would make it provable."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.slo import CHOSEN, CONDITIONS, Objective, Slo
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


def test_a_provable_plan_has_no_complaint() -> None:
    """Enough canaries, a backend that sees all and a full soak: silence."""
    assert [] == found(slo(objective("throughput_ratio"), objective("itl_p99", at_most=0.1)), 408)


@pytest.mark.parametrize(("metric", "need"), [("ttft", 5), ("itl_p95", 59), ("stall_p95", 59), ("itl_p99", 59)])
def test_too_few_canaries_for_a_quantile(metric: str, need: int) -> None:
    """One canary fewer than the order statistic needs is refused, with how many to add; enough is not."""
    written = slo(objective(metric, at_most=1.0), **ONE_RUNG)

    complaint = only(found(written, need - 1)) if need > 5 else found(written, need - 1)[0]

    assert "never" == complaint.weight
    assert f"needs {need} distinct canaries;" in complaint.message
    assert "add 1 canaries" in complaint.hint
    assert [] == found(written, need)


def test_the_split_error_asks_for_more() -> None:
    """Over three steps p95 needs 80."""
    complaint = only(found(slo(objective("itl_p95", at_most=1.0)), 79))

    says("complaints", "the split error asks for more", complaint.message)


def test_the_hint_names_the_highest_quantile_that_is_provable() -> None:
    """Two hundred canaries prove no p99 of prompts like them; the hint names p95 and what it needs, or none."""
    complained = found(slo(objective("itl_p99", at_most=1.0, scope="population")), 200)
    nothing = found(slo(objective("stall_p95", at_most=1.0)), 60)

    says("complaints", "the hint names the highest quantile that is provable", only(complained).hint)
    assert "add 20 canaries" == only(nothing).hint


def test_a_ratio_needs_five_canaries() -> None:
    """Four pairs are nothing to resample."""
    decoding, whole = found(slo(), 4)

    assert decoding.message == whole.message
    says("complaints", "a ratio needs five canaries", whole.message)


def test_a_budget_too_small_to_choose_is_refused() -> None:
    """Four canaries a setting leave the sweep without a choice, however many the file has."""
    complaint = found(slo(sweep={"num_draft_tokens": [4], "budget": 4}))[0]

    assert ("never", True) == (complaint.weight, "budget = 4" in complaint.message)


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


@pytest.mark.parametrize("metric", ["acceptance_rate", "acceptance_length", "acceptance_window_min"])
@pytest.mark.parametrize("source", ["ours", "claims"])
def test_acceptance_that_a_server_does_not_tell_is_unprovable(metric: str, source: str) -> None:
    """An objective on acceptance is refused where the backend counts no rounds and the server claims none."""
    kind = BackendTraits("openai", EVERYTHING & ~(Sight.ROUNDS | Sight.CLAIMED_ROUNDS), 8, SEES_ALL.knobs)
    written = slo(objective(metric, at_least=0.5, **{"from": source}))

    complained = [complaint for complaint in found(written, kind=kind) if "does not show" in complaint.message]

    assert ["never"] == [complaint.weight for complaint in complained]


def test_a_claim_is_enough_only_where_it_is_asked_for() -> None:
    """A server that only claims its acceptance is refused, unless the objective says `from = "claims"`."""
    claims = BackendTraits("server", EVERYTHING & ~Sight.ROUNDS, 8, SEES_ALL.knobs)

    refused = found(slo(objective("acceptance_rate", at_least=0.5)), kind=claims)
    allowed = found(slo(objective("acceptance_rate", at_least=0.5, **{"from": "claims"})), kind=claims)

    assert (["never"], []) == ([complaint.weight for complaint in refused], allowed)


def test_windows_that_do_not_fit_the_soak() -> None:
    """Three five-minute windows never fit into ten minutes: the rule could not fire."""
    written = slo(objective("acceptance_window_min", at_least=0.4), soak={"duration": "600 s", "window": "300 s"})

    complaint = only(found(written))

    assert ("never", True) == (complaint.weight, "three windows of 300 s" in complaint.message)
    assert ('"200 s"' in complaint.hint, '"900 s"' in complaint.hint) == (True, True)


def test_bounds_that_exclude_each_other() -> None:
    """At least 2 and at most 1.5 cannot both hold; within ± x can."""
    wrong = slo(objective("throughput_ratio", at_least=2.0), objective("throughput_ratio", at_most=1.5))
    right = slo(objective("ttft_delta", at_least=-0.1), objective("ttft_delta", at_most=0.1))

    says("complaints", "bounds that exclude each other", only(found(wrong)).message)
    assert [] == found(right)


def test_bounds_that_exclude_each_other_are_named_in_their_unit() -> None:
    """A contradiction in seconds is told in what a person would write, with the bound that would do."""
    complaint = only(found(slo(objective("ttft", at_least="900 ms"), objective("ttft", at_most="500 ms"))))

    says("complaints", "bounds that exclude each other are named in their unit: message", complaint.message)
    says("complaints", "bounds that exclude each other are named in their unit: hint", complaint.hint)


def test_contradictions_of_different_workloads_are_none() -> None:
    """Two workloads may be promised different things."""
    written = slo(
        objective("throughput_ratio", at_least=2.0, workloads=["easy"]),
        objective("throughput_ratio", at_most=1.5, workloads=["hard"]),
        workload=[{"name": "easy", "canaries": "e"}, {"name": "hard", "canaries": "h"}],
    )

    assert [] == found(written)


def test_an_unknown_knob_and_too_many_streams() -> None:
    """What a backend cannot turn or serve is refused, with what it has."""
    narrow = BackendTraits("narrow", EVERYTHING, 1, frozenset({"draft", "num_draft_tokens"}))
    written = slo(sweep={"num_draft_tokens": [4], "window": [256]}, soak={"concurrency": 4})

    refusals = {complaint.about: complaint for complaint in found(written, kind=narrow) if complaint.weight == "never"}

    assert {"sweep.window", "soak.concurrency"} == refusals.keys()
    assert "draft, num_draft_tokens" in refusals["sweep.window"].hint
    says("complaints", "an unknown knob and too many streams", refusals["soak.concurrency"].message)


def test_a_knob_that_a_server_of_ones_own_may_have_names_the_table_for_it() -> None:
    """Where the SLO says how its server takes a knob, the complaint names that table; a server with fixed knobs has
    none.
    """
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


def test_required_speculation_without_a_draft() -> None:
    """A workload that requires speculation can never be promoted without one; an optional one can do without."""
    subject = {"backend": "scripted", "target": "t", "script": "s.json"}
    optional = [{"name": "easy", "canaries": "e", "speculation": "optional"}]

    assert "subject.drafts" == only(found(slo(subject=subject, sweep={}))).about
    assert [] == found(slo(subject=subject, sweep={}, workload=optional))


def test_agreement_above_temperature_zero() -> None:
    """Token agreement at temperature 0.7 could never be shown."""
    written = slo(objective("token_agreement"), sampling={"temperature": 0.7})

    assert "at temperature 0" in only(found(written)).message


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


def test_the_number_of_canaries_a_population_needs_is_enough() -> None:
    """The hint's own number is accepted, and one canary fewer is not."""
    promise = objective("task_pass_delta", at_least=-0.05, scope="population")
    written = slo(promise, **ONE_RUNG)
    marked = canaries(200, expect={"equals": "x"})

    need = int(only(found(written, marked[:20])).hint.split("about ")[1].split(",")[0])

    assert [] == found(written, marked[:need])
    assert "never" == only(found(written, marked[: need - 1])).weight


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
    """5 % of all prompts is what 59 canaries can show at best at 95 %: 58 are refused with that number, as many as
    59 are
    not, and of the frozen set a few are enough.
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


@pytest.mark.parametrize("promise", SHARES, ids=lambda share: str(share["metric"]))
@pytest.mark.parametrize("count", [58, 59])
def test_what_is_refused_could_not_have_passed(promise: dict[str, Any], count: int) -> None:
    """The best that so many canaries can show is judged as the refusal says: unproven one canary before it passes."""
    judged_objective = Objective.model_validate(promise)
    best = 0.0 if judged_objective.bound == "at_most" else 1.0
    interval = intervals.clustered_share({str(at): [best == 1.0] for at in range(count)}, 0.95)

    assert (Outcome.PASS if count == 59 else Outcome.UNPROVEN) == check(judged_objective, interval).outcome


@pytest.mark.parametrize(
    "promise", [objective("error_rate", at_most=0), objective("token_agreement", at_least=1)], ids=str
)
def test_no_number_of_canaries_shows_all_prompts(promise: dict[str, Any]) -> None:
    """That no prompt in the world fails is nothing a sample could show."""
    complaint = only(found(slo({**promise, "scope": "population"}, **ONE_RUNG), 10_000))

    assert ("never", True) == (complaint.weight, "no number of canaries" in complaint.message)
    assert 'scope = "frozen"' in complaint.hint


def test_the_split_error_asks_for_more_canaries_of_a_share() -> None:
    """Over three steps the same share needs 80 canaries."""
    promise = objective("error_rate", at_most=0.05, scope="population")

    assert only(found(slo(promise, **ONE_LOOK), 79)).hint.startswith("add canaries, to 80")
    assert [] == found(slo(promise, **ONE_LOOK), 80)


def test_a_soak_that_may_continue_asks_for_more_canaries_of_a_share() -> None:
    """Its first look, after a sixth of the longest duration, has a third of the error: 81 canaries for 59."""
    promise = objective("error_rate", at_most=0.05, scope="population")
    written = slo(promise, **ONE_RUNG, soak={"duration": 600, "max_duration": 3600})

    complaint = only(found(written, 80))

    assert complaint.hint.startswith("add canaries, to 81")
    says("complaints", "a soak that may continue asks for more canaries of a share", complaint.message)
    assert [] == found(written, 81)


@pytest.mark.parametrize(("metric", "most"), [("throughput_ratio", 9), ("ttft", 9), ("itl_p95", 117)])
def test_an_interval_for_a_population_needs_twice_the_canaries(metric: str, most: int) -> None:
    """The sweep chooses on half of the canaries and the soak proves on the other: five of ten, 59 of 118."""
    promise = objective(metric, **({"at_least": 1.16} if metric == "throughput_ratio" else {"at_most": 1.0}))
    written = slo({**promise, "scope": "population"}, **ONE_RUNG, **ONE_LOOK)

    complaint = next(complaint for complaint in found(written, most) if metric in complaint.about)

    assert f"the workload has {most // 2} " in complaint.message
    assert complaint.hint.startswith("add 2 canaries")
    assert "never" == complaint.weight
    assert [] == [complaint for complaint in found(written, most + 1) if complaint.weight == "never"]


def test_a_share_that_promises_nothing_is_provable() -> None:
    """At most all prompts, or at least none, is kept by a single canary; only the implicit ratios take more."""
    written = slo(
        objective("error_rate", at_most=1, scope="population"),
        objective("speculation_engaged", at_least=0, scope="population"),
        **ONE_RUNG,
    )

    ratios = [f"objective {metric}, workload easy" for metric in ("throughput_ratio", "answer_throughput_ratio")]
    assert ratios == [complaint.about for complaint in found(written, 1)]


@pytest.mark.parametrize("counter", [Sight.ROUNDS, Sight.CLAIMED_ROUNDS, Sight.NOTHING])
def test_engagement_beyond_the_run_wants_a_counter(counter: Sight) -> None:
    """Where neither we nor the server counts drafted tokens, only the run as a whole shows that a draft was used."""
    kind = replace(SEES_ALL, sight=(EVERYTHING & ~(Sight.ROUNDS | Sight.CLAIMED_ROUNDS)) | counter)
    promise = objective("speculation_engaged", at_least=0.9)

    refused = found(slo({**promise, "scope": "population"}), 400, kind)

    assert [] == found(slo(promise), 400, kind)
    assert (["never"] if counter is Sight.NOTHING else []) == [complaint.weight for complaint in refused]


def test_a_frozen_pass_delta_is_a_census() -> None:
    """On the frozen set at temperature 0 a few canaries are enough: the set itself is what is promised."""
    promise = objective("task_pass_delta", at_least=0)

    assert [] == found(slo(promise), canaries(6, expect={"equals": "x"}))


def test_what_only_this_host_lacks() -> None:
    """An objective this host cannot show is `not-here`, with the reason: exit code 3, not 2."""
    written = slo(objective("throughput_ratio"), objective("throttle_time", at_most=0))

    complaint = only(found(written, lacks={"throttle_time": "no thermal level", "power_mean": "no sensor"}))

    assert ("not-here", True) == (complaint.weight, "no thermal level" in complaint.message)


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

    complained = found(written, 50, lacks={"throttle_time": "no thermal level"})

    assert ["never", "not-here", "weak"] == [complaint.weight for complaint in complained]
    assert all(complaint.hint for complaint in complained)


@pytest.mark.parametrize(("count", "wanted", "need"), [(8, 0.4, 24), (8, 0.9, None), (24, 0.4, None), (24, 0.2, 50)])
def test_canaries_that_give_a_harm_test_no_power_are_counted(count: int, wanted: float, need: int | None) -> None:
    """A plan says how many canaries would find as much harm as the SLO wants found; where rounds are replayed, none
    need.
    """
    written = slo(visible_harm=wanted)

    told, replayed = (
        [complaint for complaint in found(written, count, kind) if "numerics_harm" in complaint.about]
        for kind in (replace(SEES_ALL, sight=SEES_ALL.sight & ~Sight.REPLAY), SEES_ALL)
    )

    assert [] == replayed
    assert [f"to {need} in all workloads" in complaint.hint for complaint in told] == ([True] if need else [])


def test_canaries_that_give_the_test_of_whole_answers_no_power_are_counted() -> None:
    """Above temperature 0 and without replays eight canaries would not show other words in 40 % of the answers: the
    plan
    says about how many do, and is content with as many.
    """
    text_alone = replace(SEES_ALL, sight=SEES_ALL.sight & ~Sight.REPLAY)
    written = slo(sampling={"temperature": 0.7})

    def told(count: int) -> list[str]:
        return [complaint.hint for complaint in found(written, count, text_alone) if "sampled_" in complaint.about]

    (hint,) = told(8)
    need = int(hint.partition("to about ")[2].partition(",")[0])
    assert 12 <= need <= 32
    assert [] == told(need)
