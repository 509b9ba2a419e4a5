"""A certify on another machine, over a real ssh connection: as if it were here, whatever happens on the way."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.e2e.place import Done
from tests.remote.conftest import Pair

Make = Callable[..., Pair]
Until = Callable[[Callable[[], bool]], None]
Ended = Callable[[subprocess.Popen[str]], Done]

REAL_TIME = {"time": "real", "token": "2 ms", "verify": "2.2 ms", "draft_token": "0.2 ms", "prefill": "2 ms"}
UNHURRIED = {"duration": "4 s", "sentinel_drift": 0.9}
CERTIFY = ("remote", "certify", "slo.toml", "--on", "far")


def answers(pair: Pair) -> int:
    """Count the answers that were recorded over there."""
    found = [path for path in pair.jobs.glob("*/run/soak-1.jsonl")]
    return sum(len(path.read_text().splitlines()) for path in found)


def gatekeeper_there(pair: Pair) -> psutil.Process:
    return psutil.Process(json.loads((pair.job() / "pids.json").read_text())["gatekeeper"])


def test_a_run_elsewhere_comes_home_and_is_judged_again(pair: Make) -> None:
    """
    Certified there, sealed, brought here whole, and judged here to the same bytes; the ledger is closed.
    """
    made = pair()

    done = made.place.run(*CERTIFY, "--out", "run", "--json", code=0)
    judged = made.place.run("judge", "run", "--json", code=0)
    again = made.place.run("remote", "list", "--on", "far", "--json", code=0).document["runs"]

    there = made.job() / "run/verdict.json"
    assert there.read_text() == done.out == judged.out == (made.place.path / "run/verdict.json").read_text()
    assert "promoted" == done.document["outcome"]
    assert {"policy.toml", "SHA256SUMS", "report.html"} <= {one.name for one in (made.place.path / "run").iterdir()}
    assert not (made.place.path / "run.part").exists()
    assert [("finished", 0, True)] == [(one["state"], one["exit_code"], one["fetched"]) for one in again]
    (entry,) = [json.loads(path.read_text()) for path in made.place.path.glob("*.remote.json")]
    assert ("closed", "promoted") == (entry["state"], entry["outcome"])
