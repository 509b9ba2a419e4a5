"""Full disks, remote or local: exit 4 names the file, and no records are lost."""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.run.remote.installation import prepare_environment
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import AgentError
from tests.builders.ssh_server import stand_in
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, HELD, Ended, Make, Serve

LARGE = os.urandom(4 << 20)
ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="file sizes of another process are limited on Linux alone"
)


def refused_for_room(connection: Connection) -> AgentError:
    with pytest.raises(AgentError) as refused:
        connection.upload("parcels/large", LARGE, sha256=hashlib.sha256(LARGE).hexdigest())
    return refused.value


def test_a_file_too_large_for_the_remote_disk(serve: Serve) -> None:
    """
    A file that does not fit is refused with exit code 4 and a hint; nothing of it is left, and the connection lives on.
    """
    server = serve('ForceCommand ulimit -f 100; eval "$SSH_ORIGINAL_COMMAND"')

    with Connection("mini") as connection:
        refused = refused_for_room(connection)
        assert connection.request("clock")

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
        pytest.skip("cannot mount a small disk (needs root)")
    yield at
    subprocess.run(["umount", "-l", at], check=False, timeout=30)


def test_a_full_remote_disk(serve: Serve, small_disk: Path) -> None:
    """
    A disk that is full is seen before, refuses a file, refuses an installation, and is named each time.
    """
    serve()

    with Connection("mini", home=str(small_disk / "state")) as connection:
        assert connection.hello["free_bytes"] < 3 << 20
        refused = refused_for_room(connection)
        with pytest.raises(AgentError) as again:
            prepare_environment(connection)

    assert ("disk_full", 4) == (refused.kind, refused.exit_code)
    assert ("disk_full", 4) == (again.value.kind, again.value.exit_code)


def test_a_job_that_fills_the_remote_disk_still_says_how_it_ended(
    serve: Serve, small_disk: Path, tmp_path: Path
) -> None:
    """
    A run that dies of a full disk leaves its exit code, and its words as mini as there was room.
    """
    serve()
    fill = "import sys\ntry:\n    open('fill', 'wb').write(b'x' * (4 << 20))\nexcept OSError:\n    sys.exit(4)"

    with Connection("mini", home=str(small_disk / "state")) as connection:
        environment = str(stand_in(tmp_path / "fills", fill))
        connection.request("start", run_id="one", argv=[], owner="me", slo_sha256="0", environment=environment)
        ended = list(connection.stream("follow", run_id="one"))[-1]["job"]

    assert ("finished", 4) == (ended["state"], ended["exit"]["code"])


@pytest.mark.nightly
@ON_LINUX
def test_a_full_remote_disk_during_the_run(pair: Make, ended: Ended) -> None:
    """
    The remote gatekeeper cannot write: 4 with its own message, its records downloaded, and --resume continues.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    recorded = (remote.job() / "run/soak-1.jsonl").stat().st_size
    remote.process().rlimit(resource.RLIMIT_FSIZE, (recorded + 1000, resource.RLIM_INFINITY))
    remote.go()
    done = ended(process)
    partial = (remote.project.path / "run/soak-1.jsonl").read_text()
    resumed = remote.project.run(*CERTIFY, "--out", "run", "--resume")

    assert 4 == done.code, done.err
    remote.verdict(resumed)
    assert "cannot write run/" in done.err
    assert "ended with exit code 4" in done.err
    assert (remote.project.path / "run/soak-1.jsonl").read_text().startswith(partial.rpartition("\n")[0])


@pytest.mark.nightly
@ON_LINUX
def test_a_full_local_disk_leaves_the_run_there(pair: Make) -> None:
    """
    A full local disk is 4 that names the file; the run is kept there, and the same command downloads it.
    """
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit on this machine (Debian: util-linux)")
    remote = pair()

    full = subprocess.run(
        ["prlimit", "--fsize=20000", *remote.project.argv(*CERTIFY, "--out", "run")],
        cwd=remote.project.path,
        env=remote.project.environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    copy_exists = (remote.project.path / "run").exists()
    done = remote.project.run(*CERTIFY, "--out", "run", code=0)

    assert 4 == full.returncode, full.stderr
    assert "cannot write" in full.stderr
    assert not copy_exists
    assert "attached to " in done.err
    assert 1 == len(list(remote.jobs.iterdir()))
