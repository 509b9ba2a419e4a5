"""The environment of a server whose Python is Homebrew's or python.org's."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gatekeeper.backends.listening_process import ListeningProcess
from gatekeeper.live.running.deployed_server import program_of

WAITS = "import sys; print(1, flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"__PYVENV_LAUNCHER__": "/venv/bin/python3"}, "/venv/bin/python3"),
        ({"VIRTUAL_ENV": "/venv"}, "/venv/bin/python"),
        ({}, None),
    ],
)
def test_a_framework_python_tells_its_environment(
    tmp_path: Path, environment: Mapping[str, str], expected: str | None
) -> None:
    """It runs as Python.app/Contents/MacOS/Python, which knows no environment: a variable of the process names it."""
    program = tmp_path / "Python.app" / "Contents" / "MacOS" / "Python"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(sys.executable).resolve())
    words = [str(program), "-S", "-c", WAITS]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        program_seen = program_of(ListeningProcess(process.pid, 0.0, tuple(words), None))
        process.communicate()

    assert (expected or str(program)) == program_seen
