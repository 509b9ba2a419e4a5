"""A capacity in sentences and as curves: what is proven, and the objective that comes nearest to its bound."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.stats.stream_search import Reach, StreamReading
from gatekeeper.analysis.verdict.stream_capacity import (
    ArmCapacity,
    Gain,
    LevelReading,
    MeasuredLatency,
    StreamCapacity,
)
from gatekeeper.core.verdict import Outcome
from gatekeeper.report.data.capacity_curves import curves, sentences
from gatekeeper.report.html.sections.capacity_section import capacities
from tests.builders.golden_words import says
from tests.builders.page_data import VERDICT


def level(streams: int, outcome: Outcome, *latencies: tuple[str, float, float]) -> LevelReading:
    measured = tuple(MeasuredLatency(metric, bound, center, None, None) for metric, bound, center in latencies)
    return LevelReading(streams, StreamReading(outcome, None), "because", 90, 0, measured, 40.0)


PLAIN = ArmCapacity(
    Reach(8, 9),
    (
        level(2, Outcome.UNPROVEN, ("itl_p95", 0.1, 0.03), ("ttft", 0.5, 0.1)),
        level(8, Outcome.PASS, ("itl_p95", 0.1, 0.09), ("ttft", 0.5, 0.2)),
        level(9, Outcome.UNPROVEN, ("itl_p95", 0.1, 0.1), ("ttft", 0.5, 0.3)),
        level(10, Outcome.FAIL, ("itl_p95", 0.1, 0.2), ("ttft", 0.5, 0.4)),
        level(12, Outcome.UNPROVEN),
    ),
)
DRAFT = ArmCapacity(Reach(4, 4), (level(4, Outcome.PASS, ("itl_p95", 0.1, 0.08)),))
CAPACITY = StreamCapacity(16, 0.95, PLAIN, DRAFT, Gain(Reach(3, None), ()))
VARIANTS = {
    "the capacity of both arms": CAPACITY,
    "the capacity of plain decoding alone": StreamCapacity(16, 0.95, replace(PLAIN, reach=Reach(16, None))),
    "the capacity where nothing is proven": StreamCapacity(
        16, 0.95, ArmCapacity(Reach(0, None), ()), ArmCapacity(Reach(0, 3), ())
    ),
    "the capacity where the draft is overtaken": replace(CAPACITY, gain=Gain(Reach(2, 2), ())),
    "the capacity where the draft is slower": replace(
        CAPACITY, gain=Gain(Reach(0, 0), ()), because="capacity.jsonl: cut off"
    ),
    "the capacity where the draft is faster all along": replace(CAPACITY, gain=Gain(Reach(4, None), ())),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_capacity_is_said_in_sentences(variant: str) -> None:
    """
    The sentences say what is proven of either arm, and where plain decoding overtakes.
    """
    says("reports", variant, "\n".join(sentences(VARIANTS[variant])))


def test_the_curves_are_of_the_tightest_objective() -> None:
    """
    Both arms are drawn by the objective that goes farthest beyond its bound; a probe without it has no point.
    """
    drawn = curves(CAPACITY)

    assert drawn is not None
    assert ("itl_p95", 0.1) == (drawn.metric, drawn.bound)
    assert [(2, "inside"), (8, "keeps"), (9, "open"), (10, "breaks")] == [
        (point.streams, point.word) for point in drawn.arms["plain"]
    ]
    assert [4] == [point.streams for point in drawn.arms["candidate"]]
    assert curves(VARIANTS["the capacity where nothing is proven"]) is None


def test_a_level_beyond_what_is_broken_is_outside() -> None:
    """
    Nothing was measured with twelve streams, but ten break an objective.
    """
    assert "outside" == PLAIN.word(PLAIN.levels[-1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_page_has_one_section_with_every_probe(variant: str) -> None:
    """
    Each probe is a row, and the curves are drawn where there is something to draw.
    """
    workloads = tuple(replace(workload, capacity=VARIANTS[variant]) for workload in VERDICT.workloads[:1])

    drawn = capacities(replace(VERDICT, workloads=workloads))

    assert drawn is not None
    arms = [arm for arm in (VARIANTS[variant].plain, VARIANTS[variant].draft) if arm is not None]
    assert sum(len(arm.levels) for arm in arms) == drawn.count("<tr>") - 1
    assert (curves(VARIANTS[variant]) is not None) == ("<figure>" in drawn)
    assert capacities(VERDICT) is None
