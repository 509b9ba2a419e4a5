"""Runs side by side, as text and as Markdown for a pull request: one table, the first run is the reference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import aligned, counted, describe_setting, listed
from gatekeeper.core.units import show
from gatekeeper.report.data.compared_runs import (
    ComparedFigure,
    ComparedRun,
    ComparedWorkload,
    Contrast,
    RunComparison,
    WorkloadResult,
)
from gatekeeper.report.phrases import interval, spaced

MARKER = "<!-- gatekeeper -->"
"""By this first line a job finds its own comment of an earlier push."""
RUN_HEADS = ("Backend", "Frozen", "Outcome")
SIGNS = {"better": "▲", "worse": "▼"}


@dataclass(frozen=True, slots=True)
class WorkloadTable:
    """One workload's figures: a column for each run, a row for each metric."""

    name: str
    heads: tuple[str, ...]
    """Of each run: its letter, the outcome and the setting."""
    refusals: tuple[str, ...]
    """Why the workload, or a part of it, is not compared."""
    rows: tuple[tuple[str, ...], ...]
    """The metric, then a cell for each run."""


def text(comparisons: Sequence[RunComparison]) -> str:
    """Return the result in a line each, the runs, what is not comparable, and each workload's figures side by side."""
    lines = [*headlines(comparisons), "", *aligned(runs(comparisons)), *remarks(comparisons)]
    for workload in tables(comparisons):
        lines += ["", workload.name, *(f"  {head}" for head in workload.heads)]
        lines += [f"  not compared: {refusal}" for refusal in workload.refusals]
        lines += aligned([(f"  {row[0]}", *row[1:]) for row in workload.rows]) if workload.rows else []
    return "\n".join(lines) + "\n"


def markdown(comparisons: Sequence[RunComparison]) -> str:
    """Return the same for a comment on GitHub; its first line marks it as gatekeeper's."""
    from gatekeeper.report.markdown import plain, table  # noqa: PLC0415 (it needs numpy, which most commands do not)

    first, *later_headlines = headlines(comparisons)
    blocks = [MARKER, f"### {plain(first)}", *map(plain, later_headlines)]
    rows = [(f"**{letter}**", *map(plain, cells), f"`{run}`") for letter, *cells, run in runs(comparisons)]
    blocks.append(table(("", *RUN_HEADS, "Run"), rows))
    listed = [f"- {plain(remark)}" for remark in remarks(comparisons)]
    blocks += ["\n".join(listed)] if listed else []
    for workload in tables(comparisons):
        blocks += [f"#### {plain(workload.name)}", *(f"Not compared: {plain(text)}" for text in workload.refusals)]
        cells = [(f"`{metric}`", *map(plain, figures)) for metric, *figures in workload.rows]
        blocks += [table(("", *map(plain, workload.heads)), cells)] if cells else []
    return "\n\n".join(blocks) + "\n"


def runs(comparisons: Sequence[RunComparison]) -> list[tuple[str, ...]]:
    """Return a row for each run: its letter, the backend, the time, the outcome and the folder."""
    first = [workload.a for workload in comparisons[0].workloads]
    heads = [(comparisons[0].a, first)]
    heads += [(comparison.b, [workload.b for workload in comparison.workloads]) for comparison in comparisons]
    return [
        (_letter(number), run.backend, f"{run.at[:16]}Z", f"{run.slo}: {_ended(run, results)}, {run.grade}", run.run)
        for number, (run, results) in enumerate(heads)
    ]


def _ended(run: ComparedRun, results: Sequence[WorkloadResult | None]) -> str:
    outcomes = [result.outcome for result in results if result is not None]
    return outcome_words(run.outcome, outcomes) if outcomes else spaced(run.outcome)


def tables(comparisons: Sequence[RunComparison]) -> list[WorkloadTable]:
    """Return a table for each workload."""
    names = dict.fromkeys(workload.name for comparison in comparisons for workload in comparison.workloads)
    workloads = [{workload.name: workload for workload in comparison.workloads} for comparison in comparisons]
    parts = {name: [by_name.get(name) for by_name in workloads] for name in names}
    return [
        WorkloadTable(name, tuple(_settings(part)), tuple(_refusals(part)), tuple(_rows(part)))
        for name, part in parts.items()
    ]


def _letter(number: int) -> str:
    """Name a run: A, B … Z, then 27 and so on."""
    return ascii_uppercase[number] if number < len(ascii_uppercase) else str(number + 1)


def headlines(comparisons: Sequence[RunComparison]) -> list[str]:
    """Say of each run after the first what is proven worse and better than in the first."""
    lines = []
    for number, comparison in enumerate(comparisons, 1):
        name = f"{_letter(number)} against A"
        if not comparison.comparable:
            lines.append(f"{name}: not comparable")
            continue
        changes: dict[str, list[str]] = {"worse": [], "better": [], "no difference shown": []}
        for workload in comparison.workloads:
            for row in workload.metrics:
                if row.says in changes:
                    changes[row.says].append(f"{workload.name} {row.metric} {change(row)}")
        parts = [f"{says} (proven): {', '.join(changes[says])}" for says in ("worse", "better") if changes[says]]
        unchanged = changes["no difference shown"]
        parts += [f"no difference shown in {counted(len(unchanged), 'figure')}"] if unchanged or not parts else []
        parts += _unlike(comparison.workloads, _letter(number))
        lines.append(f"{name}: {'; '.join(parts)}")
    return lines


def _unlike(workloads: Sequence[ComparedWorkload], letter: str) -> list[str]:
    """Write where one run drafts and the other decodes plainly, so that their speeds are of two kinds."""
    plain: dict[str, list[str]] = {}
    for workload in workloads:
        if workload.a is not None and workload.b is not None:
            drafts = [result.setting.get("draft") is not None for result in (workload.a, workload.b)]
            if drafts[0] != drafts[1]:
                plain.setdefault(letter if drafts[0] else "A", []).append(workload.name)
    return [f"{run} decodes {listed(names)} plainly, the other drafts" for run, names in plain.items()]


def change(row: Contrast) -> str:
    """Write the change of a metric: -12.1 %; of one relative to plain decoding, in points."""
    if row.change is None:
        return ""
    return f"{100 * row.change:+.1f} {'points' if BY_NAME[row.metric].relative else '%'}"


def remarks(comparisons: Sequence[RunComparison]) -> list[str]:
    """Return the differences between the runs, each once."""
    lines: list[str] = []
    for number, comparison in enumerate(comparisons, 1):
        letter = f"{_letter(number)}: " if len(comparisons) > 1 else ""
        if comparison.not_comparable:
            lines.append(f"{letter}not comparable: {', '.join(comparison.not_comparable)}")
        if comparison.differences:
            lines.append(f"{letter}also different, a possible cause: {', '.join(comparison.differences)}")
        lines += [f"{letter}{note}" for note in comparison.notes]
    return list(dict.fromkeys(lines))


def _settings(parts: Sequence[ComparedWorkload | None]) -> Iterator[str]:
    first = next((part.a for part in parts if part is not None), None)
    for number, result in enumerate([first, *(part.b if part is not None else None for part in parts)]):
        ending = f"{spaced(result.outcome)}, {describe_setting(result.setting)}" if result is not None else "-"
        yield f"{_letter(number)}: {ending}"


def _refusals(parts: Sequence[ComparedWorkload | None]) -> list[str]:
    """Return why a workload, or one of its metrics, is not compared."""
    lines = []
    for number, part in enumerate(parts, 1):
        letter = f"{_letter(number)}: " if len(parts) > 1 else ""
        if part is not None and part.not_comparable:
            lines.append(f"{letter}{', '.join(part.not_comparable)}")
    return lines


def _rows(parts: Sequence[ComparedWorkload | None]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each metric that one of the runs measured: its name, then a cell for each run."""
    by_part = [{row.metric: row for row in part.metrics} if part is not None else {} for part in parts]
    for metric in dict.fromkeys(name for rows in by_part for name in rows):
        contrasts = [rows.get(metric) for rows in by_part]
        first = next((row.a for row in contrasts if row is not None and row.a is not None), None)
        if first is not None or any(row is not None and row.b is not None for row in contrasts):
            yield metric, figure(first, metric), *(_cell(row) for row in contrasts)


def _cell(row: Contrast | None) -> str:
    if row is None or row.b is None:
        return row.says if row is not None else "-"
    sign = f"{SIGNS[row.says]} " if row.says in SIGNS else ""
    size = f"{change(row)}, " if row.change is not None else ""
    proven = ", proven" if row.proven else f" ({row.because})" if row.because else ""
    return f"{figure(row.b, row.metric)}; {sign}{size}{row.says}{proven}"


def figure(measured: ComparedFigure | None, metric: str) -> str:
    """Write a figure with its interval; a counted one is a single value."""
    if measured is None:
        return "-"
    is_counted = measured.lo == measured.hi and not BY_NAME[metric].relative
    return show(measured.center, BY_NAME[metric].unit) if is_counted else interval(measured.estimate(), metric)
