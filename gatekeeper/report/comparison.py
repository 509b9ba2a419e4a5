"""Runs side by side, as text and as Markdown for a pull request: one table, the first run is the reference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import aligned, counted, describe_setting
from gatekeeper.core.units import show
from gatekeeper.core.verdict import Estimate
from gatekeeper.report.phrases import interval, spaced

MARKER = "<!-- gatekeeper -->"
"""By this first line a job finds its own comment of an earlier push."""
RUN_HEADS = ("Backend", "Frozen", "Outcome")
SIGNS = {"better": "▲", "worse": "▼"}

Pair = Mapping[str, Any]


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


def text(pairs: Sequence[Pair]) -> str:
    """Return the result in a line each, the runs, what is not comparable, and each workload's figures side by side."""
    lines = [*headlines(pairs), "", *aligned(runs(pairs)), *remarks(pairs)]
    for one in tables(pairs):
        lines += ["", one.name, *(f"  {head}" for head in one.heads)]
        lines += [f"  not compared: {refusal}" for refusal in one.refusals]
        lines += aligned([(f"  {row[0]}", *row[1:]) for row in one.rows]) if one.rows else []
    return "\n".join(lines) + "\n"


def markdown(pairs: Sequence[Pair]) -> str:
    """Return the same for a comment on GitHub; its first line marks it as gatekeeper's."""
    from gatekeeper.report.markdown import plain, table  # noqa: PLC0415 (it needs numpy, which most commands do not)

    first, *others = headlines(pairs)
    blocks = [MARKER, f"### {plain(first)}", *map(plain, others)]
    rows = [(f"**{letter}**", *map(plain, cells), f"`{run}`") for letter, *cells, run in runs(pairs)]
    blocks.append(table(("", *RUN_HEADS, "Run"), rows))
    listed = [f"- {plain(one)}" for one in remarks(pairs)]
    blocks += ["\n".join(listed)] if listed else []
    for one in tables(pairs):
        blocks += [f"#### {plain(one.name)}", *(f"Not compared: {plain(refusal)}" for refusal in one.refusals)]
        cells = [(f"`{metric}`", *map(plain, found)) for metric, *found in one.rows]
        blocks += [table(("", *map(plain, one.heads)), cells)] if cells else []
    return "\n\n".join(blocks) + "\n"


def runs(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Return a row for each run: its letter, the backend, the time, the outcome and the folder."""
    return [(_letter(number), *_head(one), str(one["run"])) for number, one in enumerate(_heads(pairs))]


def tables(pairs: Sequence[Pair]) -> list[WorkloadTable]:
    """Return a table for each workload."""
    return [
        WorkloadTable(
            name,
            tuple(f"{letter}: {what}" for letter, what in _settings(of)),
            tuple(_refusals(of)),
            tuple(_rows(of)),
        )
        for name, of in _workloads(pairs).items()
    ]


def _heads(pairs: Sequence[Pair]) -> list[Mapping[str, Any]]:
    return [pairs[0]["a"], *(one["b"] for one in pairs)]


def _letter(number: int) -> str:
    """Name a run: A, B … Z, then 27 and so on."""
    return ascii_uppercase[number] if number < len(ascii_uppercase) else str(number + 1)


def _head(one: Mapping[str, Any]) -> tuple[str, str, str]:
    outcome = f"{one['slo']}: {spaced(one['outcome'])}, {one['grade']}"
    return one["backend"], f"{one['at'][:16]}Z", outcome


def headlines(pairs: Sequence[Pair]) -> list[str]:
    """Say of each run after the first what is proven worse and better than in the first."""
    lines = []
    for number, pair in enumerate(pairs, 1):
        name = f"{_letter(number)} against A"
        if not pair["comparable"]:
            lines.append(f"{name}: not comparable")
            continue
        found = {
            says: [
                f"{workload['name']} {one['metric']} {change(one)}"
                for workload in pair["workloads"]
                for one in workload["metrics"]
                if one["says"] == says
            ]
            for says in ("worse", "better", "no difference shown")
        }
        parts = [f"{says} (proven): {', '.join(found[says])}" for says in ("worse", "better") if found[says]]
        open_ones = found["no difference shown"]
        parts += [f"no difference shown in {counted(len(open_ones), 'figure')}"] if open_ones or not parts else []
        lines.append(f"{name}: {'; '.join(parts)}")
    return lines


def change(one: Mapping[str, Any]) -> str:
    """Write the change of a metric: -12.1 %; of one relative to plain decoding, in points."""
    if one["change"] is None:
        return ""
    return f"{100 * one['change']:+.1f} {'points' if BY_NAME[one['metric']].relative else '%'}"


def remarks(pairs: Sequence[Pair]) -> list[str]:
    """Return the differences between the runs, each once."""
    lines: list[str] = []
    for number, pair in enumerate(pairs, 1):
        mine = f"{_letter(number)}: " if len(pairs) > 1 else ""
        if pair["not_comparable"]:
            lines.append(f"{mine}not comparable: {', '.join(pair['not_comparable'])}")
        if pair["differences"]:
            lines.append(f"{mine}also different, a possible cause: {', '.join(pair['differences'])}")
        lines += [f"{mine}{note}" for note in pair["notes"]]
    return list(dict.fromkeys(lines))


def _workloads(pairs: Sequence[Pair]) -> dict[str, list[Mapping[str, Any] | None]]:
    """Return, by workload, its part of each comparison."""
    names = dict.fromkeys(one["name"] for pair in pairs for one in pair["workloads"])
    return {
        name: [next((one for one in pair["workloads"] if one["name"] == name), None) for pair in pairs]
        for name in names
    }


def _settings(of: Sequence[Mapping[str, Any] | None]) -> Iterator[tuple[str, str]]:
    first = next((one["a"] for one in of if one), None)
    for number, one in enumerate([first, *(part["b"] if part else None for part in of)]):
        yield _letter(number), f"{spaced(one['outcome'])}, {describe_setting(one['setting'])}" if one else "-"


def _refusals(of: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Return why a workload, or one of its metrics, is not compared."""
    lines = []
    for number, one in enumerate(of, 1):
        mine = f"{_letter(number)}: " if len(of) > 1 else ""
        if one is not None and one["not_comparable"]:
            lines.append(f"{mine}{', '.join(one['not_comparable'])}")
    return lines


def _rows(of: Sequence[Mapping[str, Any] | None]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each metric that one of the runs measured: its name, then a cell for each run."""
    parts = [{one["metric"]: one for one in part["metrics"]} if part else {} for part in of]
    for metric in dict.fromkeys(name for part in parts for name in part):
        mine = [part.get(metric) for part in parts]
        first = next((one["a"] for one in mine if one and one["a"]), None)
        if first or any(one and one["b"] for one in mine):
            yield metric, figure(first, metric), *(_cell(one) for one in mine)


def _cell(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "-"
    says, because = one["says"], one.get("because")
    sign = f"{SIGNS[says]} " if says in SIGNS else ""
    moved = f"{change(one)}, " if one["change"] is not None else ""
    proven = ", proven" if one["proven"] else f" ({because})" if because else ""
    return f"{figure(one['b'], one['metric'])}; {sign}{moved}{says}{proven}"


def figure(seen: Mapping[str, Any] | None, metric: str) -> str:
    """Write a figure with its interval; a counted one is a single value."""
    if not seen:
        return "-"
    known = seen["lo"] == seen["hi"] and not BY_NAME[metric].relative
    return show(seen["center"], BY_NAME[metric].unit) if known else interval(Estimate.of(seen), metric)
