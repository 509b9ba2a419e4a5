"""What a run says about lines of its SLO file: objectives that did not pass, outcomes and findings, the worst first."""

from dataclasses import dataclass

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome
from gatekeeper.core import toml_file
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import describe_setting
from gatekeeper.core.verdict import Check, Outcome, rounded
from gatekeeper.report.data.decision import Decision
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow
from gatekeeper.report.phrases import advised


@dataclass(frozen=True, slots=True)
class Annotation:
    """A remark on a line of the SLO file."""

    rank: int
    """0: failed; 1: not proven; 2: a finding; 3: for information."""
    level: str
    """error: the exit code follows from it | warning | notice"""
    rule: str
    """What it is about, a word that `gatekeeper explain` knows: a metric, an outcome or a finding."""
    about: str
    """A workload, `host`, the stage of a finding, or the SLO's name."""
    title: str
    message: str
    line: int
    row: ObjectiveRow | None = None
    """The objective that did not pass."""


def annotations(decision: Decision, slo: Slo, text: str) -> list[Annotation]:
    """Return the annotations of a run, the worst first; *text* is the content of its SLO file."""
    remarks: list[Annotation] = []
    verdict = decision.verdict
    if decision.exit_code != verdict.exit_code:
        line = toml_file.line_of(text, ("soak", "duration"))
        title = f"{verdict.slo}: a demo"
        remarks.append(Annotation(0, "error", "demo", verdict.slo, title, decision.reason or "", line))
    if verdict.incomplete:
        title = f"{verdict.slo}: not proven"
        remarks.append(Annotation(1, "error", "unproven", verdict.slo, title, verdict.incomplete, 1))
    rows = decision.rows
    remarks += [_of_row(row, slo, text) for row in rows]
    blocked = {row.about for row in rows if row.blocking}
    for workload in verdict.workloads:
        if workload.name in blocked:
            continue
        name, outcome = workload.name, workload.outcome
        line = _workload_line(slo, text, name)
        if outcome in {WorkloadOutcome.FAILED, WorkloadOutcome.UNPROVEN} and not verdict.incomplete:
            remarks.append(
                Annotation(1, "error", outcome, name, f"{name}: {outcome}", in_words(workload.because), line)
            )
        if outcome is WorkloadOutcome.GRADED_BACK:
            rank, level = (0, "error") if workload.required else (3, "notice")
            title = f"{name}: graded back to plain decoding"
            if workload.required:
                line = _ratio_line(slo, text, name) or line
            remarks.append(Annotation(rank, level, outcome, name, title, in_words(workload.because), line))
    # One soak after another finds the same: GitHub shows ten annotations.
    findings = {(finding.kind, finding.about.rpartition(", ")[2]): finding for finding in reversed(verdict.findings)}
    for finding in reversed(findings.values()):
        title = f"{finding_title(finding.kind)}, {finding.about}"
        remarks.append(Annotation(2, "warning", finding.kind, finding.about, title, advised(finding), 1))
    return sorted(remarks, key=lambda remark: remark.rank)


def _of_row(row: ObjectiveRow, slo: Slo, text: str) -> Annotation:
    check = row.check
    lines = [in_words(check.because)]
    if row.abandoned:
        closest = f"closest of {len(row.tried)} settings: " if len(row.tried) > 1 else ""
        lines = [f"{closest}{describe_setting(row.setting)}: {in_words(check.because)}"]
    if check.outcome is Outcome.FAIL and row.passes_at:
        lines.append(f"passes at {row.passes_at}")
    lines += [check.why, *([row.remedy] if row.blocking else [])]
    state = "failed" if check.outcome is Outcome.FAIL else "is not proven"
    return Annotation(
        rank=_rank(row),
        level="error" if row.blocking else "notice",
        rule=check.metric,
        about=row.about,
        title=f"{row.about}: {check.metric} {state}{' while drafting' if row.abandoned else ''}",
        message="\n".join(lines),
        line=_line(check, row.about, slo, text),
        row=row,
    )


def _rank(row: ObjectiveRow) -> int:
    if not row.blocking:
        return 3
    return 0 if row.check.outcome is Outcome.FAIL else 1


def _line(check: Check, part: str, slo: Slo, text: str) -> int:
    key = (check.metric, check.bound, rounded(check.threshold))
    for number, objective in enumerate(slo.objective):
        if (objective.metric, objective.bound, rounded(objective.threshold)) == key and (
            objective.of.host or objective.applies_to(part)
        ):
            return toml_file.line_of(text, ("objective", number, "metric"))
    return _workload_line(slo, text, part)  # an implicit objective has no line of its own


def _ratio_line(slo: Slo, text: str, workload: str) -> int | None:
    """Return the line of the objective on the speed-up of a workload, which a sweep without a gain misses."""
    for number, objective in enumerate(slo.objective):
        if objective.of.speed_ratio and objective.applies_to(workload):
            return toml_file.line_of(text, ("objective", number, "metric"))
    return None


def _workload_line(slo: Slo, text: str, workload: str) -> int:
    names = [entry.name for entry in slo.workload]
    return toml_file.line_of(text, ("workload", names.index(workload), "name")) if workload in names else 1
