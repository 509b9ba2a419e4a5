"""Record a command in a terminal as an animated SVG, which needs no script and no font from elsewhere.

    python tools/record_terminal.py --prompt './run quickstart' docs/quickstart.svg -- ./run quickstart --out RUN

The command runs in a pseudo-terminal; pyte, a terminal emulator, says what the screen shows. Waiting is played faster.
A screen that shows a path or an address of this machine, or a warning of pip, is not recorded: the tool says where.
"""

import argparse
import contextlib
import fcntl
import os
import pty
import re
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from select import select
from xml.sax.saxutils import escape

import pyte

SNAPSHOT_S = 0.2
"""Between two looks at the screen."""
PLAYED_S = 0.35
"""The shortest time a screen is shown; shorter ones are left out."""
LAST_FRAME_S = 8.0
"""How long the last screen stays."""
CELL = (8.4, 17)
"""Width and height of a character at 14 px."""
COLOURS = {
    "black": "#484f58", "red": "#ff7b72", "green": "#3fb950", "brown": "#d29922",
    "yellow": "#d29922", "blue": "#58a6ff", "magenta": "#bc8cff", "cyan": "#39c5cf", "white": "#e6edf3",
    "default": "#c9d1d9", "brightblack": "#8b949e",
}  # fmt: skip
BACKGROUND = "#0d1117"
BOLD = ' class="b"'
QUIET_PIP = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COLOR": "1", "PIP_ROOT_USER_ACTION": "ignore"}
OF_THIS_MACHINE = {
    "a path": r"(?<![\w.~])/(?:[\w.+@-]+/)+[\w.+@-]*|(?<!\S)~/\S+",
    "an address": r"https?://(?!127\.0\.0\.1|localhost|\[::1\])\S+|\b(?!127\.)(?:\d{1,3}\.){3}\d{1,3}\b",
    "the name of this host": rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])",
    "a warning of pip": r"^(?:WARNING|DEPRECATION|ERROR):|^\[notice\]|\bpip\d? install\b.*--upgrade",
}
"""What no recording may show, each with the expression that finds it in a line."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring characters of one style."""

    column: int
    text: str
    colour: str
    bold: bool


Line = tuple[Piece, ...]
Frame = tuple[Line, ...]


def pieces(screen: pyte.Screen, row: int) -> Line:
    """Return a row of *screen*, joined by style; spaces alone are nothing."""
    found: list[Piece] = []
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        if cell.data == " ":
            continue
        colour = COLOURS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else COLOURS["default"])
        last = found[-1] if found else None
        gap = column - last.column - len(last.text) if last else 0
        if last and gap <= 1 and (last.colour, last.bold) == (colour, cell.bold):
            found[-1] = Piece(last.column, last.text + " " * gap + cell.data, colour, cell.bold)
        else:
            found.append(Piece(column, cell.data, colour, cell.bold))
    return tuple(found)


def record(command: list[str], columns: int, rows: int, prompt: str) -> list[tuple[float, Frame]]:
    """Run *command*, after a line that shows *prompt*; return what the screen showed, with the time it appeared."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    stream.feed(f"\x1b[32m$\x1b[0m {prompt}\r\n".encode())
    environment = os.environ | QUIET_PIP | {"TERM": "xterm-256color", "COLUMNS": str(columns)}
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, environment)  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    start, frames, next_look, alive = time.monotonic(), list[tuple[float, Frame]](), 0.0, True
    while alive:
        if select([terminal], [], [], SNAPSHOT_S)[0]:
            with contextlib.suppress(OSError):  # Linux says so when the child has closed its side
                written = os.read(terminal, 65536)
                stream.feed(written)
                alive = bool(written)
                written = b""
            alive = alive and os.waitpid(child, os.WNOHANG) == (0, 0)
        now = time.monotonic() - start
        if now >= next_look or not alive:
            frame = tuple(pieces(screen, row) for row in range(rows))
            if not frames or frames[-1][1] != frame:
                frames.append((now, frame))
            next_look = now + SNAPSHOT_S
    return frames


def revealing(frames: Iterable[Frame]) -> list[str]:
    """Return the lines that must not be recorded, each once, after what it shows of this machine."""
    lines = dict.fromkeys(written(line) for frame in frames for line in frame)
    return [
        f"{kind}: {line.strip()}"
        for line in lines
        for kind, expression in OF_THIS_MACHINE.items()
        if re.search(expression, line.strip())
    ]


def written(line: Line) -> str:
    """Return a line as text."""
    text = ""
    for piece in line:
        text = text.ljust(piece.column) + piece.text
    return text


def thinned(frames: list[tuple[float, Frame]], seconds: float) -> list[tuple[float, Frame]]:
    """Return the frames that are shown for long enough when all are played in *seconds*, and always the last one."""
    least = PLAYED_S * frames[-1][0] / seconds
    kept = frames[:1]
    for at, frame in frames[1:-1]:
        if at - kept[-1][0] >= least:
            kept.append((at, frame))
    return [*kept, frames[-1]]


def drawn(frames: list[tuple[float, Frame]], title: str, columns: int, rows: int, seconds: float) -> str:
    """Return the SVG: the frames side by side, and an animation over them in *seconds*, the last one held."""
    wide, high = CELL
    width, height = columns * wide + 32, rows * high + 56
    played = seconds / max(frames[-1][0], 1e-9)
    total = seconds + LAST_FRAME_S
    left = [-number * width for number in range(len(frames))]
    starts = [100 * at * played / total for at, _ in frames]
    steps = [f"{at:.2f}%{{transform:translateX({x:g}px)}}" for at, x in zip(starts, left, strict=True)]
    still = f".film{{animation:none;transform:translateX({left[-1]:g}px)}}"
    style = (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}.b{font-weight:600}"
        f"@keyframes k{{{''.join(steps)}}}.film{{animation:k {total:.1f}s step-end infinite}}"
        f"@media(prefers-reduced-motion:reduce){{{still}}}"
    )
    lines = dict.fromkeys(line for _, frame in frames for line in frame if line)
    names = {line: f"l{number}" for number, line in enumerate(lines)}
    symbols = "".join(f'<g id="{name}">{_text(line)}</g>' for line, name in names.items())
    shown = "".join(
        f'<g transform="translate({-x:g})">'
        + "".join(f'<use href="#{names[line]}" y="{row * high}"/>' for row, line in enumerate(frame) if line)
        + "</g>"
        for (_, frame), x in zip(frames, left, strict=True)
    )
    label = escape(title)
    buttons = "".join(f'<circle cx="{x}" cy="20" r="6"/>' for x in (20, 40, 60))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}">'
        f"<title>{label}</title><style>{style}</style><defs>{symbols}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/><g fill="#30363d">{buttons}</g>'
        f'<svg x="16" y="40" width="{width:g}" height="{rows * high}"><g class="film">{shown}</g></svg></svg>\n'
    )


def _text(line: Line) -> str:
    return "".join(
        f'<text x="{piece.column * CELL[0]:g}" y="13" textLength="{len(piece.text) * CELL[0]:g}" fill="{piece.colour}"'
        f"{BOLD if piece.bold else ''}>{escape(piece.text)}</text>"
        for piece in line
    )


def main() -> None:
    """Record the command of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", default="80x24", help="columns x rows")
    parser.add_argument("--seconds", type=float, default=24.0, help="how long the animation plays")
    parser.add_argument("--prompt", help="the command that is shown; default: the one that runs")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    columns, rows = map(int, given.size.split("x"))
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    prompt = given.prompt or " ".join(command)
    frames = thinned(record(command, columns, rows, prompt), given.seconds)
    if revealed := revealing(frame for _, frame in frames):
        sys.exit("\n  ".join(("nothing is written: the recording shows what only this machine has", *revealed)))
    given.file.write_text(drawn(frames, prompt, columns, rows, given.seconds), "utf-8")


if __name__ == "__main__":
    main()
