"""The live table of a fleet: one row a cell, drawn on a terminal, or a line for each change elsewhere."""

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gatekeeper.core.text import printable
from gatekeeper.core.units import show_seconds

ROWS_MOST = 30
"""Rows of the table; cells that are queued or done are left out first."""


class OfFleet(Protocol):
    """A cell, as the table shows it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def seconds(self) -> float:
        """Its expected duration."""

    @property
    def excluded(self) -> tuple[str, ...]:
        """Why it is not run."""


class FleetView:
    """Shows the cells while they run, on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._console = quiet, Console(stderr=True)
        self._states: dict[str, str] = {}
        self._stages: dict[str, str] = {}
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        drawn = not quiet and self._console.is_terminal
        self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._table) if drawn else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, cells: Sequence[OfFleet]) -> None:
        """Take in the cells, and say which hosts are left out."""
        for one in cells:
            if one.excluded:
                self.note(f"{one.name}: not run: {'; '.join(one.excluded)}")
            else:
                self._states[one.name], self._seconds[one.name] = "queued", one.seconds

    def report(self, name: str, what: str, detail: Mapping[str, Any]) -> None:
        """Take in what happened to a cell."""
        if what == "dashboard":
            self.note(f"Dask's dashboard: {detail['link']}")
            return
        if what == "event":
            if detail.get("kind") == "stage":
                self._stages[name] = str(detail["detail"].get("stage", ""))
            return
        if what == "running":
            self._started[name] = time.monotonic()
        state = self._state(what, detail)
        if self._states.get(name) != state:
            self._states[name] = state
            if self._live is None:
                self.note(f"{name}: {state}")

    def note(self, text: str) -> None:
        """Print a line."""
        if self._quiet:
            return
        if self._live is not None:
            self._console.print(printable(text), highlight=False, markup=False)
        else:
            sys.stderr.write(f"{printable(text)}\n")

    def _state(self, what: str, detail: Mapping[str, Any]) -> str:
        if what == "retry":
            return f"retry {detail['tries']}: {detail['error'].splitlines()[0]}"
        if what == "done":
            why = f": {detail['error'].splitlines()[0]}" if detail["error"] else ""
            return f"{(detail['outcome'] or 'no verdict').replace('_', ' ')} (exit code {detail['exit_code']}){why}"
        return what

    def _table(self) -> Table:
        table = Table("run", "state", "stage", "time", "expected", box=None, pad_edge=False)
        order = {"running": 0, "queued": 2}
        names = sorted(self._states, key=lambda name: order.get(self._states[name], 1))
        for name in names[:ROWS_MOST]:
            running = self._states[name] == "running"
            spent = show_seconds(round(time.monotonic() - self._started[name])) if running else ""
            stage = self._stages.get(name, "") if running else ""
            table.add_row(name, self._states[name], stage, spent, show_seconds(round(self._seconds.get(name, 0))))
        if len(names) > ROWS_MOST:
            table.add_row(f"and {len(names) - ROWS_MOST} more", "", "", "", "")
        return table
