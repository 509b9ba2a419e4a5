"""The decision of a run: what to switch on, which objectives stand against it, and what comes next.

It is computed from the verdict alone, once; the terminal, Markdown, the line and the page show the same figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.core.errors import ExitCode
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.parse import ParseError, toml_table
from gatekeeper.core.text import counted, describe_setting, listed
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import AbandonedStep, Check, Outcome, Verdict, WorkloadVerdict
from gatekeeper.report.data.objective_rows import ObjectiveRow, objective_rows, states

NO_CERTIFICATE = "a demo is not a certificate, and --grade certification requires one: soak for 600 s or more"
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
    setting: Mapping[str, Any]

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
    outcome: str
    required: bool
    setting: Mapping[str, Any]
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
        return self.outcome == "promoted"


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
    return Decision(
        verdict,
        _headline(verdict, workloads, rows, unfinished, alone=alone),
        None if unfinished else _reason(verdict, rows),
        workloads,
        rows,
        _expiry(policy),
        *(("", "gatekeeper certify {slo}") if alone and not unfinished else _next(verdict, unfinished, extend)),
        unfinished,
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
    given_up = best.measured if (best := _best_step(workload)) is not None and not _drafts(workload.setting) else {}
    failed = [check for step in workload.steps for check in step.checks if check.outcome is Outcome.FAIL]
    drafting = measured if _drafts(workload.setting) else given_up
    plain = measured.get("plain_decode_throughput") if _drafts(workload.setting) else measured.get("decode_throughput")
    return WorkloadSummary(
        workload.name,
        workload.outcome,
        workload.required,
        workload.setting,
        workload.because,
        speed,
        _center(plain or given_up.get("plain_decode_throughput")),
        _center(drafting.get("decode_throughput")),
        _center(drafting.get("acceptance_rate")),
        _center(drafting.get("ttft_delta")),
        _quality(workload),
        sum(check.outcome is Outcome.PASS for check in workload.checks),
        len(workload.checks),
        len({_key(check) for check in failed} - {_key(check) for check in workload.checks}),
    )


def _key(check: Check) -> tuple[str, str, float]:
    return check.metric, check.bound, check.threshold


def _drafts(setting: Mapping[str, Any]) -> bool:
    return setting.get("draft") is not None


def _center(figure: Mapping[str, Any] | None) -> float | None:
    return float(figure["center"]) if figure and figure["center"] is not None else None


def speed_up(workload: WorkloadVerdict) -> SpeedUp | None:
    """Return the speed against plain decoding: of the soak, else of the best setting given up, else of the sweep.

    Where an objective is about it, its interval is the one of the check.
    """
    step = _best_step(workload)
    soaked: list[tuple[str, WorkloadVerdict | AbandonedStep]] = [("soak", workload)]
    soaked += [("abandoned", step)] if step is not None else []
    for source, part in soaked:
        if _drafts(part.setting) and (ratio := _ratio(part)) is not None:
            return SpeedUp(ratio["center"], ratio["lo"], ratio["hi"], source, part.setting)
    tried = [swept for swept in workload.choice.get("settings", ()) if swept["ratio"]]
    best = max(tried, key=lambda swept: float(swept["ratio"]), default=None)
    return SpeedUp(best["ratio"], best["lo"], best["hi"], "sweep", best["setting"]) if best else None


def _ratio(part: WorkloadVerdict | AbandonedStep) -> Mapping[str, Any] | None:
    checks = (check for check in part.checks if check.against is None)
    judged = {check.metric: check.document() for check in checks if None not in {check.lo, check.hi}}
    ratios = (judged.get(metric, part.measured.get(metric)) for metric in SPEED_RATIOS)
    return next((ratio for ratio in ratios if ratio and ratio["center"] is not None), None)


def _best_step(workload: WorkloadVerdict) -> AbandonedStep | None:
    """Return the fastest setting that was given up; None where the ratio of none was measured."""
    speeds = [(float(ratio["center"]), number) for number, step in enumerate(workload.steps) if (ratio := _ratio(step))]
    return workload.steps[max(speeds)[1]] if speeds else None


def _quality(workload: WorkloadVerdict) -> str | None:
    """Describe whether the answers are those of plain decoding: by their words, or else by the canaries passed."""
    checks = {check.metric: check for check in workload.checks if check.center is not None and check.n}
    if (agreed := checks.get("token_agreement")) is not None and agreed.center is not None:
        return f"{round(agreed.center * agreed.n)}/{agreed.n} answers as with plain decoding"
    if (rate := workload.measured.get("canary_pass_rate")) and rate["center"] is not None:
        return f"{rate['center']:.0%} of canaries passed"
    return None


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
    off = listed([workload.name for workload in workloads if workload.outcome == "graded_back"])
    gains = f"; {listed([_gain(workload) for workload in on])} would gain" if on else ""
    if verdict.outcome == "unproven":
        unproven = [workload.name for workload in workloads if workload.outcome == "unproven"]
        unproven += ["the host"] if any(row.about == "host" for row in rows if row.blocking) else []
        return (
            f"Change nothing: {listed(unproven) or 'the run'} {'are' if len(unproven) > 1 else 'is'} not proven{gains}"
        )
    if verdict.outcome == "promoted" and on:
        rest = f"; keep it off for {off}" if off else ""
        return f"Turn drafting on for {listed([_gain(workload) for workload in on])}{rest}"
    if verdict.outcome == "promoted":
        return f"Keep drafting off for {off}: no gain was proven"
    if verdict.outcome == "graded_back":
        back = [workload.name for workload in workloads if workload.required and workload.outcome == "graded_back"]
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
        if row.blocking and (row.check.outcome is Outcome.FAIL or verdict.outcome == "unproven")
    ]
    blocked = {row.about for row in rows if row.blocking}
    bad = {"failed", "unproven"} if verdict.outcome != "graded_back" else {"graded_back"}
    reasons += [
        f"{workload.name}: {workload.because}"
        for workload in verdict.workloads
        if workload.name not in blocked
        and workload.outcome in bad
        and (workload.outcome != "graded_back" or workload.required)
    ]
    return "; ".join(reasons) or None


def _next(verdict: Verdict, unfinished: str | None, extend: float | None) -> tuple[str, str]:
    """Return what to change, and the next command."""
    again = "gatekeeper certify {slo}"
    if unfinished:
        return "", f"{again} --resume --output {{run}}"
    if verdict.outcome == "unproven":
        if extend is None:
            return "remove the cause, then certify again", again
        advice = f"about {show_seconds(extend)} more soak should decide it"
        return advice, f"{again} --extend {extend / 60:.0f}m --output {{run}}"
    if verdict.outcome == "promoted" and verdict.grade == "demo":
        return "for a certificate, soak 600 s or more; for your models, write an SLO", "gatekeeper init"
    if verdict.outcome == "promoted":
        return "", "gatekeeper admit {slo} --run {run}"
    return "change the draft, the setting or the bound, then certify again", again
