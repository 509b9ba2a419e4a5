"""The last lines of a terminal, drawn again and again while lines are printed above them."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

from rich.text import Text

REFRESH_S = 0.25
HIDE, SHOW, CLEAR_LINE, CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[J"
CLEAR_SCREEN = "\x1b[9999;9999H\x1b[1J\x1b[H"
"""Clears from the last cell to the first: tmux keeps a screen that is cleared the usual way in its history."""
WRAP, NO_WRAP = "\x1b[?7h", "\x1b[?7l"
"""A terminal such as tmux is narrower for a moment before it says so: meanwhile a line must not take two rows."""
RECENT = 100
"""Lines above the view that can be printed again after a resize, where so many fit."""
CLEARED = 2
"""Times that the screen is cleared after a resize: a terminal may wrap its lines after it has told the new size."""
CLOSED = (OSError, ValueError)
"""Errors of writing to a terminal that was closed."""


class RedrawnLines:
    """Draws the lines that *draw* returns, four times a second, while its context is open, and then erases them.

    *size* returns the terminal's columns and rows now. After a resize the whole screen is drawn again, because each
    terminal wraps what it shows in its own way. When the terminal is closed the drawing ends, not the run. It is not
    `rich.live.Live`, which leaves rows behind when the terminal is made narrower, and raises when it is closed.
    """

    def __init__(self, file: TextIO, draw: Callable[[], Sequence[str]], size: Callable[[], tuple[int, int]]) -> None:
        self._file, self._draw, self._size = file, draw, size
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._drawn: Sequence[str] = ()
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._seen, self._clear = size(), 0
        self._handler: Any = None
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)

    def print_above(self, lines: Sequence[str]) -> None:
        """Print *lines* above the view, where they stay."""
        with self._lock:
            self._redraw(lines)

    def __enter__(self) -> Self:
        with suppress(ValueError):  # outside the main thread there are no handlers, and sizes are compared
            self._handler = signal.signal(signal.SIGWINCH, self._note_resize)
        with self._lock:
            self._redraw(first=HIDE)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Erase the view and show the cursor again."""
        self._over.set()
        try:
            self._thread.join()
        finally:  # a second Ctrl-C ends the wait
            self._send(self._back(()) + CLEAR_BELOW + SHOW)
            if self._handler is not None:
                signal.signal(signal.SIGWINCH, self._handler)

    def _note_resize(self, _signal: int, _frame: FrameType | None) -> None:
        self._clear = CLEARED

    def _run(self) -> None:
        while not self._over.wait(REFRESH_S):
            with self._lock:
                if not self._over.is_set():
                    self._redraw()

    def _redraw(self, above: Sequence[str] = (), first: str = "") -> None:
        """Write the lines *above* and then the view, in one write so that nothing flickers."""
        lines = self._draw()
        above_text, drawn_text = ("".join(f"{CLEAR_LINE}{line}\n" for line in part) for part in (above, lines))
        back, self._drawn = self._back(lines), lines
        self._recent.extend(above)
        self._send(f"{back}{first}{above_text}{NO_WRAP}{drawn_text}{WRAP}{CLEAR_BELOW}")

    def _back(self, lines: Sequence[str]) -> str:
        """Return the codes for the first line of the view; after a resize for all above it, where *lines* will fit."""
        size = self._size()
        if size != self._seen:
            self._seen, self._clear = size, CLEARED
        if not self._clear:
            return f"\r\x1b[{len(self._drawn)}A" if self._drawn else "\r"
        self._clear -= 1
        columns, room = max(1, size[0]), size[1] - len(lines) - 1
        reprinted: list[str] = []
        for line in reversed(self._recent):
            room -= max(1, -(-Text.from_ansi(line).cell_len // columns))
            if room < 0:
                break
            reprinted.insert(0, f"{line}\n")
        return CLEAR_SCREEN + "".join(reprinted)

    def _send(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except CLOSED:
            self._over.set()
