"""A server's process: it is found, its start awaited, its log quoted, and it is never left behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import gatekeeper
from gatekeeper.backends import open_backend
from gatekeeper.backends.http import control_requests
from gatekeeper.backends.listening_process import HOST, PortTakenError, free_port, is_own_port
from gatekeeper.backends.server_process import ServerProcess, launch
from gatekeeper.core.errors import InputError
from gatekeeper.core.slo.subject_table import Subject
from tests.backends.conftest import ROOT
from tests.builders.golden_words import says
from tests.builders.waiting import until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


GOES_ON = """
import http.server, json, sys, time
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode())
try:
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
except OSError:
    time.sleep(60)
"""
"""A server that does not end where it cannot have its port, as mlx_lm.server does not."""


def started(tmp_path: Path, port: int) -> ServerProcess:
    command = [sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(tmp_path)]
    return launch(
        command,
        log=tmp_path / "logs" / "server.log",
        ready=lambda _: control_requests.status(f"http://127.0.0.1:{port}/", {}) == 200,
        start_timeout=20,
        install="",
    )


def gone(pid: int) -> bool:
    """Tell whether a process has ended; an orphan may wait for its new parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_early_end_is_quoted(tmp_path: Path) -> None:
    """A server that exits at start is an input error with its exit code and the end of its log."""
    command = [sys.executable, "-c", "import sys; print('cannot open the model', file=sys.stderr); sys.exit(3)"]

    with pytest.raises(InputError) as caught:
        launch(command, log=tmp_path / "log", ready=lambda _: False, start_timeout=20, install="")
    says("backends", "an early end is quoted", caught.value.message)

    assert "cannot open the model" in caught.value.hint


def test_an_endless_start_is_ended(tmp_path: Path) -> None:
    """A server that never becomes healthy is an input error with the time limit, and it is ended."""
    command = [sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(600)"]

    with pytest.raises(InputError) as refused:
        launch(command, log=tmp_path / "log", ready=lambda _: False, start_timeout=0.5, install="")
    says("backends", "an endless start is ended", refused.value.message)

    assert gone(int((tmp_path / "log").read_text()))


def test_a_killed_server_has_its_signal(tmp_path: Path) -> None:
    """The signal that killed a server is reported through its guard."""
    process = started(tmp_path, free_port())

    os.kill(process.pid, signal.SIGKILL)

    died = "signal 9"
    assert died == process.ending(20)
    process.close()


def test_a_stubborn_server_is_killed(tmp_path: Path) -> None:
    """A server that ignores SIGTERM is killed after the grace."""
    process = ServerProcess([sys.executable, "-c", STUBBORN], log=tmp_path / "log", grace=0.2)
    until(lambda: "deaf" in (tmp_path / "log").read_text())

    process.close()

    assert gone(process.pid)


def test_a_killed_guard_leaves_nothing(tmp_path: Path) -> None:
    """Where the guard itself is killed, closing still ends the server."""
    process = started(tmp_path, free_port())

    process._guard.kill()
    process._guard.wait()
    process.close()

    until(lambda: gone(process.pid))


@pytest.mark.parametrize("server", ["-m http.server 0 --bind 127.0.0.1", "-c deaf"])
def test_no_server_outlives_us(tmp_path: Path, server: str) -> None:
    """When gatekeeper is killed with SIGKILL its servers end too: by SIGTERM, or by SIGKILL if they ignore it."""
    command = [sys.executable, *server.split()]
    if server.endswith("deaf"):
        command[-1] = STUBBORN
    program = (
        "import time\n"
        "from pathlib import Path\n"
        "from gatekeeper.backends.server_process import ServerProcess\n"
        f"process = ServerProcess({command!r}, log=Path({str(tmp_path / 'log')!r}), grace=0.3)\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    guard = psutil.Process(pid).ppid()

    parent.kill()
    parent.wait()
    parent.stdout.close()

    until(lambda: gone(pid))
    until(lambda: gone(guard))


def test_a_foreign_server_does_not_see_us(tmp_path: Path) -> None:
    """Only our own modules get our package on their path; a server of another environment keeps its own."""
    command = [sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'), os.environ['HF_HUB_OFFLINE'])"]
    printed = []
    for with_package in (False, True):
        process = ServerProcess(command, log=tmp_path / "log", with_package=with_package)
        process.ending(20)
        process.close()
        printed.append((tmp_path / "log").read_text().split())

    inherited = os.environ.get("PYTHONPATH", "None")
    foreign = [inherited, "1"]
    assert foreign == printed[0]
    assert printed[1][0].split(os.pathsep)[0] == str(Path(gatekeeper.__file__).parents[1])


def test_a_port_that_another_program_took_is_noticed_at_once() -> None:
    """A server that goes on without its port is not waited for; one that has not begun to listen is."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as idle, socket.socket() as occupant:
        occupant.bind((HOST, 0))
        port = occupant.getsockname()[1]
        try:
            assert not is_own_port(idle.pid, port)
            occupant.listen()
            with pytest.raises(PortTakenError):
                is_own_port(idle.pid, port)
            assert is_own_port(os.getpid(), port)
        finally:
            idle.kill()


def test_a_server_gets_another_port_where_its_first_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that is faster to a port costs one start, and no run."""
    with socket.socket() as occupant:
        occupant.bind((HOST, 0))
        occupant.listen()
        ports = iter([occupant.getsockname()[1], free_port()])
        monkeypatch.setattr("gatekeeper.backends.server_backend.free_port", lambda: next(ports))
        server = tmp_path / "server.py"
        server.write_text(GOES_ON)
        command = [sys.executable, str(server), "{port}"]
        commands = {"command": command, "plain_command": command, "start_timeout": 20}
        subject = Subject.model_validate({"backend": "openai", "target": "t", **commands})
        backend = open_backend(subject, models={"t": tmp_path}, base=tmp_path, logs=tmp_path / "logs")
        with backend.start((("draft", None),)) as running:
            assert running.alive()
