"""What a run says about lines of its SLO file, as GitHub's workflow commands: the worst first."""

from dataclasses import dataclass

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome
from gatekeeper.core import toml_file
from gatekeeper.core.judgement import Check, Outcome, round_figure
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import describe_setting, printable_error
from gatekeeper.report.data.decision import Decision
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow


@dataclass(frozen=True, slots=True)
class Annotation:
    """A remark on a line of the SLO file."""

    rank: int
    """0: failed; 1: not proven; 2: a finding; 3: for information."""
    level: str
    """error: the exit code follows from it | warning | notice"""
    title: str
    message: str
    line: int


def render(decision: Decision, slo: Slo, text: str, file: str) -> str:
    """Return one command per line, the worst first; an objective that did not pass has the line it has in *file*.

    *text* is the content of *file*.
    """
    remarks = annotations(decision, slo, text)
    commands = [command(remark.level, remark.message, file, remark.line, remark.title) for remark in remarks]
    return "".join(f"{line}\n" for line in commands)


def annotations(decision: Decision, slo: Slo, text: str) -> list[Annotation]:
    """Return the annotations of a run, the worst first; *text* is the content of its SLO file."""
    remarks: list[Annotation] = []
    verdict = decision.verdict
    if decision.exit_code != verdict.exit_code:
        line = toml_file.line_of(text, ("soak", "duration"))
        title = f"{verdict.slo}: a demo"
        remarks.append(Annotation(0, "error", title, decision.reason or "", line))
    if verdict.incomplete:
        title = f"{verdict.slo}: not proven"
        remarks.append(Annotation(1, "error", title, verdict.incomplete, 1))
    rows = decision.rows
    remarks += [_of_row(row, slo, text) for row in rows]
    blocked = {row.about for row in rows if row.blocking}
    for workload in verdict.workloads:
        if workload.name in blocked:
            continue
        name, outcome = workload.name, workload.outcome
        line = _workload_line(slo, text, name)
        if outcome in {WorkloadOutcome.FAILED, WorkloadOutcome.UNPROVEN} and not verdict.incomplete:
            remarks.append(Annotation(1, "error", f"{name}: {outcome}", in_words(workload.because), line))
        if outcome is WorkloadOutcome.GRADED_BACK:
            rank, level = (0, "error") if workload.required else (3, "notice")
            title = f"{name}: graded back to plain decoding"
            if workload.required:
                line = _ratio_line(slo, text, name) or line
            remarks.append(Annotation(rank, level, title, in_words(workload.because), line))
    # One soak after another finds the same: GitHub shows ten annotations.
    findings = {(finding.kind, finding.about.rpartition(", ")[2]): finding for finding in reversed(verdict.findings)}
    for finding in reversed(findings.values()):
        title = f"{finding_title(finding.kind)}, {finding.about}"
        remarks.append(Annotation(2, "warning", title, "; ".join(filter(None, (finding.detail, finding.advice))), 1))
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
        title=f"{row.about}: {check.metric} {state}{' while drafting' if row.abandoned else ''}",
        message="\n".join(lines),
        line=_line(check, row.about, slo, text),
    )


def _rank(row: ObjectiveRow) -> int:
    if not row.blocking:
        return 3
    return 0 if row.check.outcome is Outcome.FAIL else 1


def _line(check: Check, part: str, slo: Slo, text: str) -> int:
    key = (check.metric, check.bound, round_figure(check.threshold))
    for number, objective in enumerate(slo.objective):
        if (objective.metric, objective.bound, round_figure(objective.threshold)) == key and (
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


def command(kind: str, message: str, file: str, line: int, title: str) -> str:
    """Write one workflow command: `%` and line ends are escaped everywhere, `:` and `,` as well before the message."""
    properties = (("file", file), ("line", str(line)), ("title", title))
    pairs = (f"{key}={_escape_text(value, (':', '%3A'), (',', '%2C'))}" for key, value in properties)
    return f"::{kind} {','.join(pairs)}::{_escape_text(message)}"


def _escape_text(text: str, *more: tuple[str, str]) -> str:
    text = printable_error("\n".join(text.splitlines()))  # whatever else ends a line
    for char, code in (("%", "%25"), ("\n", "%0A"), *more):
        text = text.replace(char, code)
    return text
