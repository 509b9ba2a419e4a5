"""The view and the summary in a real terminal, tmux: at two sizes, and resized while the run goes on."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.builders.project_folder import ROOT
from tests.builders.waiting import until
from tests.report.terminal.test_progress_lines import slow_slo

LIMIT_S = 120
pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux"),
    pytest.mark.whole,
    pytest.mark.alone,
]


class Tmux:
    """One window of a tmux server of its own."""

    def __init__(self, folder: Path) -> None:
        self._name, self._folder = f"gatekeeper-{os.getpid()}-{folder.name}", folder

    def run(self, *words: str) -> str:
        """Run a tmux command and return its output."""
        command = ("tmux", "-L", self._name, "-f", "/dev/null", *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout

    def start(self, width: int, height: int, *words: str) -> None:
        """Start `gatekeeper` in a window; the shell stays open after it."""
        # pytest imports readline, which exports the size of its own terminal.
        command = f"cd {shlex.quote(str(self._folder))}; unset COLUMNS LINES; PYTHONPATH={shlex.quote(str(ROOT))} "
        command += f"{shlex.join([sys.executable, '-m', 'gatekeeper', *words])}; exec sleep 600"
        self.run("new-session", "-d", "-x", str(width), "-y", str(height), command)

    def screen(self, *, history: bool = False) -> list[str]:
        """Return the lines of the screen, or with everything that scrolled off it."""
        return self.run("capture-pane", "-p", *(("-S", "-500") if history else ())).splitlines()

    def until(self, matches: Callable[[str], bool]) -> None:
        """Wait for a line."""
        until(lambda: any(map(matches, self.screen())), lambda: "\n".join(self.screen(history=True)))


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    server = Tmux(tmp_path)
    yield server
    server.run("kill-server")


@pytest.mark.parametrize(("width", "height"), [(80, 24), pytest.param(200, 50, marks=pytest.mark.nightly)])
def test_the_decision_is_whole_on_the_screen(tmux: Tmux, tmp_path: Path, width: int, height: int) -> None:
    """After the run the screen shows it from its title to the next step, and nothing of it has scrolled away."""
    slow_slo(tmp_path, soak="2 s")

    tmux.start(width, height, "certify", "slo.toml", "--output", "run")
    tmux.until(lambda line: line.startswith("next: "))

    lines = tmux.screen()
    title = next(number for number, line in enumerate(lines) if line.startswith("slow: "))
    heads = [line.split(":")[0] for line in lines[title:] if line.startswith(("report:", "policy:", "next:"))]
    assert "Demo" in lines[title + 1]
    assert ["report", "policy", "next"] == heads
    assert [] == [line for line in lines if "\u2501" in line]


def heads_table(width: int, line: str) -> bool:
    """Return whether *line* is the head of a table that fits the width."""
    return line.startswith("workload") and len(line) < width


SIZES = ((60, 24), (120, 24), (200, 50), (40, 12), (80, 24))


@pytest.mark.nightly
def test_a_resize_leaves_no_stale_lines(tmux: Tmux, tmp_path: Path) -> None:
    """After each change of size the screen has one view, and each line above it once; at most what tmux had pushed
    off a
    screen too low for the view is left in its history.
    """
    slow_slo(tmp_path, soak="60 s")
    tmux.start(80, 24, "certify", "slo.toml", "--output", "run")
    tmux.until(lambda line: "soak-1: at least" in line)

    for width, height in SIZES:
        tmux.run("resize-window", "-x", str(width), "-y", str(height))
        tmux.until(partial(heads_table, width))
        time.sleep(0.6)  # cleared again, in case that tmux wrapped its lines late

        lines = tmux.screen()
        occurrences = ["soak-1: at least" in line for line in lines], ["freeze" in line for line in lines]
        assert [1, 1] == [sum(matching) for matching in occurrences], "\n".join(lines)
