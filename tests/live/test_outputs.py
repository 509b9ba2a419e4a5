"""Outputs: commands on a change get what happened, and cannot stop the watch."""

import json
import socket
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.system.small_server import MOST
from gatekeeper.live import exposition, outputs
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.watch_config import WatchConfig
from tests.builders.golden_words import says
from tests.builders.waiting import until
from tests.builders.watch import policy

CHANGE = {"workload": "json", "speculation": False, "because": "it; rm -rf /tmp/x \"'$(id)", "evidence": {"n": 3}}

pytestmark = pytest.mark.whole


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_a_command_gets_what_happened() -> None:
    """The transition is in the environment, value by value, and whole on stdin; nothing of it meets a shell."""
    code = "import os, sys; print(os.environ['GATEKEEPER_SPECULATION'], os.environ['GATEKEEPER_BECAUSE']); "
    code += "print(sys.stdin.read())"

    ran = outputs.run_hook(python(code), CHANGE)

    first, second, *_ = ran.output.splitlines()
    assert (0, None) == (ran.code, ran.fault)
    assert f"false {CHANGE['because']}" == first
    assert json.loads(second) == CHANGE


def test_a_command_that_never_reads_its_stdin_does_no_harm() -> None:
    """However long the evidence is, a command that does not care runs like any other."""
    assert None is outputs.run_hook(["true"], {**CHANGE, "evidence": "x" * 1_000_000}).fault


@pytest.mark.parametrize(
    ("argv", "fault"),
    [
        (["false"], "exit code 1"),
        (["/nowhere/at-all"], "cannot be started: No such file or directory"),
        (["/etc/passwd"], "cannot be started: Permission denied"),
        ([sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"], "killed by signal 9"),
        (["\0"], "cannot be started: embedded null byte"),
    ],
)
def test_a_command_that_fails_is_a_fault(argv: list[str], fault: str) -> None:
    """An exit code, a signal, or a program that is missing or not executable is reported, never raised."""
    assert fault == outputs.run_hook(argv, CHANGE).fault


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time limit a command and what it started are gone, SIGTERM ignored or not."""
    note = tmp_path / "pids"
    code = "import os, signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "pids = os.getpid(), subprocess.Popen(['sleep', '1000']).pid\n"
    code += f"print('waiting', flush=True); open({str(note)!r}, 'w').write('%d %d\\n' % pids)\n"
    code += "time.sleep(1000)"

    def too_long(_: object, __: float) -> None:
        """Let the limit be over when the command hangs, however long it took to get there."""
        until(lambda: note.exists() and note.read_text().endswith("\n"), "it begins")

    monkeypatch.setattr(outputs, "_wait", too_long)
    ran = outputs.run_hook(python(code), CHANGE, limit=1.0)

    assert ran.code is None
    says("watch", "a command that hangs is ended", ran.fault, limit="1 s")
    assert "waiting\n" == ran.output
    until(lambda: not any(_runs(int(pid)) for pid in note.read_text().split()), "what was killed is gone")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_left_in_the_background_is_not_waited_for() -> None:
    """A command may leave a program running that holds its output open: it is neither waited for nor ended."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)"

    ran = outputs.run_hook(python(code), CHANGE, limit=100)

    process = psutil.Process(int(ran.output))
    assert (None, True) == (ran.fault, process.is_running())
    process.kill()


def test_only_the_end_of_a_long_output_is_kept() -> None:
    """Of megabytes of output only the end, which holds the error, is kept in memory and in the log."""
    ran = outputs.run_hook(python("print('x' * 5_000_000); print('the reason')"), CHANGE)

    assert (outputs.OUTPUT_KEPT, True) == (len(ran.output), ran.output.endswith("x\nthe reason\n"))


def watching(folder: Path, listen: tuple[str, int], messages: list[str], *names: str) -> outputs.Outputs:
    config = WatchConfig(folder / "policy.toml", listen=listen, host_names=names)
    certified: Any = None  # only telemetry of a change needs it
    return outputs.Outputs(
        config,
        certified,
        SystemClock(),
        url="http://127.0.0.1:1",
        say=lambda text, _: messages.append(text),
        write=lambda _: None,
        state=dict,
    )


def test_prometheus_fetches_the_state_of_this_moment(tmp_path: Path) -> None:
    """Nothing before the first round, then each route, off once a round is overdue, then that the watch has ended."""
    messages: list[str] = []
    valid = policy().model_copy(update={"expires": datetime.now(UTC) + timedelta(days=1)})
    with watching(tmp_path, ("127.0.0.1", 0), messages) as watch_outputs:
        address = messages[0].removeprefix("metrics: ")
        before = requests.get(address, timeout=10)
        watch_outputs.publish(valid, "ab", [OverlayRoute("json", True, "")], 60.0)
        during = requests.get(address, timeout=10)
        watch_outputs.publish(valid, "ab", [OverlayRoute("json", True, "")], 0.0)
        overdue = requests.get(address, timeout=10)
        watch_outputs.end("stopped")
        after, elsewhere = requests.get(address, timeout=10), requests.get(f"{address}2", timeout=10)

    assert ("", 404) == (before.text, elsewhere.status_code)
    assert during.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert all(f"# TYPE {exposition.WATCH}_{name} gauge\n" in during.text for name in exposition.WATCH_GAUGES)
    assert 'workload="json"} 1.0\n' in during.text
    assert 'workload="json"} 0.0\n' in overdue.text
    ended = [scrape.text.partition("gatekeeper_watch_ended{")[2].split()[-1] for scrape in (during, after)]
    assert ["0.0", "1.0"] == ended
    with pytest.raises(requests.ConnectionError):
        requests.get(address, timeout=10)


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("mini.example.org:9477", 200),
        ("192.0.2.7:9477", 200),
        ("[2001:db8::7]", 200),
        (socket.gethostname(), 200),
        ("evil.example", 403),
        ("localhost:80@evil.example", 403),
        ("mini.example.org.evil.example", 403),
    ],
)
def test_a_page_of_another_site_cannot_read_the_state(tmp_path: Path, host: str, code: int) -> None:
    """A name that was made to lead here (DNS rebinding) is refused; addresses and this machine's names are not."""
    messages: list[str] = []
    with watching(tmp_path, ("127.0.0.1", 0), messages, "mini.example.org"):
        response = requests.get(messages[0].removeprefix("metrics: "), headers={"Host": host}, timeout=10)

    assert code == response.status_code


def test_silent_connections_to_the_metrics_are_limited(tmp_path: Path) -> None:
    """Connections beyond the limit are closed at once and start no thread; later it answers again."""
    messages: list[str] = []
    with watching(tmp_path, ("127.0.0.1", 0), messages):
        address = messages[0].removeprefix("metrics: ")
        place, before = ("127.0.0.1", urlsplit(address).port or 0), threading.active_count()
        silent = [socket.create_connection(place, timeout=60) for _ in range(MOST + 4)]
        with suppress(ConnectionResetError):
            assert b"" == silent[-1].recv(1)
        started = threading.active_count() - before
        for connection in silent:
            connection.close()
        until(lambda: answers(address))

    assert started <= MOST


def answers(address: str) -> bool:
    try:
        return requests.get(address, timeout=10).ok
    except requests.ConnectionError:
        return False
