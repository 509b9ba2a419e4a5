"""Disks that take no more, at either end: exit 4 that says where, and nothing that was measured is lost."""

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from tests.builders.place import Done
from tests.run.remote.conftest import Make

Until = Callable[[Callable[[], bool]], None]
Ended = Callable[[subprocess.Popen[str]], Done]

REAL_TIME = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
CERTIFY = ("remote", "certify", "slo.toml", "--on", "far", "--out", "run")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="file sizes of another process are limited on Linux alone"
)


def test_a_full_disk_over_there_is_told_here(pair: Make, until: Until, ended: Ended) -> None:
    """
    The far gatekeeper can write no more: 4 with its own words, its records home, and --resume goes on with them.
    """
    made = pair(REAL_TIME, soak={"duration": "3 s", "sentinel_drift": 0.9})
    process = made.place.start(*CERTIFY)
    until(lambda: any(path.stat().st_size > 5000 for path in made.jobs.glob("*/run/baseline.jsonl")))

    there = psutil.Process(json.loads((made.job() / "pids.json").read_text())["gatekeeper"])
    there.rlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
    done = ended(process)
    partial = (made.place.path / "run/baseline.jsonl").read_text()
    resumed = made.place.run(*CERTIFY, "--resume")

    assert 4 == done.code, done.err
    made.home(resumed)
    assert "cannot write run/" in done.err
    assert "gatekeeper there ended with 4" in done.err
    assert (made.place.path / "run/baseline.jsonl").read_text().startswith(partial.rpartition("\n")[0])


def test_a_full_disk_here_leaves_the_run_over_there(pair: Make) -> None:
    """
    What can not be written here is 4 that names the file; the run is kept there, and the same command brings it.
    """
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit on this machine (Debian: util-linux)")
    made = pair()

    full = subprocess.run(
        ["prlimit", "--fsize=20000", *made.place.argv(*CERTIFY)],
        cwd=made.place.path,
        env=made.place.environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    came = (made.place.path / "run").exists()
    done = made.place.run(*CERTIFY, code=0)

    assert 4 == full.returncode, full.stderr
    assert "cannot write" in full.stderr
    assert not came
    assert "attached to " in done.err
    assert 1 == len(list(made.jobs.iterdir()))
