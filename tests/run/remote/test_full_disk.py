"""Full disks, remote or local: exit 4 names the file, and no records are lost."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, HELD, Ended, Make

ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="file sizes of another process are limited on Linux alone"
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of a few pages; only root may."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mount = shutil.which("mount")
    if mount is None or subprocess.run(words, check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk (needs root)")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False, timeout=30)


def test_a_disk_that_is_full_before_the_run_is_named(pair: Make, small_disk: Path) -> None:
    """Not even the inputs fit: exit 4 with what the remote system says of its disk, and what to do."""
    remote = pair()
    (small_disk / "filler").write_bytes(bytes(56 << 10))
    remote.server.state.symlink_to(small_disk)

    done = remote.project.run(*CERTIFY, "--out", "run", code=4)

    assert "No space left on device" in done.err
    assert "free disk space there" in done.err
    assert not (remote.project.path / "run").exists()


@pytest.mark.nightly
@ON_LINUX
def test_a_full_remote_disk_during_the_run(pair: Make, ended: Ended) -> None:
    """The remote gatekeeper cannot write: 4 with its own message, its records downloaded, and --resume continues."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    recorded = (remote.run() / "soak-1.jsonl").stat().st_size
    remote.process().rlimit(resource.RLIMIT_FSIZE, (recorded + 1000, resource.RLIM_INFINITY))
    remote.go()
    done = ended(process)
    partial = (remote.project.path / "run/soak-1.jsonl").read_text()
    resumed = remote.project.run(*CERTIFY, "--out", "run", "--resume")

    assert 4 == done.code, done.err
    remote.verdict(resumed)
    assert "cannot write runs/" in done.err
    assert "ended with exit code 4" in done.err
    assert (remote.project.path / "run/soak-1.jsonl").read_text().startswith(partial.rpartition("\n")[0])


@pytest.mark.nightly
@ON_LINUX
def test_a_full_local_disk_leaves_the_run_there(pair: Make) -> None:
    """A full local disk is 4 that names the file; the run is kept there, and the same command downloads it."""
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
    assert 1 == len(remote.jobs)
