"""What a far machine may lack: room on its disk, and a Python that is new enough."""

import ast
import hashlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.core.errors import HostLacksError
from gatekeeper.run.remote import environment
from gatekeeper.run.remote.agent_program import program
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import FarError, LinkError
from tests.builders.ssh_server import stand_in
from tests.run.remote.conftest import Serve

LARGE = os.urandom(4 << 20)
OLD = """#!/bin/sh
# A Python that says it is 3.9, as macOS has it, and is it for whatever it is given.
[ "$1" = -I ] && shift
[ "$1" = -c ] && shift
code=$1
shift
exec {real} -I -c "import sys
sys.version_info = (3, 9, 6, 'final', 0)
exec(sys.argv.pop(1), dict(__name__='__main__'))" "$code" "$@"
"""


def refused_for_room(link: Link) -> FarError:
    with pytest.raises(FarError) as refused:
        link.put("parcels/large", LARGE, sha256=hashlib.sha256(LARGE).hexdigest())
    return refused.value


def test_a_file_too_large_for_the_far_disk(serve: Serve) -> None:
    """
    A file that does not fit is refused with exit code 4 and what to do; nothing of it is left, and the link goes on.
    """
    server = serve('ForceCommand ulimit -f 100; eval "$SSH_ORIGINAL_COMMAND"')

    with Link("far") as link:
        refused = refused_for_room(link)
        assert link.ask("clock")

    assert ("disk_full", 4) == (refused.kind, refused.exit_code)
    assert refused.hint
    assert [] == list((server.state / "parcels").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of two megabytes; only root may."""
    at = tmp_path / "small"
    at.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(at)]
    mount = shutil.which("mount")
    if mount is None or subprocess.run(words, check=False, capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here (needs root)")
    yield at
    subprocess.run(["umount", "-l", at], check=False, timeout=30)


def test_a_full_far_disk(serve: Serve, small_disk: Path) -> None:
    """
    A disk that is full is seen before, refuses a file, refuses an installation, and is named each time.
    """
    serve()

    with Link("far", home=str(small_disk / "state")) as link:
        assert link.hello["free_bytes"] < 3 << 20
        refused = refused_for_room(link)
        with pytest.raises(FarError) as again:
            environment.environment(link, pinned=b"")

    assert ("disk_full", 4) == (refused.kind, refused.exit_code)
    assert ("disk_full", 4) == (again.value.kind, again.value.exit_code)


def test_a_job_that_fills_the_far_disk_still_says_how_it_ended(serve: Serve, small_disk: Path, tmp_path: Path) -> None:
    """
    A run that dies of a full disk leaves its exit code, and its words as far as there was room.
    """
    serve()
    fill = "import sys\ntry:\n    open('fill', 'wb').write(b'x' * (4 << 20))\nexcept OSError:\n    sys.exit(4)"

    with Link("far", home=str(small_disk / "state")) as link:
        environment = str(stand_in(tmp_path / "fills", fill))
        link.ask("start", run_id="one", argv=[], owner="me", slo_sha256="0", environment=environment)
        ended = list(link.stream("follow", run_id="one"))[-1]["job"]

    assert ("finished", 4) == (ended["state"], ended["exit"]["code"])


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

    with Link("far", python=str(old_python / "python3")) as link:
        hello = link.hello
        with pytest.raises(HostLacksError, match=r"3\.11 or newer.*old/python3 is 3\.9\.6") as refused:
            environment.environment(link)

    assert ("3.9.6", None) == (hello["python"], hello["capable_python"])
    assert (3, True) == (refused.value.exit_code, "brew install python" in refused.value.hint)


def test_a_newer_python_elsewhere_is_found(serve: Serve, old_python: Path, tmp_path: Path) -> None:
    """
    An old python3 first on the PATH does not hide a newer one behind it.
    """
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "python3.11").symlink_to(sys.executable)
    serve(PATH=f"{old_python}:{tmp_path / 'newer'}")

    with Link("far") as link:
        hello = link.hello

    assert "3.9.6" == hello["pythons"][str(old_python / "python3")]
    assert hello["capable_python"] != str(old_python / "python3")
    assert hello["capable_python"]


def test_the_far_side_is_written_for_old_pythons() -> None:
    """
    The program parses as Python 3.6, in each of its modules, and is the same text each time.
    """
    sent = program()
    whole = ast.parse(sent, feature_version=(3, 6))
    assigned = whole.body[0]
    assert isinstance(assigned, ast.Assign)
    texts = ast.literal_eval(assigned.value)

    for _, text in texts:
        ast.parse(text, feature_version=(3, 6))

    assert 5 < len(texts)
    assert sent == program()


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
    found = of_pyenv[-1] if of_pyenv else shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode != 0:
        return None
    return Path(found)


@pytest.mark.parametrize("version", OLDER)
def test_the_far_side_does_everything_on_an_old_python(serve: Serve, tmp_path: Path, version: str) -> None:
    """
    With a real old Python at the far end files go and come, a job is started, followed and cancelled, and the newer
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

    with Link("far") as link:
        hello = link.hello
        link.put("parcels/x", LARGE, sha256=hashlib.sha256(LARGE).hexdigest())
        back = io.BytesIO()
        link.get("parcels/x", back)
        link.ask("start", **job)
        states = [one["state"] for one in link.ask("jobs")["jobs"]]
        first = next(item["lines"] for item in link.stream("follow", run_id="one") if item["lines"])
    with Link("far") as link:
        *_, cancelled = link.stream("cancel", run_id="one", who="me")
        *_, followed = link.stream("follow", run_id="one")
        files = [one["name"] for one in link.stream("files", run_id="one")]
        ran = list(link.stream("run", argv=[], environment=str(stand_in(tmp_path / "says", "print('hello')"))))
        removed = link.ask("remove", run_id="one")

    assert hello["python"].startswith(f"{version}.")
    assert hello["capable_python"]
    assert LARGE == back.getvalue()
    assert (["running"], "finished") == (states, followed["job"]["state"])
    assert "me" == cancelled["job"]["cancelled"]["who"]
    assert (["{}"], ["record"]) == (first, files)
    assert b"hello\n" == b"".join(one.get("content", b"") for one in ran)
    assert {"removed": True} == removed


def test_a_python_older_than_that_is_passed_over(serve: Serve, tmp_path: Path) -> None:
    """
    A Python that can not even read the agent is told as none, and not met as a syntax error.
    """
    for name in ("python3", "python"):
        (tmp_path / name).write_text(OLD.format(real=sys.executable).replace("(3, 9, 6", "(3, 5, 10"))
        (tmp_path / name).chmod(0o755)
    if any(Path(folder, "python3").exists() for folder in ("/opt/homebrew/bin", "/usr/local/bin")):
        pytest.skip("this machine's Python stands where it is always found")
    serve(PATH=str(tmp_path))

    with pytest.raises(LinkError) as refused:
        Link("far")

    assert "no_python" == refused.value.reason
