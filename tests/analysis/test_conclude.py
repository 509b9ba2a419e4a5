"""From the records of a run to its verdict, and to the soaks it still needs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.conclude import Conclusion, conclude
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.document import document_of
from gatekeeper.core.judgement import Doubt, Outcome
from gatekeeper.core.records import Generation, Setting, StoredRecords, setting
from tests.builders.case import FAILING, LOSING, WINNING, Made, bare, concluded, sample, soaked, with_soak
from tests.builders.golden_words import says
from tests.builders.slo import FAST, PLAIN, counted, objective

SHORTER = setting(draft="heavy", num_draft_tokens=2)
LIGHTER = setting(draft="light", num_draft_tokens=2)


def outcomes(conclusion: Conclusion) -> dict[str, str]:
    return {workload.name: workload.outcome for workload in conclusion.verdict.workloads}


def legs(conclusion: Conclusion) -> list[tuple[str, dict[str, Setting]]]:
    return [(leg.name, dict(leg.settings)) for leg in conclusion.needs]


def test_after_the_sweep_the_choice_is_soaked() -> None:
    """With the sweep recorded and no soak yet, one leg is asked for: every workload at the setting the sweep chose."""
    conclusion = conclude(bare({"easy": WINNING, "hard": LOSING}))

    assert [("soak-1", {"easy": FAST, "hard": PLAIN})] == legs(conclusion)
    assert (3, {"easy": "unproven", "hard": "unproven"}) == (conclusion.verdict.exit_code, outcomes(conclusion))


def test_a_soak_that_keeps_every_promise_promotes() -> None:
    """Nothing is missing, every check passes: promoted, exit code 0."""
    conclusion = concluded(bare({"easy": WINNING}))

    assert ((), 0, {"easy": "promoted"}) == (conclusion.needs, conclusion.verdict.exit_code, outcomes(conclusion))
    assert {Outcome.PASS} == {check.outcome for check in conclusion.verdict.workloads[0].checks}


OPEN = Made(1.1, noise=0.05)
"""On both sides of a bound of 1.1x."""


def undecided(*objectives: dict[str, Any], ladder: tuple[str, ...] = ("autoregressive",), **more: Any) -> Case:
    """Return a case whose optional workload is soaked, without deciding the ratio."""
    requirements = (objective("throughput_ratio", at_least=1.1), *objectives)
    case = bare(
        {"easy": WINNING}, optional=("easy",), objectives=requirements, fallback={"ladder": list(ladder)}, **more
    )
    (leg,) = conclude(case).needs
    return with_soak(case, leg, OPEN)


def test_an_optional_workload_without_a_proven_gain_decodes_plainly() -> None:
    """The soak leaves the ratio open: plain decoding, proven by the same soak's baseline requests, and exit code 0."""
    conclusion = conclude(undecided(objective("error_rate", at_most=0, when="always")))

    (workload,), (step,) = conclusion.verdict.workloads, conclusion.verdict.transitions
    assert (0, (), "graded_back", {"draft": None}) == (
        conclusion.verdict.exit_code,
        conclusion.needs,
        workload.outcome,
        workload.setting,
    )
    assert [("error_rate", Outcome.PASS)] == [(check.metric, check.outcome) for check in workload.checks]
    assert step.because == workload.because
    says("verdicts", "an optional workload without a proven gain decodes plainly", step.because)
    (given_up,) = workload.steps
    assert ("unproven", dict(FAST)) == (given_up.outcome, given_up.setting)
    assert ["throughput_ratio"] == [check.metric for check in given_up.checks if check.outcome is Outcome.UNPROVEN]
    ratio = given_up.measured.figures["throughput_ratio"]
    assert ratio.lo < 1.1 < ratio.hi


def test_plain_decoding_that_the_baseline_does_not_prove_is_soaked() -> None:
    """Where the baseline requests do not prove plain decoding, a soak of it follows, if the ladder has that step."""
    fast = objective("decode_throughput", at_least=21, when="always")
    case, short = undecided(fast), undecided(fast, ladder=("shrink-draft",))

    assert [("soak-2", {"easy": PLAIN})] == legs(conclude(case))
    assert ([], "unproven") == (legs(conclude(short)), conclude(short).verdict.outcome)


def test_a_ratio_that_was_not_measured_is_not_a_missing_gain() -> None:
    """Pairs that are lost say nothing about a gain: the optional workload is unproven, as evidence is missing."""
    case = undecided()
    ((name, recorded),) = case.soaks.items()
    short = tuple(
        replace(record, answer=replace(record.answer, output_tokens=3)) if record.arm == "plain" else record
        for record in recorded.records
    )

    assert "unproven" == conclude(replace(case, soaks={name: StoredRecords(short)})).verdict.outcome


def test_a_fail_steps_down_and_is_certified_again() -> None:
    """A failed objective needs a new soak at the next step, logged with time and reason."""
    case = bare({"easy": WINNING})
    soaked_settings = []
    while needs := conclude(case).needs:
        soaked_settings += [dict(leg.settings)["easy"] for leg in needs]
        case = with_soak(case, needs[0], FAILING)

    verdict = conclude(case).verdict
    assert [FAST, SHORTER, LIGHTER, PLAIN] == soaked_settings
    assert ["shorter draft", "lighter draft", "drafting off"] == [
        transition.because.split(":")[0] for transition in verdict.transitions
    ]
    assert all(transition.at for transition in verdict.transitions)
    assert all("throughput_ratio" in transition.because for transition in verdict.transitions)
    assert (1, {"draft": None}) == (verdict.exit_code, verdict.workloads[0].setting)
    document: Any = document_of(verdict)
    steps = document["workloads"][0]["steps"]
    assert [(f"soak-{n}", "failed") for n in (1, 2, 3)] == [(step["soak"], step["outcome"]) for step in steps]
    assert [dict(knobs) for knobs in soaked_settings[:3]] == [step["setting"] for step in steps]
    assert all("throughput_ratio: 0." in step["because"] for step in steps)
    assert {"fail"} == {
        check["outcome"] for step in steps for check in step["checks"] if check["metric"] in step["because"]
    }


def test_a_settled_workload_is_not_soaked_again() -> None:
    """While one workload climbs down, the other keeps the verdict of its own soak."""
    case = bare({"easy": WINNING, "hard": WINNING})
    (leg,) = conclude(case).needs
    mixed = soaked(case, leg, {"easy": WINNING, "hard": FAILING})

    conclusion = conclude(replace(case, soaks={leg.name: StoredRecords(mixed)}))

    assert [("soak-2", {"hard": SHORTER})] == legs(conclusion)


NEAR = Made(1.3, noise=0.1)
"""A ratio on both sides of the bound that `at_its_bound` sets."""


def at_its_bound(**changes: Any) -> Case:
    """Return a case whose ratio lies at its bound, and whose soak is not recorded."""
    return bare({"easy": WINNING}, objectives=(objective("throughput_ratio", at_least=1.3),), **changes)


def test_unproven_is_held_not_stepped_down() -> None:
    """An objective on both sides of its bound changes nothing: no step is taken, the code is 3."""
    case = at_its_bound(soak={"until": "duration"})
    (leg,) = conclude(case).needs

    conclusion = conclude(with_soak(case, leg, NEAR))

    assert ((), (), 3) == (conclusion.needs, conclusion.verdict.transitions, conclusion.verdict.exit_code)
    assert {"easy": "unproven"} == outcomes(conclusion)


def test_a_soak_continues_while_a_required_ratio_is_open() -> None:
    """Each part takes as long as all before it; after max_duration the ratio is unproven."""
    case, parts = at_its_bound(soak={"max_duration": "40 min"}), []
    while needs := conclude(case).needs:
        (leg,) = needs
        parts.append((leg.part, round(leg.seconds or 0, -2)))
        case = with_soak(case, leg, NEAR)

    assert [(1, 0), (2, 600), (3, 1200)] == parts
    assert (3, ()) == (conclude(case).verdict.exit_code, conclude(case).verdict.transitions)


def test_a_further_part_can_decide() -> None:
    """What the first part left open is proven by the answers of both; a workload that was decided does not join in."""
    case = bare({"easy": WINNING, "hard": WINNING}, objectives=(objective("throughput_ratio", at_least=1.3),))
    (leg,) = conclude(case).needs
    above = Made(1.39, noise=0.1)
    case = with_soak(case, leg, {"easy": above, "hard": Made(1.6)})
    (part,) = conclude(case).needs

    conclusion = conclude(with_soak(case, part, above))

    assert (["easy"], "soak-1.part-2.jsonl") == (list(part.settings), part.file)
    assert ((), {"easy": "promoted", "hard": "promoted"}) == (conclusion.needs, outcomes(conclusion))


@pytest.mark.parametrize(
    "change",
    [{"optional": ("easy",)}, {"objectives": (objective("itl_p99", at_most=1, scope="population"),)}],
    ids=["optional speculation", "a quantile over other prompts"],
)
def test_a_soak_does_not_continue_for(change: dict[str, Any]) -> None:
    """Plain decoding is safe where drafting is optional; more of the same prompts say little of others."""
    case = bare({"easy": WINNING}, **{"objectives": (objective("throughput_ratio", at_least=1.3),)} | change)
    (leg,) = conclude(case).needs

    conclusion = conclude(with_soak(case, leg, NEAR))

    assert [] == [leg for leg in conclusion.needs if leg.part > 1]


def test_implicit_promises_are_checked() -> None:
    """A fast candidate with one failed answer is stepped down, though the SLO names no error rate."""
    case = bare({"easy": WINNING})
    (leg,) = conclude(case).needs
    answers = soaked(case, leg, {"easy": WINNING})
    lame = max((answer for answer in answers if answer.arm == "candidate"), key=lambda record: record.answer.ended_ns)
    broken = tuple(
        replace(answer, answer=replace(answer.answer, fault="timeout")) if answer is lame else answer
        for answer in answers
    )

    (step,) = conclude(replace(case, soaks={leg.name: StoredRecords(broken)})).verdict.transitions

    assert "error_rate" in step.because


HOST = (objective("throughput_ratio", at_least=1.1), objective("footprint_peak", at_most="4 GB"))


def hosted(case: Case, leg: SoakPlan, footprint: float) -> Case:
    samples = tuple(sample(second, footprint, phase=leg.name) for second in range(601))
    return replace(case, host_samples=(*case.host_samples, *samples))


def test_a_failed_host_steps_every_speculating_workload_down() -> None:
    """Memory belongs to the run: all go down a step, and the plain one is soaked again."""
    case = bare({"easy": WINNING, "hard": WINNING, "slow": LOSING}, objectives=HOST, optional=("slow",))
    (leg,) = conclude(case).needs

    conclusion = conclude(hosted(with_soak(case, leg, WINNING), leg, 5e9))

    assert [("soak-2", {"easy": SHORTER, "hard": SHORTER, "slow": PLAIN})] == legs(conclusion)
    assert {"easy", "hard", "slow"} == {transition.workload for transition in conclusion.verdict.transitions}
    assert all(
        "footprint_peak" in transition.because
        for transition in conclusion.verdict.transitions
        if transition.workload != "slow"
    )


def test_a_host_that_fails_beside_plain_decoding_fails_the_run() -> None:
    """At the foot of the ladder a failed host objective is a failed run."""
    case = bare({"slow": LOSING}, objectives=HOST, optional=("slow",))
    (leg,) = conclude(case).needs

    assert (1, "failed") == _ended(conclude(hosted(with_soak(case, leg, WINNING), leg, 5e9)))


def _ended(conclusion: Conclusion) -> tuple[int, str]:
    return conclusion.verdict.exit_code, conclusion.verdict.outcome


@pytest.mark.parametrize("remaining", [0, 300, 560])
def test_unmeasured_time_is_not_quiet_time(remaining: int) -> None:
    """Fewer than 95 % of the expected host samples leave the host objective unproven."""
    case = bare({"easy": WINNING}, objectives=HOST)
    (leg,) = conclude(case).needs
    complete = hosted(with_soak(case, leg, WINNING), leg, 3e9)

    verdict = conclude(replace(complete, host_samples=complete.host_samples[:remaining])).verdict

    assert (3, [Outcome.UNPROVEN]) == (verdict.exit_code, [host_check.outcome for host_check in verdict.host_checks])


def _without_last(answers: Sequence[Generation]) -> Sequence[Generation]:
    return answers[:-1]


TROUBLES: dict[str, Callable[[Case, str], Case]] = {
    "a doubt of the run": lambda case, _: replace(case, doubts=(Doubt("another host"),)),
    "a damaged soak": lambda case, leg: replace(
        case, soaks={leg: StoredRecords(_without_last(case.soaks[leg].records), "cut off inside line 9")}
    ),
    "a damaged baseline": lambda case, _: replace(
        case, sweep={**case.sweep, "baseline": StoredRecords((), "line 1 is damaged")}
    ),
    "a missing sweep file": lambda case, _: replace(
        case, sweep={name: sweep for name, sweep in case.sweep.items() if name != "default"}
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_with_the_records_is_never_exit_0(trouble: str) -> None:
    """Whatever is damaged, the run is unproven, says what is wrong, and keeps what it otherwise was."""
    case = bare({"easy": WINNING})
    (leg,) = conclude(case).needs
    complete = with_soak(case, leg, WINNING)
    assert 0 == conclude(complete).verdict.exit_code

    verdict = conclude(TROUBLES[trouble](complete, leg.name)).verdict

    assert (3, "unproven") == (verdict.exit_code, verdict.workloads[0].outcome)
    assert verdict.incomplete
    assert verdict.incomplete in verdict.workloads[0].because


def test_a_setting_set_by_hand_has_no_sweep_and_no_ladder() -> None:
    """`soak --set` judges that setting alone: a fail is a fail."""
    case = bare({"easy": WINNING})
    fixed = replace(case, plan=replace(case.plan, trials=(), blocks=(), fixed=SHORTER), sweep={})
    (leg,) = conclude(fixed).needs

    conclusion = conclude(with_soak(fixed, leg, FAILING))

    assert ({"easy": SHORTER}, (), {"easy": "failed"}) == (dict(leg.settings), conclusion.needs, outcomes(conclusion))


def test_a_draft_that_loses_after_another_workload_is_named_by_the_sweep() -> None:
    """A draft that accepts a tenth right after a longer request loses on short prompts, so that no soak drafts there:
    the sweep alone, of eight canaries twice, says what the loss depends on; with the same acceptance throughout nothing
    is.
    """
    case = bare({"short": LOSING, "long": WINNING}, optional=("short", "long"), sweep={"repeats": 2, "budget": 16})

    def recorded(after_long: int) -> Case:
        sweep = {}
        for trial, answers in case.sweep.items():
            before, records = "", list[Generation]()
            for record in answers.records:
                carried = record.workload == "short" and before == "long"
                rounds = counted(5, 20, after_long if carried else 12 + len(records) % 3)
                answer = replace(record.answer, rounds=rounds if record.arm == "candidate" else None)
                records.append(replace(record, answer=answer))
                before = record.workload
            sweep[trial] = StoredRecords(tuple(records))
        return replace(case, sweep=sweep)

    carried, sound = (
        [finding for finding in conclude(recorded(after_long)).verdict.findings if finding.kind == "carried_over"]
        for after_long in (2, 13)
    )

    assert ["short, sweep"] == [finding.about for finding in carried]
    assert "right after a request of long" in carried[0].detail
    assert [] == sound
