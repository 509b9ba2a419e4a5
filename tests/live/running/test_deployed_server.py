"""The post: what a client adds to its requests, by the server that they go to."""

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.listening_process import ListeningProcess
from gatekeeper.live.running.deployed_server import program_of
from tests.builders.deployment import SETTING, Deployed, WatchOutput

OLLAMA = {"options": {"draft_num_predict": 4}}, {"options": {"draft_num_predict": 0}}
MTPLX = {"generation_mode": "mtp", "depth": 4}, {"generation_mode": "ar"}


@pytest.mark.parametrize(
    ("backend", "on", "off"),
    [
        ("ollama", *OLLAMA),
        ("mtplx", *MTPLX),
        ("lmstudio", {"draft_model": "heavy"}, {}),
        ("mlx-server", {"num_draft_tokens": 4}, {}),
        ("llama-server", {}, {}),
        ("openai", {}, {}),
    ],
)
def test_the_overlay_says_what_a_request_says(
    tmp_path: Path, backend: str, on: dict[str, Any], off: dict[str, Any]
) -> None:
    """Where a server takes its setting with each request, the overlay carries the fields that do it; elsewhere none."""
    deployed, output = Deployed.served(tmp_path, "http://127.0.0.1:9", backend), WatchOutput()
    request_fields = []
    for speculation in (True, False):
        deployed.policy(route={"speculation": speculation, "setting": SETTING})
        with deployed.session(output) as session:
            session._publish()
        request_fields.append(tomllib.loads(deployed.overlay)["route"][0].get("request", {}))

    assert [on, off] == request_fields


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
