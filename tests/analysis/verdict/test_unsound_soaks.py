"""Soaks that are not what a soak should be: empty, silent, lying, of two minds, or against the clock."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.records import Claims, Generation, Role, Rounds, StoredRecords
from tests.builders.case import WINNING, Made, bare, concluded, with_soak
from tests.builders.golden_words import says
from tests.builders.slo import objective

Answers = Sequence[Generation]


def soaked_whole(case: Case) -> tuple[Case, str]:
    """Return the case with its first soak as it should be, and that soak's name."""
    (leg,) = conclude(case).needs
    return with_soak(case, leg, WINNING), leg.name


def changed(change: Callable[[Answers], Answers], case: Case | None = None) -> Verdict:
    """Judge a run that would be promoted, its soak's answers changed."""
    complete, name = soaked_whole(case or bare({"easy": WINNING}))
    assert 0 == conclude(complete).verdict.exit_code
    soaks = {name: StoredRecords(tuple(change(complete.soaks[name].records)))}
    return conclude(replace(complete, soaks=soaks)).verdict


def each(arm: str, **fields: Any) -> Callable[[Answers], Answers]:
    """Change the answers of one arm."""
    return lambda answers: [
        replace(answer, answer=replace(answer.answer, **fields)) if answer.arm == arm else answer for answer in answers
    ]


def without(arm: str) -> Callable[[Answers], Answers]:
    return lambda answers: [answer for answer in answers if answer.arm != arm]


def first_of_each_arm(answers: Answers) -> Answers:
    return [next(answer for answer in answers if answer.arm == arm) for arm in ("candidate", "plain")]


def half(answers: Answers) -> Answers:
    return answers[: len(answers) // 2]


def of_two_minds(answers: Answers) -> Answers:
    """Let every other plain answer to a canary take three times as long."""
    return [
        _slowed(answer) if answer.arm == "plain" and int(answer.pair.split("-")[-1]) // 8 % 2 else answer
        for answer in answers
    ]


def _slowed(record: Generation) -> Generation:
    sent = record.answer.sent_ns
    late = tuple(arrival._replace(at_ns=sent + 3 * (arrival.at_ns - sent)) for arrival in record.answer.arrivals)
    return replace(record, answer=replace(record.answer, arrivals=late, ended_ns=late[-1].at_ns))


def before_it_was_sent(answers: Answers) -> Answers:
    """Let the first answer arrive an hour before it was asked for."""
    first = answers[0].answer
    early = tuple(arrival._replace(at_ns=arrival.at_ns - 3600 * 10**9) for arrival in first.arrivals)
    return [replace(answers[0], answer=replace(first, arrivals=early)), *answers[1:]]


def over_before_it_began(answers: Answers) -> Answers:
    return [replace(answers[0], answer=replace(answers[0].answer, ended_ns=-1)), *answers[1:]]


def torn(answers: Answers) -> Answers:
    """Interrupt the soak: two stretches of five minutes are no ten-minute soak."""
    return [replace(answer, segment=int(answer.answer.sent_ns > 300e9)) for answer in answers]


def beside(role: Role) -> Callable[[Answers], Answers]:
    """Let all answers be such as lie beside the soak's clock."""
    return lambda answers: [replace(answer, role=role) for answer in answers]


UNPROVEN: dict[str, Callable[[Answers], Answers]] = {
    "nothing": lambda _: (),
    "no candidate": without("candidate"),
    "no plain twin": without("plain"),
    "one answer an arm": first_of_each_arm,
    "half a soak": half,
    "two halves of a soak": torn,
    "warm-ups alone": beside(Role.WARMUP),
    "closing answers alone": beside(Role.CLOSING),
    "plain blocks alone": beside(Role.BLOCK),
    "a baseline of two minds": of_two_minds,
    "arrivals before the request": before_it_was_sent,
    "an end before the beginning": over_before_it_began,
    "plain decoding says nothing": each("plain", output_tokens=0, arrivals=(), text=""),
    "plain decoding dies": each("plain", fault="died"),
    "the candidate dies": each("candidate", fault="died"),
    "an uncounted draft": each("candidate", rounds=None),
    "an acceptance above 1": each("candidate", rounds=Rounds(4, 16, 17)),
    "a claimed acceptance above 1": each("candidate", claims=Claims(drafted=16, accepted=17, rounds=4)),
    "claims beside silence": each("candidate", rounds=Rounds(10, 0, 0), claims=Claims(drafted=16, accepted=9)),
}
BROKEN: dict[str, Callable[[Answers], Answers]] = {
    "the candidate says nothing": each("candidate", output_tokens=0, arrivals=(), text=""),
    "the draft is silent": each("candidate", rounds=Rounds(10, 0, 0)),
}
COUNTED = bare(
    {"easy": WINNING},
    objectives=(objective("throughput_ratio", at_least=1.1), objective("acceptance_rate", at_least=0.1)),
)


@pytest.mark.whole
@pytest.mark.parametrize("name", UNPROVEN)
def test_a_soak_that_shows_too_little_proves_nothing(name: str) -> None:
    """A run about to be promoted is unproven, code 3, once its soak is empty, torn or unbelievable."""
    verdict = changed(UNPROVEN[name], COUNTED)

    assert (3, "unproven") == (verdict.exit_code, verdict.outcome)
    assert all(workload.outcome != "promoted" for workload in verdict.workloads)


@pytest.mark.parametrize("name", BROKEN)
def test_a_candidate_that_does_nothing_is_not_promoted(name: str) -> None:
    """No tokens, no proposals: an implicit objective fails, and the next step is asked for."""
    verdict = changed(BROKEN[name])

    assert 0 != verdict.exit_code
    assert ["easy"] == [transition.workload for transition in verdict.transitions]


def test_a_clock_that_ran_backwards_is_said() -> None:
    """The verdict names the file, the answer and what is wrong with it; so it does with half a soak."""
    soak = changed(before_it_was_sent)
    complete, _ = soaked_whole(bare({"easy": WINNING}))
    baseline = StoredRecords(tuple(before_it_was_sent(complete.sweep["baseline"].records)))
    sweep = conclude(replace(complete, sweep={**complete.sweep, "baseline": baseline})).verdict

    for file, verdict in (("soak-1", soak), ("baseline", sweep)):
        reason, first, _ = str(verdict.incomplete).partition(", first in easy/")
        says("verdicts", "a clock that ran backwards is said", reason + first, file=file)
        assert 3 == verdict.exit_code
    assert "600 s are required" in str(changed(half).incomplete)


def test_answers_that_are_all_alike_have_no_spread() -> None:
    """Without any noise the ratio is one number, and it is judged like any other."""
    verdict = concluded(bare({"easy": Made(1.5, 0.0)}), Made(1.5, 0.0)).verdict

    (ratio,) = (check for check in verdict.workloads[0].checks if check.metric == "throughput_ratio")
    assert (0, 1.5, 1.5, 1.5) == (verdict.exit_code, ratio.lo, ratio.center, ratio.hi)
