"""The runs on a remote host: listed, fetched, cancelled and pruned."""

import json
import shutil
from typing import Any

import pytest

from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, ENDLESS, ON, REAL_TIME, Ended, Make


def test_a_run_is_listed_and_fetched(pair: Make, ended: Ended) -> None:
    """
    A run that was not followed to its end is listed as not fetched; fetch downloads it, and then none is left.
    """
    remote = pair(REAL_TIME, soak={"duration": "2 s", "sentinel_drift": 0.9})
    process = remote.project.start(*CERTIFY)
    until(remote.measuring)
    early = remote.project.run("remote", "fetch", remote.job().name, *ON, code=3)
    process.kill()
    ended(process)
    until((remote.job() / "exit.json").exists)

    listed = remote.project.run("remote", "list", *ON, code=0)
    fetched = remote.project.run("remote", "fetch", *ON, "--json")
    nothing = remote.project.run("remote", "fetch", *ON, code=2)
    unknown = remote.project.run("remote", "fetch", remote.job().name[:-1], *ON, code=2)
    again = remote.project.run("remote", "fetch", remote.job().name, *ON, "--out", "copy")

    assert "still running" in early.err
    assert f"exit {fetched.code}, not fetched" in listed.out
    assert fetched.document == remote.verdict(fetched, f"runs/{remote.job().name}")
    assert "no finished run" in nothing.err
    assert f"did you mean '{remote.job().name}'?" in unknown.err
    assert "report: copy/report.html" in again.out


@pytest.mark.nightly
def test_a_run_of_another_owner_is_cancelled_only_by_name(pair: Make, ended: Ended) -> None:
    """
    Cancel without a name ends no run of another owner: the error names the owner and how to end it anyway.
    """
    remote = pair(REAL_TIME, soak=ENDLESS)
    process = remote.project.start(*CERTIFY)
    until(remote.measuring)
    bob = remote.with_environment(GATEKEEPER_OWNER="bob@desk").project

    unnamed = bob.run("remote", "cancel", *ON, code=2)
    running = process.poll() is None
    cancelled = bob.run("remote", "cancel", remote.job().name, *ON, code=0)
    done = ended(process)

    assert f"remote cancel {remote.job().name} --on mini" in unnamed.err
    assert running
    assert "ended cleanly" in cancelled.out
    assert "cancelled by bob@desk" in done.err


def test_prune_removes_only_downloaded_runs_of_this_owner(pair: Make) -> None:
    """
    Runs of other owners, and runs that were not downloaded by this one, always stay; a dry run removes nothing.
    """
    remote = pair()
    remote.project.run(*CERTIFY, "--out", "run", code=0)
    newest = remote.job()
    job = json.loads((newest / "job.json").read_text())
    other_jobs: Any = (("theirs", {"owner": "somebody@else"}), ("unfetched", {}), ("by-bob", {}))
    for name, changes in (*other_jobs, ("old", {}), ("older", {})):
        shutil.copytree(newest, remote.jobs / name)
        started = {"run_id": name, "started": f"2020-01-01T00:00:0{len(name)}.000000Z"}
        (remote.jobs / name / "job.json").write_text(json.dumps(job | started | changes))
    (remote.jobs / "unfetched" / "fetched.json").unlink()
    (remote.jobs / "by-bob" / "fetched.json").write_text(json.dumps({"by": "bob@desk"}))

    dry = remote.project.run("remote", "prune", *ON, "--keep", "1", "--dry-run", "--json", code=0).document
    before = len(list(remote.jobs.iterdir()))
    done = remote.project.run("remote", "prune", *ON, "--keep", "1", code=0)

    assert 6 == before
    assert ["old", "older"] == dry["removed"]
    assert {newest.name, "theirs", "unfetched", "by-bob"} == {path.name for path in remote.jobs.iterdir()}
    assert all(count in done.out for count in ("mini: removed 2 runs", "1 run of those left"))
