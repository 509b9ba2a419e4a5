"""The view and the summary in a real terminal, tmux: at two sizes, and resized while the run goes on."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.builders.place import ROOT
from tests.report.terminal.test_live import slow_slo

LIMIT_S = 120
pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux"),
    pytest.mark.whole,
    pytest.mark.alone,
]


class Tmux:
    """One window of a tmux server of its own."""

    def __init__(self, folder: Path) -> None:
        self._name, self._folder = f"gatekeeper-{os.getpid()}", folder

    def run(self, *words: str) -> str:
        """Run a tmux command and return its output."""
        command = ("tmux", "-L", self._name, "-f", "/dev/null", *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout

    def start(self, width: int, height: int, *words: str) -> None:
        """Start `gatekeeper` in a window; the shell stays open after it."""
        command = f"cd {shlex.quote(str(self._folder))}; PYTHONPATH={shlex.quote(str(ROOT))} "
        command += f"{shlex.join([sys.executable, '-m', 'gatekeeper', *words])}; exec sleep 600"
        self.run("new-session", "-d", "-x", str(width), "-y", str(height), command)

    def screen(self, *, history: bool = False) -> list[str]:
        """Return the lines of the screen, or with everything that scrolled off it."""
        return self.run("capture-pane", "-p", *(("-S", "-500") if history else ())).splitlines()

    def until(self, seen: Callable[[str], bool]) -> None:
        """Wait for a line."""
        deadline = time.monotonic() + LIMIT_S
        while not any(map(seen, self.screen())):
            assert time.monotonic() < deadline, "\n".join(self.screen(history=True))
            time.sleep(0.1)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    one = Tmux(tmp_path)
    yield one
    one.run("kill-server")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_the_decision_is_whole_on_the_screen(tmux: Tmux, tmp_path: Path, width: int, height: int) -> None:
    """
    After the run the screen shows it from its title to the next step, and nothing of it has scrolled away.
    """
    slow_slo(tmp_path, soak="2 s")

    tmux.start(width, height, "certify", "slo.toml", "--output", "run")
    tmux.until(lambda line: line.startswith("next: "))

    lines = tmux.screen()
    title = next(number for number, line in enumerate(lines) if line.startswith("slow: "))
    heads = [line.split(":")[0] for line in lines[title:] if line.startswith(("report:", "policy:", "next:"))]
    assert "Demo" in lines[title + 1]
    assert ["report", "policy", "next"] == heads
    assert [] == [line for line in lines if "\u2501" in line]


SIZES = ((80, 24), (60, 24), (200, 50), (80, 24))


def test_a_resize_leaves_at_most_the_view_of_that_moment(tmux: Tmux, tmp_path: Path) -> None:
    """
    Tmux is narrower for a moment before it says so: a view drawn then may stay, one for each time that the window
    became narrower. Every later view replaces the one before it.
    """
    slow_slo(tmp_path, soak="60 s")
    tmux.start(200, 50, "certify", "slo.toml", "--output", "run")
    tmux.until(lambda line: line.startswith("easy") and "tok/s" in line)

    for width, height in SIZES:
        tmux.run("resize-window", "-x", str(width), "-y", str(height))
        time.sleep(0.8)

    views = [line for line in tmux.screen(history=True) if "judge" in line and "freeze" in line]
    narrower = sum(after[0] < before[0] for before, after in pairwise(((200, 50), *SIZES)))
    assert 1 <= len(views) <= 1 + narrower, "\n".join(tmux.screen(history=True))
