"""The live table of a fleet: one row a cell, drawn on a terminal, or a line for each change elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gatekeeper.core.records import Detail
from gatekeeper.core.text import counted, printable_error
from gatekeeper.core.units import show_seconds
from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.fleet_cell import CellState

ROWS_MOST = 30
"""Rows of the table, if the terminal is high enough; cells that are queued are left out first."""
OTHER_LINES = 3
"""The head of the table, its last line, and the prompt."""


@dataclass(slots=True)
class _CellRow:
    expected: float
    state: CellState = CellState.QUEUED
    words: str = CellState.QUEUED
    """The state in words."""
    stage: str = ""
    started: float = 0.0
    remaining: float | None = None
    """Time until the run ends, as of *forecast_at*; None is unknown."""
    forecast_at: float = 0.0

    def forecast(self, now: float) -> str:
        if self.state is CellState.DONE:
            return ""
        if self.remaining is None:
            return f"about {_time(self.expected)} in all"
        return f"about {_time(max(0.0, self.remaining - (now - self.forecast_at)))} left"


class FleetView:
    """Shows the cells while they run, on stderr."""

    def __init__(self, *, quiet: bool, console: Console | None = None) -> None:
        self._quiet, self._console = quiet, console or Console(stderr=True)
        self._rows: dict[str, _CellRow] = {}
        drawn = not quiet and self._console.is_terminal
        self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._table) if drawn else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None:
            self._live.transient = kind is None  # the answer, which follows, has the same rows
            self._live.stop()

    def begin(self, cells: Sequence[Cell]) -> None:
        """Take in the cells, and say which hosts are left out."""
        for cell in cells:
            if cell.excluded:
                self.note(f"{cell.name}: not run: {'; '.join(cell.excluded)}")
            else:
                self._rows[cell.name] = _CellRow(cell.seconds)

    def report(self, name: str, change: str, detail: Detail) -> None:
        """Take in a change of a cell."""
        if change == "looking":
            self.note(f"looking at {counted(detail['hosts'], 'host')}")
        elif (row := self._rows.get(name)) is not None:
            if change == "event":
                self._event(name, row, str(detail.get("kind")), detail["detail"])
            else:
                self._change(name, row, CellState(change), detail)

    def _event(self, name: str, row: _CellRow, kind: str, detail: Detail) -> None:
        if kind == "progress":
            row.stage, row.remaining, row.forecast_at = str(detail["stage"]), detail["left"], time.monotonic()
        elif kind == "warning" and detail.get("about") in {"connection", "run"}:
            row.stage = str(detail["because"])
            if self._live is None:
                self.note(f"{name}: {row.stage}")

    def _change(self, name: str, row: _CellRow, state: CellState, detail: Detail) -> None:
        if state is CellState.RUNNING and row.state is not CellState.RETRY:
            row.started = time.monotonic()
        before, row.stage = row.words, str(detail.get("error", "")).partition("\n")[0]
        row.state, row.words = state, state.words(detail)
        if row.words != before and self._live is None:
            self.note(": ".join(filter(None, (name, row.words, row.stage))))

    def note(self, text: str) -> None:
        """Print a line."""
        if self._quiet:
            return
        if self._live is not None:
            self._console.print(printable_error(text), highlight=False, markup=False)
        else:
            sys.stderr.write(f"{printable_error(text)}\n")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=bool(self._rows))
        for head in ("run", "state", "time", "forecast", "stage"):
            table.add_column(head, no_wrap=True, overflow="ellipsis", ratio=1 if head == "stage" else None)
        now, rows = time.monotonic(), dict(self._rows)
        # Those under way first; those that are queued are left out first.
        states = {name: row.state for name, row in rows.items()}
        names = sorted(rows, key=lambda name: (not states[name].is_under_way, states[name] is CellState.QUEUED))
        most = max(1, min(ROWS_MOST, self._console.height - OTHER_LINES))
        for name in names[:most]:
            row = rows[name]
            spent = _time(now - row.started) if row.state.is_under_way else ""
            cells = (name, row.words, spent, row.forecast(now), row.stage)
            table.add_row(*(printable_error(cell) for cell in cells))
        if rows:
            counts = Counter(states.values())
            more = f"; {len(names) - most} not shown" if len(names) > most else ""
            running = sum(count for state, count in counts.items() if state.is_under_way)
            queued, done = counts[CellState.QUEUED], counts[CellState.DONE]
            table.caption = f"{running} running, {queued} queued, {done} done{more}"
            table.caption_justify = "left"
        return table


def _time(seconds: float) -> str:
    return show_seconds(round(seconds))
