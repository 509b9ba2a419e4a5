"""The decision of a run: what to switch on, which objectives stand against it, and what comes next.

It is computed from the verdict alone, once; the terminal, Markdown, the line and the page show the same figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.errors import ExitCode
from gatekeeper.core.parse import ParseError, toml_table
from gatekeeper.core.text import counted, listed
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Outcome
from gatekeeper.report.data.objective_rows import ObjectiveRow, objective_rows, states
from gatekeeper.report.data.workload_summary import WorkloadSummary, rate, short_ratio, summary_of

NO_CERTIFICATE = "a demo is not a certificate, and --grade certification requires one: soak for 600 s or more"
NOT_DECIDED = frozenset({WorkloadOutcome.FAILED, WorkloadOutcome.UNPROVEN})
MOST_NAMED = 3
"""Objectives that a headline names; of more it gives the number."""


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
    workloads = tuple(map(summary_of, verdict.workloads))
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
    graded_back = [workload for workload in workloads if workload.outcome is WorkloadOutcome.GRADED_BACK]
    off = listed([workload.name for workload in graded_back])
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
        back = [workload.name for workload in graded_back if workload.required]
        names, failure = _failing(rows, abandoned=True)
        if names == back:
            return f"Do not deploy: {failure} while drafting, and the SLO requires drafting{gains}"
        failure += " while drafting; " if failure else ""
        return f"Do not deploy: {failure}drafting must stay off for {listed(back)}, although the SLO requires it{gains}"
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
        alone = _proven_alone(verdict)
        if extend is None:
            return f"remove the cause, then certify again{alone}", again
        advice = f"about {show_seconds(extend)} more soak should decide it{alone}"
        return advice, f"{again} --extend {extend / 60:.0f}m --output {{run}}"
    if verdict.outcome is WorkloadOutcome.PROMOTED and verdict.grade == "demo":
        return "for a certificate, soak 600 s or more; for your models, write an SLO", "gatekeeper init"
    if verdict.outcome is WorkloadOutcome.PROMOTED:
        return "", "gatekeeper admit {slo} --run {run}"
    return "change the draft, the setting or the bound, then certify again", again


def _proven_alone(verdict: Verdict) -> str:
    """Write how the workloads that are proven can be deployed although others, which must draft, are open."""
    proven = [workload.name for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    is_open = (workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.UNPROVEN)
    waiting = [workload.name for workload in is_open if workload.required]
    if not proven or not waiting:
        return ""
    optional = f'with speculation = "optional" for {listed(waiting)}'
    return f"; {listed(proven)} {'is' if len(proven) == 1 else 'are'} proven, and deployed {optional}"
