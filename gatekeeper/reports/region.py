"""The region: the last lines of a terminal, drawn over and over, with the lines that stay above them."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

REFRESH_S = 0.25
HIDE, SHOW, CLEAR_LINE, CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[J"
CLOSED = (OSError, ValueError)
"""What writing to a terminal raises that went away."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it is sent to a terminal, and how many cells it takes there."""

    sent: str
    cells: int


class Region:
    """Draws what *draw* returns, four times a second, from entering to leaving; nothing of it is left behind.

    *width* returns the terminal's columns now. A terminal that goes away ends the drawing, not the run.
    """

    def __init__(self, file: TextIO, draw: Callable[[], Sequence[Line]], width: Callable[[], int]) -> None:
        self._file, self._draw, self._width = file, draw, width
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._drawn: Sequence[Line] = ()
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)

    def say(self, lines: Sequence[Line]) -> None:
        """Let *lines* stay above the region."""
        with self._lock:
            self._put("".join(f"{CLEAR_LINE}{line.sent}\n" for line in lines))

    def __enter__(self) -> Self:
        with self._lock:
            self._put(HIDE)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wipe the region and show the cursor again."""
        self._over.set()
        try:
            self._thread.join()
        finally:  # a second Ctrl-C ends the wait
            self._send(self._back() + CLEAR_BELOW + SHOW)

    def _run(self) -> None:
        while not self._over.wait(REFRESH_S):
            with self._lock:
                if not self._over.is_set():
                    self._put("")

    def _put(self, above: str) -> None:
        """Write *above* and then the region, in one piece so that nothing flickers."""
        lines = self._draw()
        view = "".join(f"{CLEAR_LINE}{line.sent}\n" for line in lines)
        sent = self._back() + above + view + CLEAR_BELOW
        self._drawn = lines
        self._send(sent)

    def _back(self) -> str:
        """Go back to the region's first line; a terminal that was made narrower has wrapped what was drawn."""
        width = max(1, self._width())
        rows = sum(max(1, -(-line.cells // width)) for line in self._drawn)
        return f"\r\x1b[{rows}A" if rows else "\r"

    def _send(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except CLOSED:
            self._over.set()
