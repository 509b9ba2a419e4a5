"""The agent on whatever Python the remote host has."""

import ast
import hashlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gatekeeper.core.errors import HostLacksError
from gatekeeper.run.remote.installation import prepare_environment
from gatekeeper.run.remote.ssh import Connection, agent_program
from gatekeeper.run.remote.ssh_errors import SshError
from tests.builders.ssh_server import stand_in
from tests.run.remote.conftest import Serve

LARGE = os.urandom(4 << 20)
OLD = """#!/bin/sh
# A Python that reports version 3.9, as on macOS, and runs every script as 3.9.
[ "$1" = -I ] && shift
[ "$1" = -c ] && shift
code=$1
shift
exec {real} -I -c "import sys
sys.version_info = (3, 9, 6, 'final', 0)
exec(sys.argv.pop(1), dict(__name__='__main__'))" "$code" "$@"
"""


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """Return a folder whose python3 is an old one."""
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "python3").write_text(OLD.format(real=sys.executable))
    (folder / "python3").chmod(0o755)
    return folder


def test_an_old_python_is_told(serve: Serve, old_python: Path) -> None:
    """
    The agent speaks on an old Python, names it, and gatekeeper is not installed on it.
    """
    serve(PATH=f"{old_python}:/usr/bin:/bin")

    with Connection("mini", python=str(old_python / "python3")) as connection:
        hello = connection.hello
        with pytest.raises(HostLacksError, match=r"old/python3 is 3\.9\.6") as refused:
            prepare_environment(connection)

    assert ("3.9.6", None) == (hello["python"], hello["capable_python"])
    assert (3, True) == (refused.value.exit_code, "brew install python" in refused.value.hint)


def test_a_newer_python_elsewhere_is_found(serve: Serve, old_python: Path, tmp_path: Path) -> None:
    """
    An old python3 first on the PATH does not hide a newer one behind it.
    """
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "python3.11").symlink_to(sys.executable)
    serve(PATH=f"{old_python}:{tmp_path / 'newer'}")

    with Connection("mini") as connection:
        hello = connection.hello

    assert "3.9.6" == hello["pythons"][str(old_python / "python3")]
    assert hello["capable_python"] != str(old_python / "python3")
    assert hello["capable_python"]


def test_the_remote_host_is_written_for_old_pythons() -> None:
    """
    The program parses as Python 3.6, in each of its modules, and is the same text each time.
    """
    sent = agent_program()
    tree = ast.parse(sent, feature_version=(3, 6))
    assigned = tree.body[0]
    assert isinstance(assigned, ast.Assign)
    texts = ast.literal_eval(assigned.value)

    for _, text in texts:
        ast.parse(text, feature_version=(3, 6))

    assert 5 < len(texts)
    assert sent == agent_program()


WRITES_AND_WAITS = """
import os, time
os.mkdir("run")
open("run/record", "w").close()
open("progress.jsonl", "w").write("{}\\n")
while True:
    time.sleep(1)
"""
OLDER = ("3.6", "3.7", "3.8", "3.9", "3.10")


def _older(version: str) -> Path | None:
    """Return a real Python of that version, where this machine has one."""
    of_pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    interpreter = of_pyenv[-1] if of_pyenv else shutil.which(f"python{version}")
    if interpreter is None or subprocess.run([interpreter, "-c", ""], check=False, capture_output=True).returncode != 0:
        return None
    return Path(interpreter)


@pytest.mark.parametrize(
    "version", [OLDER[0], *(pytest.param(older, marks=pytest.mark.nightly) for older in OLDER[1:])]
)
def test_the_remote_host_does_everything_on_an_old_python(serve: Serve, tmp_path: Path, version: str) -> None:
    """
    With a real old Python at the remote host files go and come, a job is started, followed and cancelled, and the newer
    Python that environments are made with is found.
    """
    old = _older(version)
    if old is None:
        pytest.skip(f"no Python {version} on this machine")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(old)
    (tmp_path / "bin" / "python3.11").symlink_to(sys.executable)
    serve(PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    waits = stand_in(tmp_path / "waits", WRITES_AND_WAITS)
    job = {"run_id": "one", "argv": [], "owner": "me", "slo_sha256": "0", "environment": str(waits)}

    with Connection("mini") as connection:
        hello = connection.hello
        connection.upload("parcels/x", LARGE, sha256=hashlib.sha256(LARGE).hexdigest())
        back = io.BytesIO()
        connection.download("parcels/x", back, len(LARGE))
        connection.request("start", **job)
        states = [job["state"] for job in connection.request("jobs")["jobs"]]
        first = next(item["lines"] for item in connection.stream("follow", run_id="one") if item["lines"])
    with Connection("mini") as connection:
        *_, cancelled = connection.stream("cancel", run_id="one", who="me")
        *_, followed = connection.stream("follow", run_id="one")
        files = [file["name"] for file in connection.stream("files", run_id="one")]
        ran = list(connection.stream("run", argv=[], environment=str(stand_in(tmp_path / "says", "print('hello')"))))
        removed = connection.request("remove", run_id="one")

    assert hello["python"].startswith(f"{version}.")
    assert hello["capable_python"]
    assert LARGE == back.getvalue()
    assert (["running"], "finished") == (states, followed["job"]["state"])
    assert "me" == cancelled["job"]["cancelled"]["who"]
    assert (["{}"], ["record"]) == (first, files)
    assert b"hello\n" == b"".join(item.get("content", b"") for item in ran)
    assert {"removed": True} == removed


def test_a_python_older_than_that_is_passed_over(serve: Serve, tmp_path: Path) -> None:
    """
    A Python too old to parse the agent is passed over, rather than met as a syntax error.
    """
    for name in ("python3", "python"):
        (tmp_path / name).write_text(OLD.format(real=sys.executable).replace("(3, 9, 6", "(3, 5, 10"))
        (tmp_path / name).chmod(0o755)
    if any(Path(folder, "python3").exists() for folder in ("/opt/homebrew/bin", "/usr/local/bin")):
        pytest.skip("this machine's Python stands where it is always found")
    serve(PATH=str(tmp_path))

    with pytest.raises(SshError) as refused:
        Connection("mini")

    assert "no_python" == refused.value.reason
