"""The summary of a run on a terminal: explanations first if they are wanted, the decision last and on one screen."""

import shlex
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
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
WORDS = 3
"""Columns on the left that are words."""
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
    for line in _fit_lines(console, decision, foot, height):
        console.print(line, soft_wrap=True)  # a wrapped path cannot be copied


def _fit_lines(console: Console, decision: Decision, end: Sequence[Text], height: int | None) -> list[Text]:
    """Return the lines of the decision; what does not fit into *height* is left out, details first."""
    rows, workloads = decision.rows, decision.workloads
    blocking = [row for row in rows if row.blocking]
    head = _head(console, decision)
    foot = [*_remarks(console, decision), Text(), *end]
    # What an incomplete run needs is always the rest of the run.
    details = (0,) if decision.verdict.incomplete else (2, 1, 0)
    required = _merge_alike(open_requirements(decision), {row.about for row in blocking})
    described = {
        detail: [_requirement(console, names, each, detail) for names, each in required]
        + [_row(console, row, detail) for row in blocking]
        for detail in details
    }
    nonblocking = [line for row in rows if not row.blocking for line in _row(console, row, 0)]

    def lines(most: int, parts: Sequence[Sequence[Text]], rest: Sequence[Text]) -> list[Text]:
        left_out = len(described[details[0]]) - len(parts)
        middle = [*(line for part in parts for line in part), *rest]
        middle += [Text(f"… and {show_count(left_out, 'more objective')} in the report", "dim")] if left_out else []
        return [*head, *_table(workloads, most, console), *([Text(), *middle] if middle else []), *foot]

    def rows_of(line: Text) -> int:
        return max(1, -(-line.cell_len // max(1, console.width)))

    def fits(drawn: Sequence[Text]) -> bool:
        return height is None or sum(map(rows_of, drawn)) <= height

    tries = [(described[details[0]], nonblocking), *((described[detail], ()) for detail in details)]
    for parts, rest in tries:
        if fits(drawn := lines(len(workloads), parts, rest)):
            return drawn
    shortest = described[details[-1]]
    most, objectives = len(workloads), len(shortest)
    while not fits(drawn) and (objectives or most > LEAST_WORKLOADS):
        # Objectives beyond the first two go before workloads, and these before the first objectives.
        if objectives > KEPT_OBJECTIVES or most <= LEAST_WORKLOADS:
            objectives -= 1
        else:
            most -= 1
        drawn = lines(most, shortest[:objectives], ())
    return drawn


def _head(console: Console, decision: Decision) -> list[Text]:
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


def _merge_alike(required: Sequence[Requirement], explained: Collection[str]) -> list[tuple[str, Requirement]]:
    """Return requirements with the workloads that do not meet them for the same reason.

    The objectives below say the reason of a workload that is *explained*.
    """
    names: dict[Requirement, list[str]] = {}
    for each in required:
        reason = "" if each.about in explained else in_words(each.reason)
        names.setdefault(replace(each, about="", reason=reason), []).append(each.about or "run")
    return [(join_names(about), each) for each, about in names.items()]


def _requirement(console: Console, names: str, required: Requirement, detail: int) -> list[Text]:
    """Return a requirement that *names* do not meet, and why; *detail* 1 adds the remedy."""
    mark = (f"{glyph_of(required.outcome.word)} ", COLOURS[required.outcome])
    sentence = ": ".join(filter(None, (names, f"{required.name} {required.rule}", required.shown, required.reason)))
    lines = list(hanging_lines(Text.assemble(mark, printable_error(sentence)), console))
    return [*lines, *(_paragraph(console, f"what to do: {required.remedy}", style="dim", indent=4) if detail else [])]


def _row(console: Console, row: ObjectiveRow, detail: int) -> list[Text]:
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


def _table(workloads: Sequence[WorkloadSummary], most: int, console: Console) -> list[Text]:
    """Return a row for each workload; columns that do not fit are left out, because the report has them too."""
    rows = [_cells(workload) for workload in workloads]
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) if rows else len(name) for name in COLUMNS}
    columns = list(COLUMNS)
    for name in SPARE:
        if sum(widths[column] for column in columns) + GAP * (len(columns) - 1) > console.width:
            columns.remove(name)
    lines = [_line([Text(name, "bold") for name in columns], [widths[name] for name in columns])]
    lines += [_line([row[name] for name in columns], [widths[name] for name in columns]) for row in rows[:most]]
    for line in lines:
        line.rstrip()
        line.truncate(console.width, overflow="ellipsis")
    more = len(workloads) - most
    return [*lines, *([Text(f"… and {show_count(more, 'more workload')} in the report", "dim")] if more > 0 else [])]


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    """Join cells; the first ones are words and stand on the left, the others are numbers and stand on the right."""
    line = Text()
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        pad = " " * (width - cell.cell_len)
        parts = (cell, pad) if number < WORDS else (pad, cell)
        line = Text.assemble(line, *parts, " " * GAP)
    return line


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
