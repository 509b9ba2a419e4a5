"""A soak over time: what lies where on its axis."""

from dataclasses import replace

from gatekeeper.analysis.verdict.run_verdict import Transition
from gatekeeper.core.clock import wall_seconds
from gatekeeper.core.records import Event, StoredRecords
from gatekeeper.report.data.timeline import BUCKETS, MOST_ANSWERS, Timeline, timelines
from tests.builders.case import SOAK_S
from tests.builders.page_data import event, samples, whole_case
from tests.builders.slo import SECOND


def timeline(*happened: Event, **changes: object) -> Timeline:
    (soak,) = timelines(replace(whole_case(), **changes), (), happened)  # type: ignore[arg-type]
    return soak


def test_the_worst_reading_of_a_stretch_is_drawn() -> None:
    """One second of warning in ten minutes is still seen, and headroom is drawn by its lowest."""
    soak = timeline()
    lanes = {lane.name: lane for lane in soak.lanes}

    assert 2.0 == max(value for _, value in lanes["memory_pressure_level"].points)
    lowest = min(value for _, value in lanes["memory_headroom"].points)
    assert 14e9 - 1e6 * SOAK_S <= lowest <= 14e9 - 1e6 * (SOAK_S - 10)
    assert all(len(lane.points) <= BUCKETS + 1 for lane in soak.lanes)


def test_a_value_that_was_not_seen_says_why() -> None:
    """A denied source and one that never was are named by their status, not drawn as zero."""
    lanes = {lane.name: lane for lane in timeline().lanes}

    count = lanes["thermal_level"].missing.split()[2]
    assert f"denied in {count} of {count} samples" == lanes["thermal_level"].missing
    assert f"not sampled in {count} of {count} samples" == lanes["subject_footprint"].missing
    assert ((), ()) == (lanes["thermal_level"].points, lanes["subject_footprint"].points)


def test_incidents_lie_where_they_happened() -> None:
    """A death is marked at its second with its reason; what belongs to another soak, or to no soak, is not."""
    soak = timeline(
        event(0, "begin", segment=0),
        event(100, "closing", soak="soak-2"),
        event(120, "subject_died", because="signal 9"),
        event(130, "answer"),
    )

    (mark,) = soak.marks
    assert "subject_died" == mark.kind
    assert mark.text.endswith(": signal 9")
    assert abs(mark.at - 120) < 2


def test_a_pause_between_two_stretches_is_shortened() -> None:
    """A run that was resumed eleven hours later is not eleven hours wide, and its two stretches do not overlap."""
    case = whole_case()
    answers = case.soaks["soak-1"].records
    half = len(answers) // 2
    later = [replace(answer, segment=1, at=answer.at.replace("T00:", "T11:")) for answer in answers[half:]]

    (soak,) = timelines(replace(case, soaks={"soak-1": StoredRecords((*answers[:half], *later))}), (), ())

    places = [dot.at for dot in soak.dots]
    assert places == sorted(places)
    assert SOAK_S - 20 < soak.seconds < SOAK_S * 1.1


def test_many_answers_are_thinned_and_no_fault_is_lost() -> None:
    """Dots are at most so many, the number of answers is kept, and every fault is drawn."""
    case = whole_case()
    record = case.soaks["soak-1"].records[0]
    faulty = replace(record, answer=replace(record.answer, fault="timeout"))
    answers = tuple(faulty if number % 100 == 7 else record for number in range(5000))

    (soak,) = timelines(replace(case, soaks={"soak-1": StoredRecords(answers)}), (), ())

    assert (5000, 50) == (soak.answers, sum(dot.fault is not None for dot in soak.dots))
    assert len(soak.dots) <= MOST_ANSWERS + 50


def test_answers_without_a_time_of_day_have_no_timeline() -> None:
    """A stamp that is empty or damaged is no instant."""
    case = whole_case()
    timeless = tuple(replace(record, at="") for record in case.soaks["soak-1"].records)

    assert () == timelines(replace(case, soaks={"soak-1": StoredRecords(timeless)}), (), ())
    assert (None, None, 0.0) == (wall_seconds(""), wall_seconds("yesterday"), wall_seconds("1970-01-01T00:00:00Z"))


def test_acceptance_and_steps_down_lie_on_the_axis() -> None:
    """A soak of ten minutes has five windows of the workload that drafts; a step down ends the soak it came from."""
    last = max(record.at for record in whole_case().soaks["soak-1"].records)

    (soak,) = timelines(whole_case(), (Transition(last, "easy", {}, {}, "too slow"),), ())

    assert 5 <= len(soak.windows) <= 6
    assert {"easy"} == {window.workload for window in soak.windows}
    assert [("transition", "easy: too slow")] == [(mark.kind, mark.text) for mark in soak.marks]


def test_a_stretch_without_samples_says_why() -> None:
    """Where the closing pass has no samples of this soak, the lane has a gap with that name; elsewhere it has none."""
    sampled = tuple(sample for sample in samples("soak-1") if sample.at_ns < 500 * SECOND)

    (gap,) = timeline(event(500, "closing", soak="soak-1"), host_samples=sampled).gaps

    assert (499, "closing pass") == (round(gap.begin), gap.because)
    assert () == timeline().gaps
