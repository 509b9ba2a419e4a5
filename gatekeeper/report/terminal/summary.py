"""The summary of a run on a terminal: explanations first if they are wanted, the decision last and on one screen."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.system.own_command import as_typed
from gatekeeper.core.system.run_directory import RUNS
from gatekeeper.core.text import join_names, printable_error, show_count
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import Decision, readable_time
from gatekeeper.report.data.glossary import finding_title, in_words
from gatekeeper.report.data.objective_rows import ObjectiveRow
from gatekeeper.report.data.requirements import Requirement, open_requirements
from gatekeeper.report.data.workload_summary import WorkloadSummary
from gatekeeper.report.outcome_signs import glyph_of

COLUMNS = ("workload", "drafting", "against plain", "plain", "with draft", "acceptance", "checks")
SPARE = ("acceptance", "checks", "with draft", "plain")
"""Columns that a narrow terminal leaves out, in this order."""
WORDS = COLUMNS[:3]
"""Columns that stand on the left."""
GAP = 2
"""Spaces between two columns."""
LATEST = "latest"
"""What the command line calls the newest run in the default folder."""
UNBROKEN = 100_000
"""The width of a file."""
LEAST_WORKLOADS, KEPT_OBJECTIVES = 3, 2
"""Rows of the table that stay, however low the terminal is, and objectives that go last."""
COLOURS = {
    "promoted": "green",
    "graded_back": "yellow",
    "failed": "red",
    "unproven": "magenta",
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.UNPROVEN: "magenta",
}
SWITCH = {"promoted": "on", "graded_back": "off"}
"""What the policy does with a workload, by its outcome."""
HANG = 4
"""Columns by which the later lines of a paragraph are indented."""
WIDEST = 120
"""Longer lines are hard to read."""


def show(
    decision: Decision, *, run: Path, slo: object, details: str = "", newest: bool = True, stored: bool = True
) -> None:
    """Print the decision on stdout, after the *details* behind it; on a terminal it fits the screen.

    *newest*: no run is newer, so that commands may leave out its name. *stored*: the decision is that of the run's
    report and policy, not one by other objectives.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    terminal = sys.stdout.isatty()
    # Lines are wrapped for a terminal only; a pipe gets them whole.
    console.width = min(console.width, WIDEST) if terminal else UNBROKEN
    height = shutil.get_terminal_size().lines - 1 if terminal else None  # the prompt has the last line
    show_on(console, decision, run=run, slo=slo, height=height, details=details, newest=newest, stored=stored)


def show_on(
    console: Console,
    decision: Decision,
    *,
    run: Path,
    slo: object,
    height: int | None = None,
    details: str = "",
    newest: bool = True,
    stored: bool = True,
) -> None:
    """Print the summary on *console*, as wide as that is, and at most *height* rows high without the *details*."""
    for detail in details.splitlines():
        indent = len(detail) - len(detail.lstrip())
        for line in hanging_lines(Text(detail.strip()), console, indent=indent):
            console.print(line, soft_wrap=True)
    if details:
        console.print()
    if stored:
        foot = list(_foot(decision, run, slo, console, short=newest and run.parent == RUNS))
    else:
        foot = list(_write_judged_foot(run, slo, console))
    for fitted in _fit_lines(console, decision, foot, height):
        console.print(fitted, soft_wrap=True)  # a wrapped path cannot be copied


def _fit_lines(console: Console, decision: Decision, foot: Sequence[Text], height: int | None) -> list[Text | Table]:
    """Return what fits into *height*: details are left out first, then objectives beyond two, then workloads."""
    required = _merge_alike(decision)
    objectives, workloads = len(required) + sum(row.blocking for row in decision.rows), len(decision.workloads)
    kept, least = min(objectives, KEPT_OBJECTIVES), min(workloads, LEAST_WORKLOADS)
    sizes = [(detail, objectives, workloads) for detail in (3, 2, 1, 0)]
    sizes += [(0, most, workloads) for most in range(objectives - 1, kept - 1, -1)]
    sizes += [(0, kept, most) for most in range(workloads - 1, least - 1, -1)]
    sizes += [(0, most, least) for most in range(kept - 1, -1, -1)]
    lines: list[Text | Table] = []
    for size in sizes:
        lines = [*_list_lines(console, decision, required, *size), *foot]
        if height is None or sum(_count_rows(line, console) for line in lines) <= height:
            break
    return lines


def _count_rows(line: Text | Table, console: Console) -> int:
    if isinstance(line, Table):
        return len(console.render_lines(line, pad=False))
    return max(1, -(-line.cell_len // max(1, console.width)))


def _list_lines(
    console: Console,
    decision: Decision,
    required: Sequence[tuple[str, Requirement]],
    detail: int,
    objectives: int,
    workloads: int,
) -> list[Text | Table]:
    """Return the decision with so many *objectives* and *workloads*; *detail* 3 adds those that do not block, too."""
    blocking = [row for row in decision.rows if row.blocking]
    # What an incomplete run needs is always the rest of the run.
    of_row = 0 if decision.verdict.incomplete else detail
    parts = [_describe_requirement(console, names, each, of_row) for names, each in required]
    parts += [_describe_objective(console, row, of_row) for row in blocking]
    middle = [line for part in parts[:objectives] for line in part]
    if detail == 3:
        middle += [line for row in decision.rows if not row.blocking for line in _describe_objective(console, row, 0)]
    middle += _count_left_out(len(parts) - objectives, "objective")
    lines = [*_head(console, decision), _table(decision.workloads[:workloads], console)]
    lines += _count_left_out(len(decision.workloads) - workloads, "workload")
    return [*lines, *([Text(), *middle] if middle else []), *_remarks(console, decision), Text()]


def _count_left_out(count: int, noun: str) -> list[Text]:
    return [Text(f"… and {show_count(count, f'more {noun}')} in the report", "dim")] if count > 0 else []


def _head(console: Console, decision: Decision) -> list[Text | Table]:
    """Return the outcome and the headline; a row below says what the exit code follows from."""
    verdict = decision.verdict
    demo = " (demo)" if decision.demo else ""
    outcome_style = "yellow" if demo and verdict.exit_code == ExitCode.OK else COLOURS.get(verdict.outcome, "")
    title = Text.assemble(
        (printable_error(verdict.slo), "bold"),
        ": ",
        (decision.outcome + demo, f"bold {outcome_style}"),
        (f"  exit code {decision.exit_code}", "dim"),
    )
    return [title, *_paragraph(console, f"{decision.headline}.", style="bold", hang=0), Text()]


def _merge_alike(decision: Decision) -> list[tuple[str, Requirement]]:
    """Return the open requirements, each with the workloads that do not meet it for the same reason.

    Where an objective of a workload is open, its row says the reason.
    """
    explained = {row.about for row in decision.rows if row.blocking}
    names: dict[Requirement, list[str]] = {}
    for each in open_requirements(decision):
        reason = "" if each.about in explained else in_words(each.reason)
        names.setdefault(replace(each, about="", reason=reason), []).append(each.about or "run")
    return [(join_names(about), each) for each, about in names.items()]


def _describe_requirement(console: Console, names: str, required: Requirement, detail: int) -> list[Text]:
    """Return a requirement that *names* do not meet, and why; *detail* 1 adds the remedy."""
    mark = (f"{glyph_of(required.outcome.word)} ", COLOURS[required.outcome])
    sentence = ": ".join(filter(None, (names, f"{required.name} {required.rule}", required.shown, required.reason)))
    lines = list(hanging_lines(Text.assemble(mark, printable_error(sentence)), console))
    return [*lines, *(_paragraph(console, f"what to do: {required.remedy}", style="dim", indent=4) if detail else [])]


def _describe_objective(console: Console, row: ObjectiveRow, detail: int) -> list[Text]:
    """Return an objective that failed or is not proven: its figures; *detail* 1 adds the remedy, 2 the reason."""
    check = row.check
    mark = (f"{glyph_of(check.outcome.word)} ", COLOURS[check.outcome] if row.blocking else "dim")
    sentence = f"{row.about}: {check.metric} {phrases.bound(check)}: {phrases.row_measured(row)}"
    style = "" if row.blocking else "dim"
    lines = list(hanging_lines(Text.assemble(mark, (printable_error(sentence), style)), console))
    if detail and row.blocking:
        bound = f"passes at {row.passes_at}; " if row.passes_at and check.outcome is Outcome.FAIL else ""
        lines += _paragraph(console, f"{bound}what to do: {row.remedy}", style="dim", indent=4)
    if detail > 1 and row.blocking and check.why:
        lines += _paragraph(console, f"why it matters: {check.why}", style="dim", indent=4)
    return lines


def _remarks(console: Console, decision: Decision) -> list[Text]:
    """Return the power of each test that passed, prompts that lose, and one line for all findings."""
    lines = [
        line
        for workload in decision.verdict.workloads
        for check in workload.checks
        if check.metric in phrases.TESTS and check.outcome is Outcome.PASS
        for line in _paragraph(console, f"{workload.name}, {check.metric}: {check.because}", style="dim")
    ]
    for workload in decision.verdict.workloads:
        if slower := phrases.slower_prompts(workload.measured):
            lines += _paragraph(console, f"{workload.name}: {slower}", style="yellow")
    kinds = list(dict.fromkeys(finding_title(finding.kind) for finding in phrases.merge_findings(decision.verdict)))
    if kinds:
        lines += _paragraph(console, f"findings (in the report, or with -v): {', '.join(kinds)}", style="yellow")
    return [Text(), *lines] if lines else []


def _foot(decision: Decision, run: Path, slo: object, console: Console, *, short: bool) -> Iterator[Text]:
    """Yield where the results are, what to change, and the next command; *short*: the newest run needs no name."""
    report, policy = run / "report.html", run / "policy.toml"
    opens = as_typed("gatekeeper open" if short else shlex.join(["gatekeeper", "open", str(run)]))
    place = f"report: {report}" if report.is_file() else f"run: {run}"
    opening = f"({opens})" if report.is_file() else ""
    if opening and len(place) + 2 + len(opening) <= console.width:
        place, opening = f"{place}  {opening}", ""
    yield Text(printable_error(place))
    if opening:
        yield Text(printable_error(f"    {opening}"))
    if decision.valid_until is not None and decision.verdict.exit_code == ExitCode.UNPROVEN:
        yield Text(printable_error(f"policy: {policy} is of a run that is not proven: do not deploy it"))
    elif decision.valid_until is not None:
        until = "" if decision.demo else f", valid until {readable_time(decision.valid_until)}"
        yield Text(printable_error(f"policy: {policy}{until}"))
    else:
        yield Text("policy: none written, nothing changes")
    if decision.advice:
        yield from _paragraph(console, f"advice: {decision.advice}")
    # The newest of the default folder has a short name: a command that fits a line is easier to read.
    run_name = LATEST if short else shlex.quote(str(run))
    yield Text(printable_error(f"next: {as_typed(decision.next_step(shlex.quote(str(slo)), run_name))}"))


def _write_judged_foot(run: Path, slo: object, console: Console) -> Iterator[Text]:
    """Yield what a decision by other objectives changed, which is nothing, and the command that stores such a one."""
    yield from _paragraph(console, f"judged by {slo}; the report and the policy in {run} stay as they were", hang=0)
    yield Text(printable_error(f"next: {as_typed(shlex.join(['gatekeeper', 'certify', str(slo)]))}"))


def _paragraph(console: Console, text: str, *, style: str = "", indent: int = 0, hang: int | None = None) -> list[Text]:
    """Return the lines of a paragraph, the later ones indented like, or further than, the first."""
    paragraph = Text.assemble((printable_error(in_words(text)), style))
    if hang is None:
        return list(hanging_lines(paragraph, console, indent=indent))
    lines = list(paragraph.wrap(console, max(20, console.width)))
    for line in lines:
        line.rstrip()
    return lines


def _table(workloads: Sequence[WorkloadSummary], console: Console) -> Table:
    """Return a row for each workload; columns that do not fit are left out, because the report has them too."""
    rows = [_cells(workload) for workload in workloads]
    for spare in range(len(SPARE) + 1):
        table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        columns = [name for name in COLUMNS if name not in SPARE[:spare]]
        for name in columns:
            justify: JustifyMethod = "left" if name in WORDS else "right"
            # The last that stays is broken where it must be: the names before it say which workload it is.
            table.add_column(justify=justify, no_wrap=name != WORDS[-1], overflow="ellipsis")
        table.add_row(*columns, style="bold")
        for row in rows:
            table.add_row(*(row[name] for name in columns))
        if console.measure(table, options=console.options.update(width=UNBROKEN)).maximum <= console.width:
            break
    return table


def _cells(workload: WorkloadSummary) -> dict[str, Text]:
    glyph, word = glyph_of(workload.outcome), SWITCH.get(workload.outcome, workload.outcome)
    cells = (
        Text(printable_error(workload.name)),
        Text(f"{glyph} {word}", style=COLOURS[workload.outcome]),
        Text(phrases.against_plain(workload.speed)),
        Text(phrases.tokens_per_second(workload.plain)),
        Text(phrases.tokens_per_second(workload.drafting)),
        Text("-" if workload.acceptance is None else f"{workload.acceptance:.2f}"),
        Text(phrases.checks_passed(workload) or "-"),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def hanging_lines(text: Text, console: Console, *, indent: int = 0) -> Iterator[Text]:
    """Break a paragraph into lines, the later ones indented further than the first."""
    for number, line in enumerate(text.wrap(console, max(20, console.width - indent - HANG))):
        line.rstrip()
        yield Text(" " * (indent + HANG * (number > 0))) + line
