"""The checks that did not pass, and the findings, as GitHub's workflow commands on lines of the SLO file."""

from collections.abc import Sequence

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome
from gatekeeper.core import toml_file
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import describe_setting, printable_error
from gatekeeper.core.verdict import Check, Outcome, rounded
from gatekeeper.report.data.decision import Decision
from gatekeeper.report.data.objective_rows import ObjectiveRow
from gatekeeper.report.phrases import advised, spaced


def render(decision: Decision, slo: Slo, text: str, file: str) -> str:
    """Return one command per line, the worst first; an objective that did not pass has the line it has in *file*.

    *text* is the content of *file*.
    """
    ranked: list[tuple[int, str]] = []
    verdict = decision.verdict
    if decision.exit_code != verdict.exit_code:
        line = toml_file.line_of(text, ("soak", "duration"))
        ranked.append((0, command("error", decision.reason or "", file, line, f"{verdict.slo}: a demo")))
    if verdict.incomplete:
        ranked.append((1, command("error", verdict.incomplete, file, 1, f"{verdict.slo}: not proven")))
    rows = decision.rows
    ranked += [(_rank(row), _row_command(row, slo, text, file)) for row in rows]
    blocked = {row.about for row in rows if row.blocking}
    for workload in verdict.workloads:
        if workload.name in blocked:
            continue
        line = _workload_line(slo, text, workload.name)
        if workload.outcome in {WorkloadOutcome.FAILED, WorkloadOutcome.UNPROVEN} and not verdict.incomplete:
            title = f"{workload.name}: {workload.outcome}"
            ranked.append((1, command("error", workload.because, file, line, title)))
        if workload.outcome is WorkloadOutcome.GRADED_BACK:
            kind, rank = ("error", 0) if workload.required else ("notice", 3)
            title = f"{workload.name}: graded back to plain decoding"
            if workload.required:
                line = _ratio_line(slo, text, workload.name) or line
            ranked.append((rank, command(kind, workload.because, file, line, title)))
    # One soak after another finds the same: GitHub shows ten annotations.
    findings = {(finding.kind, finding.about.rpartition(", ")[2]): finding for finding in reversed(verdict.findings)}
    for finding in reversed(findings.values()):
        ranked.append((2, command("warning", advised(finding), file, 1, f"{spaced(finding.kind)}, {finding.about}")))
    return "".join(f"{line}\n" for _, line in sorted(ranked, key=lambda pair: pair[0]))


def _rank(row: ObjectiveRow) -> int:
    if not row.blocking:
        return 3
    return 0 if row.check.outcome is Outcome.FAIL else 1


def _row_command(row: ObjectiveRow, slo: Slo, text: str, file: str) -> str:
    check = row.check
    lines = [check.because]
    if row.abandoned:
        closest = f"closest of {len(row.tried)} settings: " if len(row.tried) > 1 else ""
        lines = [f"{closest}{describe_setting(row.setting)}: {check.because}"]
    if check.outcome is Outcome.FAIL and row.passes_at:
        lines.append(f"passes at {row.passes_at}")
    lines += [check.why, *([row.remedy] if row.blocking else [])]
    state = "failed" if check.outcome is Outcome.FAIL else "is not proven"
    title = f"{row.about}: {check.metric} {state}{' while drafting' if row.abandoned else ''}"
    kind = "error" if row.blocking else "notice"
    return command(kind, "\n".join(lines), file, _line(check, row.about, slo, text), title)


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


def command(kind: str, message: str, file: str, line: int, title: str) -> str:
    """Write one workflow command: `%` and line ends are escaped everywhere, `:` and `,` as well before the message."""
    properties = (("file", file), ("line", str(line)), ("title", title))
    return f"::{kind} {','.join(f'{key}={_property(value)}' for key, value in properties)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    lines = "\n".join(text.splitlines())  # whatever else ends a line
    return _replaced(printable_error(lines), (("%", "%25"), ("\n", "%0A")))


def _property(text: str) -> str:
    return _replaced(_escaped(text), ((":", "%3A"), (",", "%2C")))


def _replaced(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    for char, code in pairs:
        text = text.replace(char, code)
    return text
