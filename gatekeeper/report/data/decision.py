"""The decision of a run: what to switch on, which objectives stand against it, and what comes next.

It is computed from the verdict alone, once; the terminal, Markdown, the line and the page show the same figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, outcome_words
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import FindingKind, Outcome, round_figure
from gatekeeper.core.parse import ParseError, toml_table
from gatekeeper.core.reasons import CERTIFICATION
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.text import join_names, show_count
from gatekeeper.core.units import show_number
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.next_step import advise_next
from gatekeeper.report.data.objective_rows import ObjectiveRow, objective_rows, states
from gatekeeper.report.data.workload_summary import WorkloadSummary, short_ratio, summary_of

NO_CERTIFICATE = (
    f"a demo is not a certificate, and --grade certification requires one: soak for {CERTIFICATION} or more"
)
NOT_DECIDED = frozenset({WorkloadOutcome.FAILED, WorkloadOutcome.UNPROVEN})
MOST_NAMED = 3
"""Objectives that a headline names; of more it gives the number."""

MOST_CLAUSES = 2
"""A headline names so many workloads that fail different objectives; with more of them, all fail all."""


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
    def outcome(self) -> str:
        """Return the outcome in words: promoted, and keep plain where nothing speculates."""
        return outcome_words(self.verdict.outcome, [workload.outcome for workload in self.workloads])

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
    advice, command = advise_next(verdict, rows, unfinished, extend)
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
    """Say by how much a workload gains; the medians of both speeds are no two parts of the ratio, and say so."""
    if workload.speed is None:
        return workload.name
    gain = short_ratio(workload.speed.center)
    if workload.plain is not None and workload.drafting is not None:
        gain += f", median {show_number(workload.plain)} → {show_number(workload.drafting)} tok/s"
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
    headline = _decision_in_words(verdict, workloads, rows)
    warning = ""
    if verdict.grade == "demo":  # which is not deployed, whatever it shows
        warning, headline = "Demo: ", headline.removeprefix("Do not deploy: ").removeprefix("Change nothing: ")
    if alone:
        warning = "A soak alone writes no policy: "
    return f"{warning}{headline[:1].lower()}{headline[1:]}" if warning else headline


def _decision_in_words(verdict: Verdict, workloads: Sequence[WorkloadSummary], rows: Sequence[ObjectiveRow]) -> str:
    on = [workload for workload in workloads if workload.on]
    graded_back = [workload for workload in workloads if workload.outcome is WorkloadOutcome.GRADED_BACK]
    gains = f"; {join_names([_gain(workload) for workload in on])} would gain" if on else ""
    if verdict.outcome is WorkloadOutcome.UNPROVEN:
        unproven = [workload.name for workload in workloads if workload.outcome is WorkloadOutcome.UNPROVEN]
        unproven += ["the host"] if any(row.about == "host" for row in rows if row.blocking) else []
        are_not = f"{'are' if len(unproven) > 1 else 'is'} not proven"
        return f"Change nothing: {join_names(unproven) or 'the run'} {are_not}{gains}"
    if verdict.outcome is WorkloadOutcome.PROMOTED:
        return _promotion(on, graded_back, demo=verdict.grade == "demo")
    if verdict.outcome is WorkloadOutcome.GRADED_BACK:
        back = [workload.name for workload in graded_back if workload.required]
        names, failure = _failing(rows, abandoned=True)
        if names == back:
            return f"Do not deploy: {failure} while drafting, and the SLO requires drafting{gains}"
        failure += " while drafting; " if failure else ""
        stays_off = f"drafting must stay off for {join_names(back)}, although the SLO requires it"
        return f"Do not deploy: {failure}{stays_off}{gains}"
    return f"Do not deploy: {_failing(rows, abandoned=False)[1] or 'an objective fails'}"


def _promotion(on: Sequence[WorkloadSummary], off: Sequence[WorkloadSummary], *, demo: bool) -> str:
    """Return what to turn on and keep off; of a demo only what was measured."""
    gains = join_names([_gain(workload) for workload in on])
    slower = join_names([_gain(workload) for workload in off if _is_slower(workload)])
    open_yet = join_names([workload.name for workload in off if not _is_slower(workload)])
    kept_off = [f"drafting is proven slower for {slower}"] if slower else []
    kept_off += [f"no gain was proven for {open_yet}"] if open_yet else []
    if demo:
        return "; ".join([*([f"drafting gained for {gains}"] if gains else []), *kept_off])
    if not gains:
        return f"Keep plain decoding: {'; '.join(kept_off)}"
    kept = join_names([f"{workload.name}{_why_off(workload)}" for workload in off])
    return f"Turn drafting on for {gains}{f'; keep it off for {kept}' if kept else ''}"


def _is_slower(workload: WorkloadSummary) -> bool:
    """Return whether the best draft is proven slower than plain decoding: its whole interval is below 1."""
    return workload.speed is not None and round_figure(workload.speed.hi) < 1


def _why_off(workload: WorkloadSummary) -> str:
    assert workload.speed is not None or not _is_slower(workload)
    if workload.speed is None or not _is_slower(workload):
        return ""
    return f" (proven slower, {short_ratio(workload.speed.center)})"


def _failing(rows: Sequence[ObjectiveRow], *, abandoned: bool) -> tuple[list[str], str]:
    """Return the workloads that fail an objective, and write it: easy and hard fail ttft; empty where none does."""
    failed = [row for row in rows if row.blocking and row.abandoned == abandoned and row.check.outcome is Outcome.FAIL]
    if not failed:
        return [], ""
    metrics: dict[str, list[str]] = {}
    for row in failed:
        metrics.setdefault("the host" if row.about == "host" else row.about, []).append(row.check.metric)
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, failing in metrics.items():
        alike.setdefault(tuple(dict.fromkeys(failing)), []).append(name)
    if len(alike) > MOST_CLAUSES:
        alike = {tuple(dict.fromkeys(row.check.metric for row in failed)): list(metrics)}
    clauses = [
        f"{join_names(names)} {'fail' if len(names) > 1 else 'fails'} {_listed_metrics(failing)}"
        for failing, names in alike.items()
    ]
    return list(metrics), join_names(clauses)


def _reason(verdict: Verdict, rows: Sequence[ObjectiveRow]) -> str | None:
    if verdict.exit_code == ExitCode.OK:
        return None
    if verdict.incomplete and verdict.outcome is WorkloadOutcome.UNPROVEN:
        return verdict.incomplete
    reasons = _objectives_in_words(
        [
            row
            for row in rows
            if row.blocking and (row.check.outcome is Outcome.FAIL or verdict.outcome is WorkloadOutcome.UNPROVEN)
        ],
        verdict,
    )
    blocked = {row.about for row in rows if row.blocking}
    bad = NOT_DECIDED if verdict.outcome is WorkloadOutcome.UNPROVEN else {verdict.outcome}
    by_reason: dict[str, list[str]] = {}
    for workload in verdict.workloads:
        required = workload.outcome is not WorkloadOutcome.GRADED_BACK or workload.required
        if workload.name not in blocked and workload.outcome in bad and required:
            by_reason.setdefault(in_words(workload.because), []).append(workload.name)
    reasons += [f"{join_names(names)}: {_with_figures(reason, names, verdict)}" for reason, names in by_reason.items()]
    return "; ".join(reasons) or None


def _objectives_in_words(rows: Sequence[ObjectiveRow], verdict: Verdict) -> list[str]:
    """Write each objective that was measured, and those that were not by their cause, once for all workloads."""
    parts: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for row in rows:
        measured = row.check.center is not None or row.check.outcome is Outcome.FAIL
        cause = states(row.check) if measured else in_words(row.check.bare_reason)
        names, metrics = parts.setdefault((row.check.metric if measured else "", cause), ([], []))
        names += [row.about] if row.about not in names else []
        metrics += [row.check.metric] if row.check.metric not in metrics else []
    return [
        f"{join_names(names)}: {metric} {cause}"
        if metric
        else f"{join_names(names)}: {_listed_metrics(metrics)} not measured: {_with_figures(cause, names, verdict)}"
        for (metric, cause), (names, metrics) in parts.items()
    ]


def _listed_metrics(metrics: Sequence[str]) -> str:
    if len(metrics) <= MOST_NAMED:
        return join_names(list(metrics))
    return join_names([*metrics[: MOST_NAMED - 1], show_count(len(metrics) - MOST_NAMED + 1, "more objective")])


def _with_figures(reason: str, names: Sequence[str], verdict: Verdict) -> str:
    """Return *reason* with the figures of the finding that it is about: of the first of the workloads that has one."""
    unsteady = (finding for finding in verdict.findings if finding.kind == FindingKind.UNSTABLE_ARM)
    details = (finding.detail for finding in unsteady if finding.about.split(",")[0] in names)
    if FindingKind.UNSTABLE_ARM.means not in reason or (detail := next(details, None)) is None:
        return reason
    return f"{reason} ({detail})"


def describe_progress(happened: Sequence[Event]) -> str:
    """Say how far an interrupted run came."""
    if not happened:
        return "before its first event was recorded"
    last = happened[-1]
    stages = [str(event.detail.get("soak") or event.detail["stage"]) for event in happened if "stage" in event.detail]
    during = f"during {stages[-1]}" if stages else "before its first answer"
    moment = f"{last.at[:19].replace('T', ' ')} UTC"
    return f"{during}, at {moment}" if last.kind == EventKind.INTERRUPTED else f"{during}, after {moment} ({last.kind})"
