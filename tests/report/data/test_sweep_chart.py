"""The sweep, answer by answer."""

from dataclasses import replace
from operator import attrgetter
from statistics import geometric_mean

import pytest

from gatekeeper.analysis.conclude import conclude
from gatekeeper.core.records import StoredRecords
from gatekeeper.report.data.sweep_chart import METRICS, MOST_ROWS, SweepAnswer, every_nth, sweep_data
from tests.builders.case import WINNING, bare
from tests.builders.page_data import whole_case

RATIO = METRICS.index("throughput_ratio")


def row(number: int, fault: str | None = None) -> SweepAnswer:
    return SweepAnswer("easy", "default", f"c-{number}", 0, 10, "", fault, ())


def test_the_dots_of_a_setting_average_to_its_estimate() -> None:
    """The interval is the one the setting was chosen by. The ratios of its answers, each against one baseline
    answer, have
    about its centre as their mean: that counts the second plain arm too.
    """
    case = whole_case()
    sweep = sweep_data(case, conclude(case).verdict.workloads)

    ratios = [
        value
        for answer_row in sweep.rows
        if (answer_row.workload, answer_row.trial) == ("easy", "default") and (value := answer_row.figures[RATIO])
    ]

    center, lo, hi, count = sweep.estimates["easy", "default", "throughput_ratio"]
    assert pytest.approx(geometric_mean(ratios), rel=5e-3) == center
    assert lo < center < hi
    assert (8, 8) == (count, len(ratios))


def test_a_fault_has_no_ratio_and_is_never_thinned_out() -> None:
    """An answer that failed is shown with its fault and without a speed, however many there are."""
    case = whole_case()
    trial = next(iter(case.sweep))
    broken = tuple(
        replace(record, answer=replace(record.answer, fault="timeout")) for record in case.sweep[trial].records
    )
    faulty_case = replace(case, sweep={**case.sweep, trial: StoredRecords(broken)})

    sweep = sweep_data(faulty_case, conclude(faulty_case).verdict.workloads)

    assert {"timeout"} == {answer_row.fault for answer_row in sweep.rows if answer_row.trial == trial}
    assert all(answer_row.figures[RATIO] is None for answer_row in sweep.rows)


def test_rows_are_thinned_evenly() -> None:
    """Of too many rows every n-th is kept, with all faults, and a few are kept as they are."""
    rows = [row(number, "timeout" if number == 5 else None) for number in range(3 * MOST_ROWS)]

    fault = attrgetter("fault")
    thinned = every_nth(rows, MOST_ROWS, fault)

    assert MOST_ROWS + 1 == len(thinned)
    assert rows[5] in thinned
    assert rows[:7] == every_nth(rows[:7], MOST_ROWS, fault)
    assert [] == every_nth([], MOST_ROWS, fault)


@pytest.mark.parametrize(
    ("design", "knobs"),
    [
        ("one-at-a-time", {(), ("num_draft_tokens",), ("draft",)}),
        ("grid", {(), ("num_draft_tokens",), ("draft",), ("draft", "num_draft_tokens")}),
    ],
)
def test_a_setting_names_the_knobs_it_moves(design: str, knobs: set[tuple[str, ...]]) -> None:
    """In either design a setting has the list of knobs that differ from the default, to filter by one knob."""
    swept = {
        "repeats": 1,
        "design": design,
        "draft": ["heavy", "light"],
        "num_draft_tokens": [2, 4],
        "default": {"num_draft_tokens": 4},
    }
    case = bare({"easy": WINNING}, sweep=swept)

    sweep = sweep_data(case, conclude(case).verdict.workloads)

    assert knobs == {setting.moved for setting in sweep.settings if setting.arm == "candidate"}
    assert {()} == {setting.moved for setting in sweep.settings if setting.arm == "plain"}
