"""A scene written down by hand, so that what a reporter makes of it changes only when the reporter does."""

from gatekeeper.analysis.verdict.remedies import Gap
from gatekeeper.core.verdict import Check, Finding, Outcome, Transition, Verdict, WorkloadVerdict
from gatekeeper.report.data.distributions import STEPS, Curve, Distributions
from gatekeeper.report.data.page import PageData
from gatekeeper.report.data.sweep import SweepAnswer, SweepData, SweepSetting
from gatekeeper.report.data.timeline import Dot, HostLane, Mark, Timeline, Window
from tests.builders.scenes import MANIFEST, PROMISES
from tests.builders.slo import slo

DRAFTED = {"draft": "org/heavy", "num_draft_tokens": 4}
RATIO = {"center": 1.31, "lo": 1.22, "hi": 1.38, "n": 24}


def check(metric: str, bound: str, threshold: float, outcome: Outcome, *seen: float, unit: str = "1") -> Check:
    center, lo, hi = seen or (None, None, None)
    return Check(metric, bound, threshold, outcome, unit, f"{metric} is so", f"{metric} matters", center, lo, hi, 24)


CHECKS = (
    check("throughput_ratio", "at_least", 1.16, Outcome.PASS, 1.31, 1.22, 1.38),
    check("ttft", "at_most", 0.2, Outcome.UNPROVEN, 0.19, 0.18, 0.21, unit="s"),
    check("json_pass_delta", "at_least", -0.005, Outcome.PASS, 0.0, 0.0, 0.0),
    check("itl_p95", "at_most", 0.045, Outcome.UNPROVEN, unit="s"),
)
HOST = (check("memory_headroom", "at_least", 10e9, Outcome.FAIL, 9e9, 9e9, 9e9, unit="B"),)
CHOICE = {
    "setting": DRAFTED,
    "because": "it is faster",
    "settings": [
        {
            "trial": "default",
            "setting": DRAFTED,
            "changed": None,
            "measure": "throughput_ratio",
            "ratio": 1.3,
            "lo": 1.2,
            "hi": 1.4,
            "n": 8,
            "acceptance_rate": 0.8,
        }
    ],
}
VERDICT = Verdict(
    "made",
    "certification",
    "f" * 64,
    (
        WorkloadVerdict("easy", "unproven", DRAFTED, CHECKS, True, "ttft is so", {"throughput_ratio": RATIO}, CHOICE),
        WorkloadVerdict("hard", "graded_back", {"draft": None}, (), False, "too slow", {}, CHOICE),
    ),
    HOST,
    (Finding("virtual_machine", "host", "other guests share it", "measure elsewhere"),),
    (Transition("2026-01-01T00:10:00.000000Z", "hard", DRAFTED, {"draft": None}, "too slow"),),
)


def curve(first: float, last: float) -> Curve:
    values = tuple(first + (last - first) * step / STEPS for step in range(STEPS + 1))
    return Curve(24, values, (values[50], values[95], values[99]))


SWEEP = SweepData(
    (
        SweepSetting("baseline", "plain", {"draft": None}),
        SweepSetting("default", "candidate", DRAFTED),
    ),
    (
        SweepAnswer(
            "easy", "baseline", "easy-1", 0, "plain", 40, "An answer.", None, (None, None, 20.0, 0.1, 0.06, None)
        ),
        SweepAnswer(
            "easy", "default", "easy-1", 0, "candidate", 40, "An answer.", None, (1.3, 1.2, 26.0, 0.11, 0.2, 0.8)
        ),
        SweepAnswer("hard", "default", "hard-1", 0, "candidate", None, "", "timeout", (None,) * 6),
    ),
    {("easy", "default", "throughput_ratio"): (1.3, 1.2, 1.4, 8)},
)
TIMELINE = Timeline(
    "soak-1",
    "2026-01-01T00:00:00.000000Z",
    600.0,
    {"easy": DRAFTED, "hard": {"draft": None}},
    (
        Dot(10.0, 26.0, "easy", "candidate", "easy-1", 40),
        Dot(20.0, 20.0, "hard", "plain", "hard-1", 40),
        Dot(30.0, None, "easy", "candidate", "easy-2", None, "timeout"),
    ),
    (Window(0.0, 120.0, "easy", 0.8), Window(120.0, 240.0, "easy", 0.7)),
    (
        HostLane("memory_headroom", "B", ((0.0, 12e9), (300.0, 9e9), (600.0, 11e9)), 600),
        HostLane("swap_used", "B", ((0.0, 0.0), (600.0, 0.0)), 600),
        HostLane("memory_pressure_level", "1", ((0.0, 1.0), (300.0, 2.0), (600.0, 1.0)), 600),
        HostLane("thermal_level", "1", (), 600, "absent in 600 of 600 samples"),
    ),
    (Mark(30.0, "subject_died", "the subject died: signal 9"), Mark(600.0, "transition", "hard: too slow")),
    3,
)
SCENE = PageData(
    slo=slo(*PROMISES, why="A promise made by hand."),
    verdict=VERDICT,
    manifest=MANIFEST,
    policy=None,
    unfinished=None,
    sweep=SWEEP,
    distributions=(
        Distributions(
            "easy",
            "soak-1",
            DRAFTED,
            {
                "ttft": {"candidate": curve(0.1, 0.2), "plain": curve(0.09, 0.18)},
                "itl": {"candidate": curve(0.002, 0.1), "plain": curve(0.04, 0.06)},
            },
            (1.31, 1.22, 1.38),
        ),
    ),
    timelines=(TIMELINE,),
    gaps=(Gap("easy: ttft ≤ 200 ms", "both sides", "about 96 canaries instead of 24"),),
)
