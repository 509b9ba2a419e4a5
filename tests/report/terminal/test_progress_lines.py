"""What a terminal shows of a run in progress: the live view, and the lines without one."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gatekeeper.core.records import Event, Reading, setting
from gatekeeper.report.data.progress import Progress
from gatekeeper.report.terminal.progress_lines import plain_lines, view
from gatekeeper.report.terminal.screen_refresh import CLEAR_BELOW, CLEAR_SCREEN, CLEARED, HIDE, SHOW, WRAP, RedrawnLines
from tests.builders.golden_words import says
from tests.builders.page_data import like_golden
from tests.builders.project_folder import ROOT, canary_lines
from tests.report.data.test_progress import DRAFTING, begin, event, generation, swept

VIEW = ("=" * 79, "speed")


@pytest.mark.parametrize("resize", ["a new size", "a signal alone"])
def test_a_resize_draws_the_whole_screen_again(resize: str) -> None:
    """Terminals wrap what they show in their own way: everything is cleared, and the latest lines above the view
    that fit
    are printed again. A terminal that was resized and set back at once has only sent the signal.
    """
    file, size = io.StringIO(), [(80, 8)]
    with RedrawnLines(file, lambda: VIEW, lambda: size[0]) as live:
        live.print_above([f"line {number}" for number in range(20)])
        if resize == "a new size":
            size[0] = (40, 8)
        else:
            signal.raise_signal(signal.SIGWINCH)
        file.truncate(0)
        live.print_above(["kept"])
        written = file.getvalue().lstrip("\0")

    latest = "".join(f"line {number}\n" for number in range(15, 20))
    assert written.startswith(f"{CLEAR_SCREEN}{latest}\x1b[2Kkept\n")
    assert file.getvalue().count(CLEAR_SCREEN) <= CLEARED


class ClosedTerminal(io.StringIO):
    """A terminal that was closed."""

    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_does_not_end_the_run() -> None:
    """Nothing more is drawn, and the run continues."""
    with RedrawnLines(ClosedTerminal(), lambda: VIEW, lambda: (80, 24)) as live:
        live.print_above(["kept"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_ends_the_run_the_cursor_is_shown(error: type[BaseException]) -> None:
    """An interrupt and an error of gatekeeper leave the same clean terminal; no write holds a part of a view."""
    file = io.StringIO()

    with pytest.raises(error), RedrawnLines(file, lambda: VIEW, lambda: (80, 24)):
        raise error

    assert file.getvalue().startswith(f"\r{HIDE}")
    assert file.getvalue().endswith(f"speed\n{WRAP}{CLEAR_BELOW}\r\x1b[2A{CLEAR_BELOW}{SHOW}")


LIMIT_S = 120
COLOURED = re.compile(r"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|38|48)[0-9;]*m")
HOST = {
    "memory_headroom": Reading(5.12e9, "B", "made", "ok"),
    "memory_pressure_level": Reading(2.0, "1", "made", "ok"),
    "subject_footprint": Reading(4.5e9, "B", "made", "ok"),
    "swap_used": Reading(0.0, "B", "made", "ok"),
    "thermal_level": Reading(0.0, "1", "made", "ok"),
}
CHOSEN = {"json": dict(DRAFTING), "chat": {"draft": None}}
STORY: list[tuple[str, list[Event]]] = [
    ("no event yet", []),
    ("sweep", [*swept(10), event(20, "sample", values=HOST)]),
    (
        "soak",
        [
            event(200, "stage", stage="soak", soak="soak-1", settings=CHOSEN),
            event(200, "soaking", soak="soak-1", seconds=600.0, most=3600.0),
            event(260, "answer", generation=generation(speed=129)),
            event(261, "answer", generation=generation("chat", "plain", 7.31, fault="timeout")),
        ],
    ),
    ("past its shortest duration", [event(900, "sample", values=HOST)]),
    ("closing pass", [event(901, "closing", soak="soak-1", answers=16)]),
    ("warm cache", [event(930, "stage", stage="warm_cache", soak="soak-1")]),
    ("judge", [event(950, "stage", stage="judge")]),
]


def drawn(progress: Progress, width: int, height: int = 23) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(view(progress.snapshot(), width, height))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n"


def stood_still() -> Progress:
    return Progress(lambda: 0.0)


def test_the_view_at_every_moment_of_a_run() -> None:
    """Stage, setting, time left, speeds, acceptance, memory and pressure, from the first second to the verdict."""
    progress, views = stood_still(), []
    for name, events in STORY:
        for progress_event in events:
            progress.update(progress_event)
        views.append(f"--- {name}\n{drawn(progress, 80)}")

    like_golden("view.txt", "\n".join(views))


def test_a_narrow_terminal_shows_one_speed_and_no_setting() -> None:
    """At 40 columns the setting, the plain speed and words that do not fit are left out."""
    progress = stood_still()
    for progress_event in (progress_event for _, events in STORY[:2] for progress_event in events):
        progress.update(progress_event)

    lines = drawn(progress, 40).splitlines()

    says("reports", "a narrow terminal shows one speed and no setting", "\n".join(lines[2:4]))
    assert ["workload", "speed", "ratio"] == lines[4].split()
    assert ["json", "100", "tok/s", "-"] == lines[5].split()


@pytest.mark.parametrize("width", [1, 10, 30, 72, 80, 120, 200])
def test_no_line_of_the_view_is_wider_or_higher_than_the_terminal(width: int) -> None:
    """Long names are cut; whole words and workloads that do not fit are left out."""
    progress = stood_still()
    long = [f"a-workload-with-a-long-name-{number}" for number in range(40)]
    for progress_event in (begin(workloads=long), *(event(1, "answer", generation=generation(name)) for name in long)):
        progress.update(progress_event)

    lines = drawn(progress, width, height=12).splitlines()

    assert (True, True) == (max(map(len, lines)) <= width, len(lines) <= 12)


def test_a_long_name_is_cut_before_the_knobs() -> None:
    """In 80 columns a draft's name is shortened before its draft length, which is what a sweep changes."""
    knobs = {"draft": "mlx-community/Qwen3-0.6B-8bit-instruct", "num_draft_tokens": 12}
    progress = stood_still()
    for progress_event in (begin(), event(1, "answer", generation=replace(generation(), setting=setting(**knobs)))):
        progress.update(progress_event)

    (line,) = [line for line in drawn(progress, 80).splitlines() if line.startswith("json")]

    assert "Qwen3-0\N{HORIZONTAL ELLIPSIS}, length 12" in line


def test_without_a_terminal_progress_is_a_line_at_intervals() -> None:
    """Ten minutes of one answer per second give a line every five seconds in the first minute, then one a minute."""
    now, file = [0.0], io.StringIO()
    observe = plain_lines(Progress(lambda: now[0]), file, lambda: now[0])
    observe(begin())
    observe(event(0, "stage", stage="sweep", settings=4))
    for second in range(1, 601):
        now[0] = float(second)
        observe(event(second, "answer", generation=generation(), answered=second, of=600))

    lines = file.getvalue().splitlines()

    assert ["run runs/1", "sweep: 4 trials"] == lines[:2]
    assert 2 + 11 + 9 == len(lines)
    assert ["sweep: 55/600 answers", "sweep: 115/600 answers"] == [line.partition(",")[0] for line in lines[12:14]]


def test_a_log_that_cannot_be_written_does_not_end_the_run() -> None:
    """When the reader of the progress lines is gone, the run continues."""
    file = io.StringIO()
    observe = plain_lines(stood_still(), file)
    file.close()

    observe(begin())


def test_text_of_a_server_cannot_control_the_terminal() -> None:
    """Escape sequences in a server's text are replaced, and square brackets are not markup."""
    file = io.StringIO()

    plain_lines(stood_still(), file)(event(0, "subject_lost", because="[/red] \x1b[2J\x07 gone"))

    says("reports", "text of a server cannot control the terminal", file.getvalue())


@contextmanager
def in_a_terminal(words: list[str], folder: Path, **variables: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start gatekeeper with a terminal of its own, 80 columns wide, as its session's leader."""
    controller, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    lead = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    argv = [sys.executable, "-c", lead, sys.executable, "-m", "gatekeeper", *words]
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **variables}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        argv, stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder, env=environment, start_new_session=True
    )
    os.close(terminal)
    try:
        yield controller, process
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def read_until(controller: int, words: str) -> str:
    """Return what the command sends until *words* are there, or until it has ended."""
    sent, deadline = b"", time.monotonic() + LIMIT_S
    while words.encode() not in sent:
        assert time.monotonic() < deadline, sent[-2000:]
        try:
            piece = os.read(controller, 65536)
        except OSError:  # Linux: the other end was closed
            break
        if not piece:
            break
        sent += piece
    return sent.decode(errors="replace")


def slow_slo(folder: Path, soak: str = "60 s") -> None:
    """Write an SLO whose scripted subject takes real time."""
    truth = {
        "time": "real",
        "token": "2 ms",
        "verify": "2.2 ms",
        "draft_token": {"heavy": "0.2 ms"},
        "canaries": {"easy-": {"acceptance": 0.9}},
    }
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "easy.jsonl").write_text(canary_lines("easy", 6))
    (folder / "slo.toml").write_text(
        'schema = 1\nname = "slow"\n[subject]\nbackend = "scripted"\ntarget = "t"\ndrafts = ["heavy"]\n'
        'script = "truth.json"\n[[workload]]\nname = "easy"\ncanaries = "easy.jsonl"\n'
        f'[sweep]\nrepeats = 1\nnum_draft_tokens = [4]\n[soak]\nduration = "{soak}"\nmax_duration = "60 s"\n'
        '[[objective]]\nmetric = "token_agreement"\nat_least = 1\nwhy = "lossless"\n'
    )


@pytest.mark.whole
def test_ctrl_c_leaves_a_clean_terminal_without_colour(tmp_path: Path) -> None:
    """The view is erased, the cursor is shown again, and NO_COLOR is obeyed to the end."""
    slow_slo(tmp_path)

    with in_a_terminal(["certify", "slo.toml", "--out", "run"], tmp_path, NO_COLOR="1") as (controller, process):
        during = read_until(controller, "tok/s")
        os.write(controller, b"\x03")  # the terminal makes it an interrupt
        after = read_until(controller, "nothing more: to its end")
        code = process.wait(LIMIT_S)

    view, _, rest = after.rpartition(SHOW)
    assert (130, True) == (code, view.endswith(CLEAR_BELOW))
    assert [1, 1] == [(during + after).count(shown) for shown in (HIDE, SHOW)]
    assert "gatekeeper: interrupted" in rest.splitlines()
    assert None is COLOURED.search(during + after)
