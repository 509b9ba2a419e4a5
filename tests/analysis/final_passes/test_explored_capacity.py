"""The explored capacity: the records decide it, and what they lack proves nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.final_passes.explored_capacity import LevelCache, LevelNeed, explore
from gatekeeper.analysis.plan.capacity_levels import CAPACITY, StreamLevel
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.stream_capacity import StreamCapacity
from gatekeeper.core.records import Generation, StoredRecords
from tests.builders.case import WINNING, bare
from tests.builders.slo import canaries, counted, generation, objective, steady

Gap = Callable[[StreamLevel, int], float]
"""Seconds between the tokens of an answer, by its level and its number."""
FIRST, NEVER = 0.1, 10.0


def case_of(*objectives: dict[str, Any], **changes: Any) -> Case:
    promises = objectives or (objective("itl_p95", at_most=0.1),)
    case = bare({"easy": WINNING}, objectives=promises, capacity={"streams": 16}, **changes)
    return replace(case, canaries={"easy": canaries(72, "easy")}, live=True)


def answers_of(need: LevelNeed, gap: Gap, answered: frozenset[str]) -> list[Generation]:
    """Return the answers that a need lacks, of a system with these gaps; one whose gap is `NEVER` failed."""
    level, records = need.level, []
    for number, request in enumerate(level.requests(need.answers)):
        if request.key in answered:
            continue
        seconds = gap(level, number)
        answer = steady(seconds, 10, first_s=FIRST, rounds=counted(4, 16, 6) if level.arm == "candidate" else None)
        answer = replace(answer, fault="refused" if seconds == NEVER else None)
        fields: dict[str, Any] = {"arm": level.arm, "trial": level.name, "key": request.key, "pair": request.pair}
        knobs: dict[str, Any] = {"setting": request.setting, "concurrency": level.streams}
        records.append(generation(answer, request.canary.id, **fields, **knobs))
    return records


def explored(case: Case, gap: Gap) -> tuple[Case, StreamCapacity]:
    """Answer whatever the search needs."""
    route, cache, records = case.plan.candidates[0].setting, LevelCache(), list[Generation]()
    while isinstance(need := explore(case, "easy", route, cache), LevelNeed):
        records += answers_of(need, gap, frozenset(answer.key for answer in records))
        case = replace(case, at_end={CAPACITY: StoredRecords(tuple(records))})
    return case, need


def rising(level: StreamLevel, _number: int) -> float:
    """Plain decoding keeps 100 ms for nine streams; the draft is twice as fast, and as slow with nine."""
    return 0.011 * level.streams if level.arm == "plain" else 0.0011 * level.streams**2


def test_both_arms_and_the_crossing_are_found() -> None:
    """
    Each arm ends where its latency does; a draft pays up to nine streams, of which its latency keeps nine.
    """
    case, capacity = explored(case_of(), rising)

    assert capacity.draft is not None
    assert (9, 9) == (capacity.plain.reach.least, capacity.plain.reach.most)
    assert (9, 9) == (capacity.draft.reach.least, capacity.draft.reach.most)
    assert capacity == explore(replace(case, live=False), "easy", case.plan.candidates[0].setting, LevelCache())


def test_a_draft_that_is_overtaken_is_capped() -> None:
    """
    Up to five streams the draft is faster; with more plain decoding is, and no route speculates there.
    """
    _, capacity = explored(case_of(), lambda level, _: 0.03 if level.arm == "plain" else 0.0055 * level.streams)

    assert capacity.draft is not None
    assert capacity.gain is not None
    assert 16 == capacity.draft.reach.least
    assert capacity.max_concurrency <= 6
    assert capacity.gain.reach.most is not None


@pytest.mark.parametrize("share", [0.0, 0.5, 0.97])
def test_answers_that_are_missing_prove_nothing(share: float) -> None:
    """
    A run that ended within its search, or lost records, has a lower end that its whole probes prove, and an open upper
    one unless a miss was proven.
    """
    case, complete = explored(case_of(), rising)
    records = case.at_end[CAPACITY].records
    remaining = {CAPACITY: StoredRecords(records[: int(share * len(records))])}

    route = case.plan.candidates[0].setting
    capacity = explore(replace(case, at_end=remaining, live=False), "easy", route, LevelCache())

    assert isinstance(capacity, StreamCapacity)
    assert capacity.plain.reach.least <= complete.plain.reach.least
    assert capacity.max_concurrency <= complete.max_concurrency
    assert share or (0, None, 0) == (capacity.plain.reach.least, capacity.plain.reach.most, capacity.max_concurrency)


def test_a_refused_request_breaks_what_allows_no_errors() -> None:
    """
    One failed answer in a probe is one too many, unless the SLO allows a share of them.
    """

    def failing(level: StreamLevel, number: int) -> float:
        return NEVER if level.streams > 4 and number == 3 else 0.01

    allowed = case_of(objective("itl_p95", at_most=0.1), objective("error_rate", at_most=0.2))

    _, strict = explored(case_of(), failing)
    _, lenient = explored(allowed, failing)

    assert (4, 4) == (strict.plain.reach.least, strict.plain.reach.most)
    assert (16, None) == (lenient.plain.reach.least, lenient.plain.reach.most)


def test_two_objectives_end_at_the_tighter_one() -> None:
    """
    The latency that breaks first decides, whichever it is, and each level says how near each came.
    """
    bounded = case_of(objective("itl_p95", at_most=0.1), objective("ttft", at_most=0.05))

    _, capacity = explored(bounded, rising)

    assert (0, 0) == (capacity.plain.reach.least, capacity.plain.reach.most)
    assert capacity.plain.levels[0].tightest is not None
    assert "ttft" == capacity.plain.levels[0].tightest.metric


def test_few_probes_are_sent() -> None:
    """
    Sixteen levels in both arms take at most a dozen probes, and the latency of none is measured far beyond its bound.
    """
    _, capacity = explored(case_of(), rising)

    assert capacity.draft is not None
    assert len(capacity.plain.levels) + len(capacity.draft.levels) <= 12
