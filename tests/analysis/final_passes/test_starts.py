"""The starts at the end of a run: the requests of both arms, and what their records show."""

from dataclasses import replace
from typing import Any

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.final_passes.starts import PASS, STARTS, start_requests
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import ArmsCompared
from gatekeeper.core.records import Generation, Role, StoredRecords
from gatekeeper.core.verdict import Estimate, Missing
from tests.builders.case import WINNING, bare, with_soak
from tests.builders.slo import SECOND, generation, known, near, steady

TWICE = 2.0
"""What a start with a draft takes, over one of plain decoding."""


def soaked_case(starts: int, **changes: Any) -> Case:
    """Return a case of one workload that is promoted, whose SLO asks for a number of starts."""
    case = bare({"easy": WINNING}, soak={"duration": "600 s", "starts": starts}, **changes)
    return with_soak(case, conclude(case).needs[0], WINNING)


def started(case: Case) -> tuple[Generation, ...]:
    """Return the answers of the starts: five seconds until the first token plainly, ten with the draft."""
    knobs = conclude(case).routes["easy"]
    requests = start_requests(case.slo, "easy", knobs, case.canaries["easy"])
    answers = []
    for request in requests:
        waits = 0.1 if request.role is Role.FOLLOWING else 5.0 * (TWICE if request.arm == "candidate" else 1.0)
        answer = steady(0.05, first_s=waits + 0.01 * request.repeat)
        record = generation(answer, request.canary.id, arm=request.arm, workload="easy", setting=request.setting)
        answers.append(replace(record, key=request.key, role=request.role, repeat=request.repeat))
    return tuple(answers)


def at_end(case: Case) -> tuple[ArmsCompared, ...]:
    return conclude(case).verdict.workloads[0].at_end


def test_a_draft_that_takes_as_long_to_load_again_doubles_a_start() -> None:
    """
    Six starts of each arm bound both times and their ratio; the answers right after them do not differ.
    """
    case = soaked_case(6)

    loaded, following = at_end(replace(case, at_end={STARTS: StoredRecords(started(case))}))

    assert near(TWICE) == round(known(loaded.ratio).center, 2)
    assert 1 == round(known(following.ratio).center, 2)
    assert isinstance(loaded.plain, Estimate)
    assert loaded.plain.lo <= 5.02 <= loaded.plain.hi


def test_an_arm_that_did_not_start_has_no_time() -> None:
    """
    Answers that failed count for nothing: two starts are left, which bound nothing, and no outcome changes.
    """
    case = soaked_case(6)
    failed = tuple(
        replace(answer, answer=replace(answer.answer, fault="timeout")) if answer.repeat > 1 else answer
        for answer in started(case)
    )

    after = replace(case, at_end={STARTS: StoredRecords(failed)})

    assert {True} == {isinstance(compared.ratio, Missing) for compared in at_end(after)}
    assert conclude(after).verdict.outcome == conclude(case).verdict.outcome


def test_a_server_that_was_running_is_not_started() -> None:
    """
    A server that the SLO attaches to is not started: nothing is requested, and the time is missing.
    """
    case = soaked_case(6, subject={"backend": "openai", "target": "t", "url": "http://127.0.0.1:8080/v1"})
    conclusion = conclude(case)

    assert [] == PASS.lacks(case, conclusion.verdict, conclusion.routes)


def test_the_arms_take_turns_in_being_first() -> None:
    """
    A disk, or a chip, that warms up favours neither arm: each is the first in every other start.
    """
    case = soaked_case(4)

    answers = started(case)

    first = [answer.arm for answer in answers if answer.role is Role.LOADED][::2]
    assert ["candidate", "plain", "candidate", "plain"] == first
    assert 16 == len({answer.key for answer in answers})
    assert all(answer.answer.sent_ns < 100 * SECOND for answer in answers)
