"""Runs side by side: what is proven better or worse than in the first, and their figures in a table a workload."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import describe_setting, join_names, show_count
from gatekeeper.core.units import show
from gatekeeper.report import phrases
from gatekeeper.report.data.compared_runs import (
    ComparedFigure,
    ComparedRun,
    ComparedWorkload,
    Contrast,
    RunComparison,
    WorkloadResult,
)
from gatekeeper.report.outcome_signs import write_as_words
from gatekeeper.report.shown_document import Code, Content, Document, Listing, Note, Section, Strong, Table

MARKER = "<!-- gatekeeper -->"
"""The first line, by which a job finds its own comment of an earlier push."""
RUN_HEADS = ("Backend", "Frozen", "Outcome")
SIGNS = {"better": "▲", "worse": "▼"}


def compared_document(comparisons: Sequence[RunComparison]) -> Document:
    """Return what is proven better or worse, the runs, what is not comparable, and each workload's figures."""
    first, *more = headlines(comparisons)
    rows: list[tuple[Content, ...]] = [(Strong(letter), *cells, Code(run)) for letter, *cells, run in runs(comparisons)]
    about_runs = Section("Runs", (Table(("Side", *RUN_HEADS, "Run"), rows), Listing(remarks(comparisons))))
    return Document("runs compared", first, (about_runs, *_workloads(comparisons)), more, marker=MARKER)


def runs(comparisons: Sequence[RunComparison]) -> list[tuple[str, ...]]:
    """Return a row for each run: its letter, the backend, the time, the outcome and the folder."""
    first = [workload.a for workload in comparisons[0].workloads]
    heads = [(comparisons[0].a, first)]
    heads += [(comparison.b, [workload.b for workload in comparison.workloads]) for comparison in comparisons]
    return [
        (
            _letter(number),
            run.backend,
            f"{run.at[:16]}Z",
            f"{run.slo}: {_describe_outcome(run, results)}, {run.grade}",
            run.run,
        )
        for number, (run, results) in enumerate(heads)
    ]


def _describe_outcome(run: ComparedRun, results: Sequence[WorkloadResult | None]) -> str:
    outcomes = [result.outcome for result in results if result is not None]
    return outcome_words(run.outcome, outcomes) if outcomes else write_as_words(run.outcome)


def _workloads(comparisons: Sequence[RunComparison]) -> Iterator[Section]:
    """Yield a section for each workload: a column for each run, a row for each metric, and what is not compared."""
    names = dict.fromkeys(workload.name for comparison in comparisons for workload in comparison.workloads)
    by_run = [{workload.name: workload for workload in comparison.workloads} for comparison in comparisons]
    for name in names:
        parts = [workloads.get(name) for workloads in by_run]
        refusals = [Note(f"not compared: {refusal}") for refusal in _refusals(parts)]
        rows: list[tuple[Content, ...]] = [(Code(metric), *cells) for metric, *cells in _rows(parts)]
        heads = tuple(_settings(parts))
        # Without a figure the heads are no table, and still say how each run ended.
        figures = Table(("Metric", *heads), rows) if rows else Listing(heads)
        yield Section(name, (*refusals, figures))


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
        parts += [f"no difference shown in {show_count(len(unchanged), 'figure')}"] if unchanged or not parts else []
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
    return [f"{run} decodes {join_names(names)} plainly, the other drafts" for run, names in plain.items()]


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
        ending = f"{write_as_words(result.outcome)}, {describe_setting(result.setting)}" if result is not None else "-"
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
    return show(measured.center, BY_NAME[metric].unit) if is_counted else phrases.figure(measured.estimate(), metric)
