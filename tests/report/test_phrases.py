"""The phrases that reports share: figures with their intervals, and the speed against plain decoding."""

from dataclasses import replace
from typing import Any

from gatekeeper.analysis.verdict.run_verdict import Measured, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Bounds, Check, Estimate, Missing, Outcome
from gatekeeper.report.data.objective_rows import show_measurement
from gatekeeper.report.data.workload_summary import speed_up
from gatekeeper.report.phrases import about, against_plain, swept_settings, swept_speed
from tests.builders.golden_words import says
from tests.builders.page_data import DRAFTED, RATIO, choice_of


def workload(outcome: str, **more: Any) -> WorkloadVerdict:
    return WorkloadVerdict(
        "easy", WorkloadOutcome(outcome), DRAFTED, checks=(), required=True, because="because of this", **more
    )


def test_speed_against_plain_is_the_soaks_or_else_the_sweeps_best() -> None:
    """A promoted route shows the soak's; a plain one shows the best of the sweep, labelled; else a dash."""
    swept = choice_of(Estimate(0.8, 0.7, 0.9, 8), Missing("too few", 3), Estimate(0.95, 0.9, 1.0, 8))

    soaked = against_plain(speed_up(workload("promoted", measured=Measured({"throughput_ratio": RATIO}))))
    plain = against_plain(speed_up(workload("graded_back", choice=swept)))

    assert "1.31x [1.22, 1.38]" == soaked
    says("reports", "speed against plain is the soaks or else the sweeps best", plain)
    assert "-" == against_plain(speed_up(workload("graded_back")))


def test_a_unit_is_written_once() -> None:
    """Centre and bounds in one unit name it once; in two units each keeps its own."""
    alike = Check("ttft", "at_most", 1.0, Outcome.PASS, unit="s", because="", why="", center=0.06, lo=0.059, hi=0.061)
    apart = Check("ttft", "at_most", 1.0, Outcome.PASS, unit="s", because="", why="", center=0.9, lo=0.8, hi=1.1)

    assert "60 ms [59, 61]" == show_measurement(alike)
    assert "900 ms [800 ms, 1.1 s]" == show_measurement(apart)


def test_an_interval_says_which_prompts_it_is_about() -> None:
    """These canaries, with the interval for prompts like them beside it; prompts like these; nothing for a count."""
    bare = Check("throughput_ratio", "at_least", 1.16, Outcome.PASS, 1.31, 1.29, 1.33, 24, unit="1", because="", why="")
    these = replace(bare, scope="frozen", population=Bounds(1.22, 1.41))

    says("reports", "an interval says which prompts it is about", about(these))
    assert "on these canaries" == about(replace(these, population=Bounds(None, 1.41)))
    assert "for prompts like these" == about(replace(bare, scope="population"))
    assert "" == about(bare)


def test_each_swept_setting_says_whether_it_is_faster() -> None:
    """Faster where the whole interval lies above plain decoding, slower where it lies below; else not decided, and a
    lack
    has its reason.
    """
    ratios = (Estimate(1.3, 1.2, 1.4, 8), Estimate(0.8, 0.7, 0.9, 8), Estimate(1.05, 0.95, 1.1, 8), Missing("no pairs"))

    speeds = [swept_speed(result) for result in choice_of(*ratios).results]

    assert [
        "faster, 1.30x [1.20, 1.40]",
        "slower, 0.80x [0.70, 0.90]",
        "not decided, 1.05x [0.95, 1.10]",
        "not measured, no pairs",
    ] == speeds
    assert [] == swept_settings(None)
