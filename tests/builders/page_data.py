"""Page data for the reports: of whole runs computed from made cases, and one page and verdict written by hand.

What a report makes of the hand-written ones changes only when the report does.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.metrics.prompt_speeds import PromptSpeeds
from gatekeeper.analysis.plan.sweep_plan import Trial
from gatekeeper.analysis.remedies import Gap
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Measured, Transition, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Estimate, Finding, Missing, Outcome
from gatekeeper.core.manifest import File, Manifest, Model
from gatekeeper.core.records import Event, EventKind, HostSample, Reading, setting
from gatekeeper.core.rules import RULES
from gatekeeper.report.data.decision import decide
from gatekeeper.report.data.distributions import STEPS, Curve, Distributions
from gatekeeper.report.data.page_data import PageData, page_data
from gatekeeper.report.data.ratio_over_time import RatioStretch
from gatekeeper.report.data.sweep_chart import SweepAnswer, SweepData, SweepSetting
from gatekeeper.report.data.timeline import Dot, HostLane, Mark, Timeline, Unsampled, Window
from tests.builders.case import LOSING, SOAK_S, WINNING, Made, bare, with_soak
from tests.builders.golden_words import AS_MEANT
from tests.builders.slo import SECOND, objective, slo

GOLDEN = Path(__file__).parents[1] / "report" / "golden"
MIXED = {"easy": WINNING, "hard": LOSING}
OBJECTIVES = (
    objective("throughput_ratio", at_least=1.1),
    objective("ttft", at_most=0.2, why="a person waits for it | <now>"),
    objective("memory_headroom", at_least=10e9),
)
POLICY = (
    'schema = 1\nslo = "made"\nexpires = "2026-01-31T00:00:00Z"\n\n[[route]]\nworkload = "easy"\nspeculation = true\n'
)
MANIFEST = Manifest(
    slo=File(name="made.toml", sha256="a" * 64),
    profile=File(name="steady.toml", sha256="b" * 64),
    canaries={"easy": File(name="easy.jsonl", sha256="c" * 64, count=8)},
    backend="scripted",
    shares_process=True,
    streams=1,
    restart_knobs=(),
    sight=(),
    target=Model(
        name="t",
        quantisation="4-bit g64",
        bytes=4_400_000_000,
        digest="d" * 64,
        files={},
        vocabulary=None,
        tokens_sha256=None,
        template_sha256=None,
    ),
    sampling={},
    versions={"gatekeeper": "0.0.0", "python": "3.11.2"},
    host={"chip": "Apple M4", "memory_bytes": 24 * 2**30, "platform": "macos", "os": "26.1"},
    rules=RULES,
    frozen_at="2026-01-01T00:00:00.000000Z",
)


def case_with_soaks(workloads: Mapping[str, Made], *, soaks: int = 9, **changes: Any) -> Case:
    """Return a case with as many soaks as it needs, or only the first *soaks*."""
    case = bare(workloads, optional=("hard",), objectives=OBJECTIVES, confidence=0.9, **changes)
    for _ in range(soaks):
        needs = conclude(case).needs
        if not needs:
            break
        for soak in needs:
            case = with_soak(case, soak, {name: workloads[name] for name in soak.settings})
            case = replace(case, host_samples=(*case.host_samples, *samples(soak.name)))
    return case


@cache
def whole_case() -> Case:
    """Return a run that ended: `easy` speculates, drafting is off for `hard` (optional)."""
    return case_with_soaks(MIXED)


def samples(phase: str, headroom: float = 14e9) -> tuple[HostSample, ...]:
    """Return ten minutes of samples of a host with free memory and one second of pressure."""
    host_samples = []
    for second in range(SOAK_S + 1):
        values = {
            "memory_headroom": Reading(headroom - 1e6 * second, "B", "made", "ok", 0.0),
            "swap_used": Reading(0.0, "B", "made", "ok", 0.0),
            "memory_pressure_level": Reading(2.0 if second == 300 else 1.0, "1", "made", "ok", 0.0),
            "thermal_level": Reading(None, "1", "made", "denied"),
        }
        at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z"
        host_samples.append(HostSample(at, second * SECOND, values, phase=phase))
    return tuple(host_samples)


def event(second: int, kind: str, **detail: Any) -> Event:
    return Event(f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z", EventKind(kind), detail)


HAPPENED = (
    event(0, "begin", segment=0, slo="made"),
    event(0, "stage", stage="soak", soak="soak-1"),
    event(200, "subject_died", because="signal 9"),
)


def page_of(case: Case, *, finished: bool = True, policy: str | None = POLICY, **changes: Any) -> PageData:
    """Return the page data of a case; *changes* replace fields of its verdict."""
    verdict: Verdict = replace(conclude(case).verdict, **changes)
    happened = HAPPENED if finished else (*HAPPENED, event(210, "interrupted", segment=0))
    return page_data(case, verdict, happened, finished=finished, manifest=MANIFEST, policy=policy)


def like_golden(name: str, text: str) -> None:
    """Compare *text* with a stored file; GATEKEEPER_GOLDEN=write stores it instead, for its diff to be reviewed."""
    path = GOLDEN / name
    if os.environ.get("GATEKEEPER_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, AS_MEANT


DRAFTED = {"draft": "org/heavy", "num_draft_tokens": 4}
RATIO = Estimate(1.31, 1.22, 1.38, 24)
PROMPTS = PromptSpeeds(Estimate(1.42, 1.3, 1.55, 24), ("easy-003", "easy-007", "easy-019"))


def check(metric: str, bound: str, threshold: float, outcome: Outcome, *interval: float, unit: str = "1") -> Check:
    center, lo, hi = interval or (None, None, None)
    return Check(
        metric, bound, threshold, outcome, center, lo, hi, 24,
        unit=unit, because=f"{metric} is so", why=f"{metric} matters",
    )  # fmt: skip


CHECKS = (
    check("throughput_ratio", "at_least", 1.16, Outcome.PASS, 1.31, 1.22, 1.38),
    check("ttft", "at_most", 0.2, Outcome.UNPROVEN, 0.19, 0.18, 0.21, unit="s"),
    check("json_pass_delta", "at_least", -0.005, Outcome.PASS, 0.0, 0.0, 0.0),
    check("itl_p95", "at_most", 0.045, Outcome.UNPROVEN, unit="s"),
)
HOST = (check("memory_headroom", "at_least", 10e9, Outcome.FAIL, 9e9, 9e9, 9e9, unit="B"),)


def choice_of(*ratios: Estimate | Missing) -> Choice:
    """The choice of a sweep that measured these ratios of the default setting."""
    knobs = setting(**DRAFTED)
    results = (SettingResult(Trial("default", "candidate", knobs), ratio, "throughput_ratio", 0.8) for ratio in ratios)
    return Choice(knobs, "it is faster", tuple(results))


CHOICE = choice_of(Estimate(1.3, 1.2, 1.4, 8))
VERDICT = Verdict(
    "made",
    "certification",
    "f" * 64,
    (
        WorkloadVerdict(
            "easy",
            WorkloadOutcome.UNPROVEN,
            DRAFTED,
            checks=CHECKS,
            required=True,
            because="ttft is so",
            measured=Measured({"throughput_ratio": RATIO}, prompts=PROMPTS),
            choice=CHOICE,
        ),
        WorkloadVerdict(
            "hard",
            WorkloadOutcome.GRADED_BACK,
            {"draft": None},
            required=False,
            because="too slow",
            checks=(),
            choice=CHOICE,
        ),
    ),
    HOST,
    (Finding("virtual_machine", "host", "other guests share it", "measure elsewhere"),),
    (Transition("2026-01-01T00:10:00.000000Z", "hard", DRAFTED, {"draft": None}, "too slow"),),
)


def curve(first: float, last: float) -> Curve:
    values = tuple(first + (last - first) * step / STEPS for step in range(STEPS + 1))
    return Curve(values, (values[50], values[95], values[99]))


SWEEP = SweepData(
    (
        SweepSetting("baseline", "plain", {"draft": None}),
        SweepSetting("default", "candidate", DRAFTED),
    ),
    (
        SweepAnswer("easy", "baseline", "easy-1", 0, 40, "An answer.", None, (None, None, 20.0, 0.1, 0.06, None)),
        SweepAnswer("easy", "default", "easy-1", 0, 40, "An answer.", None, (1.3, 1.2, 26.0, 0.11, 0.2, 0.8)),
        SweepAnswer("hard", "default", "hard-1", 0, None, "", "timeout", (None,) * 6),
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
    (RatioStretch(0.0, 300.0, "easy", 1.5, 1.4, 1.6), RatioStretch(300.0, 600.0, "easy", 1.3, 1.2, 1.4)),
    (
        HostLane("memory_headroom", "B", ((0.0, 12e9), (300.0, 9e9), (600.0, 11e9))),
        HostLane("swap_used", "B", ((0.0, 0.0), (600.0, 0.0))),
        HostLane("memory_pressure_level", "1", ((0.0, 1.0), (300.0, 2.0), (600.0, 1.0))),
        HostLane("thermal_level", "1", (), "absent in 600 of 600 samples"),
    ),
    (Mark(30.0, "subject_died", "the system under test died: signal 9"), Mark(600.0, "transition", "hard: too slow")),
    (Unsampled(500.0, 600.0, "closing pass"),),
    3,
)
PAGE = PageData(
    slo=slo(*OBJECTIVES, why="An SLO made by hand."),
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
        ),
    ),
    timelines=(TIMELINE,),
    gaps=(Gap("easy: ttft ≤ 200 ms", "both sides", "about 96 canaries instead of 24"),),
    decision=decide(VERDICT),
)
