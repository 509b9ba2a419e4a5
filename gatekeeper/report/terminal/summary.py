"""The summary of a run on a terminal: the verdict, and the checks that did not pass."""

import sys
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from gatekeeper.core.text import describe_setting, printable
from gatekeeper.core.verdict import Check, Outcome, Verdict, WorkloadVerdict
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import speed_up
from gatekeeper.report.plain_text import explanation
from gatekeeper.report.terminal.live import WIDEST, hanging_lines

COLUMNS = ("workload", "outcome", "against plain", "acceptance", "TTFT delta", "checks")
SPARE = ("TTFT delta", "acceptance", "checks")
"""Columns that a narrow terminal leaves out, in this order."""
UNBROKEN = 100_000
"""The width of a file."""
COLOURS = {
    "promoted": "green",
    "graded_back": "yellow",
    "failed": "red",
    "unproven": "magenta",
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.UNPROVEN: "magenta",
}


def show(verdict: Verdict, *, run: Path, promoted: bool) -> None:
    """Print the verdict on stdout: per workload the setting, the figures and the checks that did not pass."""
    console = Console(highlight=False, markup=False, emoji=False)
    # Lines are wrapped for a terminal only; a pipe gets them whole.
    console.width = min(console.width, WIDEST) if sys.stdout.isatty() else UNBROKEN
    show_on(console, verdict, run=run, promoted=promoted)


def show_on(console: Console, verdict: Verdict, *, run: Path, promoted: bool) -> None:
    """Print the summary on *console*, as wide as that is."""
    style = COLOURS.get(verdict.outcome, "")
    console.print(
        Text.assemble((printable(verdict.slo), "bold"), ": ", (phrases.spaced(verdict.outcome), f"bold {style}"))
        + Text(f"  (exit code {verdict.exit_code}, grade {verdict.grade})")
    )
    if verdict.incomplete:
        _print(console, f"not proven: {verdict.incomplete}", style="magenta")
    console.print(_table(verdict, console))
    for workload in verdict.workloads:
        console.print()
        _print(console, f": {describe_setting(workload.setting)}; {workload.because}", about=workload.name)
        for line in phrases.account(workload.choice):
            _print(console, line, style="dim", indent=2)
        _print_checks(console, workload.checks, incomplete=bool(verdict.incomplete))
    if blended := phrases.routing(verdict):
        console.print()
        _print(console, blended)
    if verdict.host_checks:
        console.print()
        passed = f": {phrases.passed(verdict.host_checks)}/{len(verdict.host_checks)} checks passed"
        _print(console, passed, about="host")
        _print_checks(console, verdict.host_checks, incomplete=bool(verdict.incomplete))
    if verdict.findings:
        console.print()
    for finding in verdict.findings:
        found = f"{phrases.spaced(finding.kind)}, {finding.about}: {phrases.advised(finding)}"
        _print(console, found, style="yellow")
    console.print(f"\nrun: {run}", soft_wrap=True)  # a wrapped path cannot be copied
    console.print(f"policy: {run / 'policy.toml'}" if promoted else "policy: none written", soft_wrap=True)


def _print(console: Console, text: str, *, about: str = "", style: str = "", indent: int = 0) -> None:
    """Print a paragraph whose later lines are indented like, or below, its first."""
    paragraph = Text.assemble((printable(about), "bold"), (printable(text), style))
    for line in hanging_lines(paragraph, console, indent=indent):
        console.print(line, soft_wrap=True)


def _table(verdict: Verdict, console: Console) -> Table:
    """Return a row for each workload; columns that do not fit are left out, because the report has them too."""
    shown = list(COLUMNS)
    while True:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in shown:
            side: JustifyMethod = "right" if name == shown[-1] else "left"  # no spaces at the ends of lines
            table.add_column(name, no_wrap=True, overflow="ellipsis", justify=side)
        for workload in verdict.workloads:
            cells = _cells(workload)
            table.add_row(*(cells[name] for name in shown))
        spare = [name for name in SPARE if name in shown]
        if not spare or console.measure(table, options=console.options.update(width=UNBROKEN)).maximum <= console.width:
            return table
        shown.remove(spare[0])


def _cells(workload: WorkloadVerdict) -> dict[str, Text]:
    def center(metric: str, form: str) -> str:
        return form.format(workload.measured[metric]["center"]) if metric in workload.measured else "-"

    found = (
        Text(printable(workload.name)),
        Text(phrases.spaced(workload.outcome), style=COLOURS[workload.outcome]),
        Text(phrases.against_plain(speed_up(workload))),
        Text(center("acceptance_rate", "{:.2f}")),
        Text(center("ttft_delta", "{:+.1%}")),
        Text(f"{phrases.passed(workload.checks)}/{len(workload.checks)}"),
    )
    return dict(zip(COLUMNS, found, strict=True))


def _print_checks(console: Console, checks: tuple[Check, ...], *, incomplete: bool) -> None:
    """Print the checks that do not pass, each with the reason for its objective."""
    for check in checks:
        if check.outcome is Outcome.PASS:
            continue
        mark = (f"  {phrases.MARKS[check.outcome]:<9}", COLOURS[check.outcome])
        reason = Text.assemble(mark, printable(f"{check.metric}: {check.because}"))
        for number, line in enumerate(reason.wrap(console, max(20, console.width - 11))):
            line.rstrip()
            console.print(Text(" " * 11 * (number > 0)) + line, soft_wrap=True)
        for paragraph in explanation(check, incomplete=incomplete):
            _print(console, paragraph, style="dim", indent=11)
