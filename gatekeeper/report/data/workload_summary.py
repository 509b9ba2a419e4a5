"""The figures of one workload that a person looks for first, and how they are written."""

import math
from dataclasses import dataclass

from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Estimate, Outcome
from gatekeeper.core.metrics import PLAIN_SPEED, SPEED_RATIOS
from gatekeeper.core.records import Knobs
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import percent

TWO_DIGITS = 0.1
"""A ratio nearer to 1 than this is written with two decimals."""

LEAST_CHANGE = 0.0005
"""A smaller change of how likely a token is reads as none."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed of a setting against plain decoding."""

    center: float
    lo: float
    hi: float
    source: str
    """soak | abandoned | sweep"""
    setting: Knobs
    because: str = ""
    """Why the setting was given up; empty where it was not."""

    @property
    def where(self) -> str:
        """Describe where it was measured; empty for the soak of the setting in the policy."""
        if self.source == "soak":
            return ""
        return f"{describe_setting(self.setting)}, {'in the sweep' if self.source == 'sweep' else 'given up'}"


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """The figures of one workload that a person looks for first; None where it was not measured."""

    name: str
    outcome: WorkloadOutcome
    required: bool
    setting: Knobs
    because: str
    speed: SpeedUp | None
    plain: float | None
    """Median tokens per second of plain decoding."""
    drafting: float | None
    """The same with the setting of `speed`."""
    acceptance: float | None
    ttft_delta: float | None
    quality: str | None
    passed: int
    checks: int
    failed_drafting: int
    """Objectives that failed with settings given up."""

    @property
    def on(self) -> bool:
        """Return whether the policy turns drafting on for it."""
        return self.outcome is WorkloadOutcome.PROMOTED

    @property
    def off(self) -> bool:
        """Return whether it ended in plain decoding, so that `speed` is of a setting that is not deployed."""
        return self.outcome in {WorkloadOutcome.FAILED, WorkloadOutcome.GRADED_BACK} and not _drafts(self.setting)


def summary_of(workload: WorkloadVerdict) -> WorkloadSummary:
    """Return the summary of a workload."""
    speed, measured = speed_up(workload), shown_figures(workload)
    best, drafts = _best_step(workload), _drafts(workload.setting)
    given_up = shown_figures(best) if best is not None and not drafts else {}
    failed = [check for step in workload.steps for check in step.checks if check.outcome is Outcome.FAIL]
    drafting = {name: figure.center for name, figure in (measured if drafts else given_up).items()}
    plain = measured.get(PLAIN_SPEED) or given_up.get(PLAIN_SPEED)
    return WorkloadSummary(
        name=workload.name,
        outcome=workload.outcome,
        required=workload.required,
        setting=workload.setting,
        because=workload.because,
        speed=speed,
        plain=plain.center if plain is not None else None,
        drafting=drafting.get("decode_throughput"),
        acceptance=drafting.get("acceptance_rate"),
        ttft_delta=drafting.get("ttft_delta"),
        quality=_quality(workload),
        passed=sum(check.outcome is Outcome.PASS for check in workload.checks),
        checks=len(workload.checks),
        failed_drafting=len({_key(check) for check in failed} - {_key(check) for check in workload.checks}),
    )


def _key(check: Check) -> tuple[str, str, float]:
    return check.metric, check.bound, check.threshold


def _drafts(setting: Knobs) -> bool:
    return setting.get("draft") is not None


def speed_up(workload: WorkloadVerdict) -> SpeedUp | None:
    """Return the speed against plain decoding: of the soak, else of the best setting given up, else of the sweep.

    Where an objective is about it, it is the one of the check.
    """
    if _drafts(workload.setting) and (ratio := _ratio(workload)) is not None:
        return SpeedUp(*ratio, "soak", workload.setting)
    step = _best_step(workload)
    if step is not None and _drafts(step.setting) and (ratio := _ratio(step)) is not None:
        return SpeedUp(*ratio, "abandoned", step.setting, step.because)
    results = workload.choice.results if workload.choice is not None else ()
    tried = [(figure, result.trial) for result in results if (figure := result.shown) is not None and figure.center]
    if not tried:
        return None
    best, trial = max(tried, key=lambda pair: pair[0].center)
    return SpeedUp(best.center, best.lo, best.hi, "sweep", dict(trial.setting))


def shown_figures(part: WorkloadVerdict | AbandonedStep) -> dict[str, Estimate]:
    """Return what was measured by metric, and of one with an objective what its check judged: no report shows two."""
    judged = {
        check.metric: Estimate(check.center, check.lo, check.hi, check.n)
        for check in reversed(part.checks)
        if check.against is None and check.center is not None and check.lo is not None and check.hi is not None
    }
    return {**part.measured.figures, **judged}


def _ratio(part: WorkloadVerdict | AbandonedStep) -> tuple[float, float, float] | None:
    """Return the ratio to plain decoding with both ends of its interval."""
    figures = shown_figures(part)
    ratio = next((figures[metric] for metric in SPEED_RATIOS if metric in figures), None)
    return (ratio.center, ratio.lo, ratio.hi) if ratio is not None else None


def best_first(workload: WorkloadVerdict) -> list[AbandonedStep]:
    """Return the settings that were given up, the fastest first; of equally fast ones the later one."""
    speeds = [(ratio[0] if (ratio := _ratio(step)) else 0.0, number) for number, step in enumerate(workload.steps)]
    return [workload.steps[number] for _, number in sorted(speeds, reverse=True)]


def _best_step(workload: WorkloadVerdict) -> AbandonedStep | None:
    """Return the fastest setting that was given up; None where the ratio of none was measured."""
    return next((step for step in best_first(workload) if _ratio(step) is not None), None)


def _quality(workload: WorkloadVerdict) -> str | None:
    """Describe whether the answers are those of plain decoding: by words, else by canaries passed; and how likely."""
    parts = (_agreement(workload), _likelihood(workload))
    return ", ".join(part for part in parts if part is not None) or None


def _likelihood(workload: WorkloadVerdict) -> str | None:
    """Describe how much less likely a token of the draft's answers is to the target; None where that was not read."""
    delta = shown_figures(workload).get("nll_delta")
    if delta is None:
        return None
    change = math.expm1(-delta.center)
    if abs(change) < LEAST_CHANGE:
        return "tokens as likely as without the draft"
    return f"tokens {percent(abs(change), '.2g')} {'less' if change < 0 else 'more'} likely than without the draft"


def _agreement(workload: WorkloadVerdict) -> str | None:
    checks = {check.metric: check for check in workload.checks if check.center is not None and check.n}
    for metric, words in (
        ("token_agreement", "as with plain decoding"),
        ("replay_agreement", "as the target verified"),
    ):
        if (agreed := checks.get(metric)) is not None and agreed.center is not None:
            return f"{round(agreed.center * agreed.n)}/{agreed.n} answers {words}"
    passed = shown_figures(workload).get("canary_pass_rate")
    return f"{percent(passed.center, '.0f')} of canaries passed" if passed is not None else None


def short_ratio(center: float) -> str:
    """Write a ratio of speeds as a headline does: 1.9x, and 1.04x where one digit would hide the gain."""
    return f"{center:.2f}x" if abs(center - 1) < TWO_DIGITS else f"{center:.1f}x"
