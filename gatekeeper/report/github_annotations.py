"""The checks that did not pass, and the findings, as GitHub's workflow commands on lines of the SLO file."""

from collections.abc import Sequence

from gatekeeper.core import toml_file
from gatekeeper.core.slo import Slo
from gatekeeper.core.verdict import Check, Outcome, Verdict, rounded
from gatekeeper.report.phrases import advised, spaced


def render(verdict: Verdict, slo: Slo, text: str, file: str) -> str:
    """Return one command per line, the worst first; a check that did not pass points to its objective's line in *file*.

    *text* is the content of *file*.
    """
    found: list[tuple[int, str]] = []
    if verdict.incomplete:
        found.append((1, command("error", verdict.incomplete, file, 1, f"{verdict.slo}: not proven")))
    for workload in verdict.workloads:
        found += [
            (_rank(check), _check_command(check, workload.name, slo, text, file))
            for check in workload.checks
            if check.outcome is not Outcome.PASS
        ]
        passed = all(check.outcome is Outcome.PASS for check in workload.checks)
        if passed and workload.outcome in {"failed", "unproven"} and not verdict.incomplete:
            title = f"{workload.name}: {workload.outcome}"
            found.append((1, command("error", workload.because, file, _workload_line(slo, text, workload.name), title)))
        if workload.outcome == "graded_back":
            kind = "error" if workload.required else "notice"
            line = _workload_line(slo, text, workload.name)
            title = f"{workload.name}: graded back to plain decoding"
            found.append((0 if workload.required else 3, command(kind, workload.because, file, line, title)))
    found += [
        (_rank(check), _check_command(check, "host", slo, text, file))
        for check in verdict.host_checks
        if check.outcome is not Outcome.PASS
    ]
    for finding in verdict.findings:
        found.append((2, command("warning", advised(finding), file, 1, f"{spaced(finding.kind)}, {finding.about}")))
    return "".join(f"{line}\n" for _, line in sorted(found, key=lambda one: one[0]))


def _rank(check: Check) -> int:
    return 0 if check.outcome is Outcome.FAIL else 1


def _check_command(check: Check, part: str, slo: Slo, text: str, file: str) -> str:
    state = "failed" if check.outcome is Outcome.FAIL else "is not proven"
    message = f"{check.because}\n{check.why}"
    return command("error", message, file, _line(check, part, slo, text), f"{part}: {check.metric} {state}")


def _line(check: Check, part: str, slo: Slo, text: str) -> int:
    wanted = (check.metric, check.bound, rounded(check.threshold))
    for number, one in enumerate(slo.objective):
        mine = (one.metric, one.bound, rounded(one.threshold))
        if mine == wanted and (one.of.host or one.applies_to(part)):
            return toml_file.line_of(text, ("objective", number, "metric"))
    return _workload_line(slo, text, part)  # an implicit objective has no line of its own


def _workload_line(slo: Slo, text: str, workload: str) -> int:
    names = [one.name for one in slo.workload]
    return toml_file.line_of(text, ("workload", names.index(workload), "name")) if workload in names else 1


def command(kind: str, message: str, file: str, line: int, title: str) -> str:
    """Write one workflow command: `%`, CR and LF are escaped everywhere, `:` and `,` as well before the message."""
    properties = (("file", file), ("line", str(line)), ("title", title))
    return f"::{kind} {','.join(f'{key}={_property(value)}' for key, value in properties)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return _replaced(text, (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")))


def _property(text: str) -> str:
    return _replaced(_escaped(text), ((":", "%3A"), (",", "%2C")))


def _replaced(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    for char, code in pairs:
        text = text.replace(char, code)
    return text
