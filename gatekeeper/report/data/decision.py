"""The decision of a run: what to switch on, which objectives stand against it, and what comes next.

It is computed from the verdict alone, once; the terminal, Markdown, the line and the page show the same figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gatekeeper.analysis.verdict.measured import PLAIN_SPEED
from gatekeeper.analysis.verdict.run_verdict import (
    NOTHING_MEASURED,
    AbandonedStep,
    Verdict,
    WorkloadOutcome,
    WorkloadVerdict,
)
from gatekeeper.core.errors import ExitCode
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.parse import ParseError, toml_table
from gatekeeper.core.records import Knobs
from gatekeeper.core.text import counted, describe_setting, listed
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Check, Outcome
from gatekeeper.report.data.objective_rows import ObjectiveRow, objective_rows, states

NO_CERTIFICATE = "a demo is not a certificate, and --grade certification requires one: soak for 600 s or more"
NOT_DECIDED = frozenset({WorkloadOutcome.FAILED, WorkloadOutcome.UNPROVEN})
TENTHS = 10.0
"""Below this many tokens a second, a speed is written with a tenth."""
MOST_NAMED = 3
"""Objectives that a headline names; of more it gives the number."""
TWO_DIGITS = 0.1
"""A ratio nearer to 1 than this is written with two decimals."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed of a setting against plain decoding."""

    center: float
    lo: float
    hi: float
    source: str
    """soak | abandoned | sweep"""
    setting: Knobs

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


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person needs to know of a run, the most important first."""

    verdict: Verdict
    headline: str
    """A decision in one sentence; for a demo it says that it is one."""
    reason: str | None
    """Why the exit code is not 0."""
    workloads: tuple[WorkloadSummary, ...]
    rows: tuple[ObjectiveRow, ...]
    """Failed objectives first, then those that are not proven."""
    valid_until: str | None
    """When the policy expires, as in policy.toml."""
    advice: str
    """What to change before the next command; empty where there is nothing."""
    next: str
    """The next command; `{slo}` and `{run}` stand for the paths."""
    unfinished: str | None = None
    """Where the run was interrupted; None for a finished one."""
    certificate_required: bool = False
    """A demo ends in exit code 3, whatever it shows."""

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of the command: the verdict's, or 3 for a demo where a certificate is required."""
        if self.certificate_required and self.demo and self.verdict.exit_code == ExitCode.OK:
            return ExitCode.UNPROVEN
        return self.verdict.exit_code

    def requiring_certificate(self) -> "Decision":
        """Return the decision where a demo is not enough."""
        strict = replace(self, certificate_required=True)
        return strict if strict.exit_code == self.verdict.exit_code else replace(strict, reason=NO_CERTIFICATE)

    @property
    def demo(self) -> bool:
        """Return whether the soak was too short for a certificate."""
        return self.verdict.grade == "demo"

    def next_step(self, slo: object = "SLO.toml", run: object = "RUN_DIR") -> str:
        """Return the next command, with the paths of the SLO file and the run."""
        return self.next.replace("{slo}", str(slo)).replace("{run}", str(run))


def decide(
    verdict: Verdict,
    *,
    policy: str | None = None,
    unfinished: str | None = None,
    extend: float | None = None,
    alone: bool = False,
) -> Decision:
    """Return the decision of *verdict*; *policy* is the text of policy.toml, *extend* the soak that is missing in s.

    A soak *alone*, without a sweep, decides nothing.
    """
    workloads = tuple(map(_summary, verdict.workloads))
    rows = tuple(objective_rows(verdict))
    advice, command = _next(verdict, unfinished, extend)
    if alone and not unfinished:
        advice, command = "", "gatekeeper certify {slo}"
    return Decision(
        verdict,
        headline=_headline(verdict, workloads, rows, unfinished, alone=alone),
        reason=None if unfinished else _reason(verdict, rows),
        workloads=workloads,
        rows=rows,
        valid_until=_expiry(policy),
        advice=advice,
        next=command,
        unfinished=unfinished,
    )


def _expiry(policy: str | None) -> str | None:
    try:
        return str(toml_table(policy)["expires"]) if policy else None
    except (ParseError, KeyError):  # a stored policy that was edited
        return None


def readable_time(stamp: str) -> str:
    """Write an instant to the minute: 2026-12-22 15:00 UTC."""
    return f"{stamp[:16].replace('T', ' ')} UTC"


def _summary(workload: WorkloadVerdict) -> WorkloadSummary:
    speed, measured = speed_up(workload), workload.measured
    best, drafts = _best_step(workload), _drafts(workload.setting)
    given_up = best.measured if best is not None and not drafts else NOTHING_MEASURED
    failed = [check for step in workload.steps for check in step.checks if check.outcome is Outcome.FAIL]
    drafting = measured if drafts else given_up
    plain = measured.center(PLAIN_SPEED if drafts else "decode_throughput")
    return WorkloadSummary(
        name=workload.name,
        outcome=workload.outcome,
        required=workload.required,
        setting=workload.setting,
        because=workload.because,
        speed=speed,
        plain=plain if plain is not None else given_up.center(PLAIN_SPEED),
        drafting=drafting.center("decode_throughput"),
        acceptance=drafting.center("acceptance_rate"),
        ttft_delta=drafting.center("ttft_delta"),
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

    Where an objective is about it, its interval is the one of the check.
    """
    step = _best_step(workload)
    soaked: list[tuple[str, WorkloadVerdict | AbandonedStep]] = [("soak", workload)]
    soaked += [("abandoned", step)] if step is not None else []
    for source, part in soaked:
        if _drafts(part.setting) and (ratio := _ratio(part)) is not None:
            return SpeedUp(*ratio, source, part.setting)
    results = workload.choice.results if workload.choice is not None else ()
    tried = [(figure, result.trial) for result in results if (figure := result.shown) is not None and figure.center]
    if not tried:
        return None
    best, trial = max(tried, key=lambda pair: pair[0].center)
    return SpeedUp(best.center, best.lo, best.hi, "sweep", dict(trial.setting))


def _ratio(part: WorkloadVerdict | AbandonedStep) -> tuple[float, float, float] | None:
    """Return the ratio to plain decoding with both ends of its interval; that of a check before what was measured."""
    ratios = {metric: (figure.center, figure.lo, figure.hi) for metric, figure in part.measured.figures.items()}
    for check in part.checks:
        if check.against is None and check.center is not None and check.lo is not None and check.hi is not None:
            ratios[check.metric] = check.center, check.lo, check.hi
    return next((ratios[metric] for metric in SPEED_RATIOS if metric in ratios), None)


def _best_step(workload: WorkloadVerdict) -> AbandonedStep | None:
    """Return the fastest setting that was given up; None where the ratio of none was measured."""
    speeds = [(ratio[0], number) for number, step in enumerate(workload.steps) if (ratio := _ratio(step))]
    return workload.steps[max(speeds)[1]] if speeds else None


def _quality(workload: WorkloadVerdict) -> str | None:
    """Describe whether the answers are those of plain decoding: by their words, or else by the canaries passed."""
    checks = {check.metric: check for check in workload.checks if check.center is not None and check.n}
    if (agreed := checks.get("token_agreement")) is not None and agreed.center is not None:
        return f"{round(agreed.center * agreed.n)}/{agreed.n} answers as with plain decoding"
    passed = workload.measured.center("canary_pass_rate")
    return f"{passed:.0%} of canaries passed" if passed is not None else None


def short_ratio(center: float) -> str:
    """Write a ratio of speeds as a headline does: 1.9x, and 1.04x where one digit would hide the gain."""
    return f"{center:.2f}x" if abs(center - 1) < TWO_DIGITS else f"{center:.1f}x"


def rate(speed: float) -> str:
    """Write tokens per second as a person reads them: 302, and 7.3 where a tenth counts."""
    return f"{speed:.0f}" if round(speed, 1) >= TENTHS else f"{speed:.1f}"


def _gain(workload: WorkloadSummary) -> str:
    if workload.speed is None:
        return workload.name
    gain = short_ratio(workload.speed.center)
    if workload.plain is not None and workload.drafting is not None:
        gain += f", {rate(workload.plain)} → {rate(workload.drafting)} tok/s"
    return f"{workload.name} ({gain})"


def _headline(
    verdict: Verdict,
    workloads: Sequence[WorkloadSummary],
    rows: Sequence[ObjectiveRow],
    unfinished: str | None,
    *,
    alone: bool,
) -> str:
    if unfinished:
        return f"No decision yet: the run was interrupted {unfinished}"
    headline = _decision(verdict, workloads, rows)
    warning = ""
    if verdict.grade == "demo":
        warning = "Demo, do not deploy: " if verdict.exit_code == ExitCode.OK else "Demo: "
    if alone:
        warning = "A soak alone writes no policy: "
    return f"{warning}{headline[:1].lower()}{headline[1:]}" if warning else headline


def _decision(verdict: Verdict, workloads: Sequence[WorkloadSummary], rows: Sequence[ObjectiveRow]) -> str:
    on = [workload for workload in workloads if workload.on]
    off = listed([workload.name for workload in workloads if workload.outcome is WorkloadOutcome.GRADED_BACK])
    gains = f"; {listed([_gain(workload) for workload in on])} would gain" if on else ""
    if verdict.outcome is WorkloadOutcome.UNPROVEN:
        unproven = [workload.name for workload in workloads if workload.outcome is WorkloadOutcome.UNPROVEN]
        unproven += ["the host"] if any(row.about == "host" for row in rows if row.blocking) else []
        return (
            f"Change nothing: {listed(unproven) or 'the run'} {'are' if len(unproven) > 1 else 'is'} not proven{gains}"
        )
    if verdict.outcome is WorkloadOutcome.PROMOTED and on:
        rest = f"; keep it off for {off}" if off else ""
        return f"Turn drafting on for {listed([_gain(workload) for workload in on])}{rest}"
    if verdict.outcome is WorkloadOutcome.PROMOTED:
        return f"Keep drafting off for {off}: no gain was proven"
    if verdict.outcome is WorkloadOutcome.GRADED_BACK:
        back = [
            workload.name
            for workload in workloads
            if workload.required and workload.outcome is WorkloadOutcome.GRADED_BACK
        ]
        names, why = _failing(rows, abandoned=True)
        if names == back:
            return f"Do not deploy: {why} while drafting, and the SLO requires drafting{gains}"
        why += " while drafting; " if why else ""
        return f"Do not deploy: {why}drafting must stay off for {listed(back)}, although the SLO requires it{gains}"
    return f"Do not deploy: {_failing(rows, abandoned=False)[1] or 'an objective fails'}"


def _failing(rows: Sequence[ObjectiveRow], *, abandoned: bool) -> tuple[list[str], str]:
    """Return the workloads that fail an objective, and write it: easy and hard fail ttft; empty where none does."""
    failed = [row for row in rows if row.blocking and row.abandoned == abandoned and row.check.outcome is Outcome.FAIL]
    if not failed:
        return [], ""
    names = list(dict.fromkeys("the host" if row.about == "host" else row.about for row in failed))
    metrics = list(dict.fromkeys(row.check.metric for row in failed))
    if len(metrics) > MOST_NAMED:
        metrics = [*metrics[: MOST_NAMED - 1], counted(len(metrics) - MOST_NAMED + 1, "more objective")]
    return names, f"{listed(names)} {'fail' if len(names) > 1 else 'fails'} {listed(metrics)}"


def _reason(verdict: Verdict, rows: Sequence[ObjectiveRow]) -> str | None:
    if verdict.exit_code == ExitCode.OK:
        return None
    if verdict.incomplete:
        return verdict.incomplete
    reasons = [
        f"{row.about}: {row.check.metric} {states(row.check)}"
        for row in rows
        if row.blocking and (row.check.outcome is Outcome.FAIL or verdict.outcome is WorkloadOutcome.UNPROVEN)
    ]
    blocked = {row.about for row in rows if row.blocking}
    bad = {verdict.outcome} if verdict.outcome is WorkloadOutcome.GRADED_BACK else NOT_DECIDED
    reasons += [
        f"{workload.name}: {workload.because}"
        for workload in verdict.workloads
        if workload.name not in blocked
        and workload.outcome in bad
        and (workload.outcome is not WorkloadOutcome.GRADED_BACK or workload.required)
    ]
    return "; ".join(reasons) or None


def _next(verdict: Verdict, unfinished: str | None, extend: float | None) -> tuple[str, str]:
    """Return what to change, and the next command."""
    again = "gatekeeper certify {slo}"
    if unfinished:
        return "", f"{again} --resume --output {{run}}"
    if verdict.outcome is WorkloadOutcome.UNPROVEN:
        if extend is None:
            return "remove the cause, then certify again", again
        advice = f"about {show_seconds(extend)} more soak should decide it"
        return advice, f"{again} --extend {extend / 60:.0f}m --output {{run}}"
    if verdict.outcome is WorkloadOutcome.PROMOTED and verdict.grade == "demo":
        return "for a certificate, soak 600 s or more; for your models, write an SLO", "gatekeeper init"
    if verdict.outcome is WorkloadOutcome.PROMOTED:
        return "", "gatekeeper admit {slo} --run {run}"
    return "change the draft, the setting or the bound, then certify again", again
