"""A certify on a remote host, over a real ssh connection: equal to a local one, whatever happens meanwhile."""

import json
import os
import signal
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest

from gatekeeper.run.remote.remote_run import NewRun, RemoteCommand, RemoteHost, RemoteRunner
from tests.builders.project_folder import ProjectFolder
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, ENDLESS, HELD, ON, REAL_TIME, Ended, Make


def test_a_remote_run_is_downloaded_and_judged_again(pair: Make) -> None:
    """
    Certified on the remote host, downloaded whole, and judged again to the same bytes; its entry is closed.
    """
    remote = pair()

    done = remote.project.run(*CERTIFY, "--out", "run", "--json", code=0)
    judged = remote.project.run("judge", "run", "--json", code=0)
    listed = remote.project.run("remote", "list", *ON, "--json", code=0).document["runs"]

    remote_verdict = remote.job() / "run/verdict.json"
    assert (
        remote_verdict.read_text() == done.out == judged.out == (remote.project.path / "run/verdict.json").read_text()
    )
    assert "the same verdict" in done.err
    assert "promoted" == done.document["outcome"]
    assert {"policy.toml", "SHA256SUMS", "report.html"} <= {
        path.name for path in (remote.project.path / "run").iterdir()
    }
    assert not (remote.project.path / ".run.part").exists()
    assert [("finished", 0, True)] == [
        (listed_run["state"], listed_run["exit_code"], listed_run["fetched"]) for listed_run in listed
    ]
    (entry,) = remote.registry(".")
    assert ("closed", "promoted") == (entry["state"], entry["outcome"])
    assert f"numpy=={version('numpy')}" in entry["installed"]


@pytest.mark.nightly
def test_a_cut_connection_changes_nothing(pair: Make, ended: Ended) -> None:
    """
    Every session is killed in the middle of the soak: the loss is reported once, the client reconnects, and the
    verdict is that of an undisturbed run.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    assert remote.server.cut() > 0
    remote.go()
    done = ended(process)

    remote.verdict(done)
    assert 1 == done.err.count("connection: lost: ")
    assert "reconnected" in done.err
    assert 1 == len(list(remote.jobs.iterdir()))


@pytest.mark.nightly
def test_a_pulled_cable_is_noticed(pair: Make, ended: Ended) -> None:
    """
    Nothing passes any more, without an error: ssh finds out, and the run is followed over a new connection.
    """
    remote = pair(remote=HELD)
    often = f"{remote.server.words} -o ServerAliveInterval=1 -o ServerAliveCountMax=2"
    process = remote.with_environment(GATEKEEPER_SSH=often).project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    assert remote.server.freeze() > 0
    remote.go()
    done = ended(process)

    remote.verdict(done)
    assert "connection: lost: mini " in done.err
    assert "reconnected" in done.err


def test_the_same_command_attaches_after_a_kill_here(pair: Make, ended: Ended) -> None:
    """
    Kill -9 on the client in the soak: the run continues there, and the same command attaches to it, by its run id.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY)
    until(remote.soaking)
    process.kill()
    ended(process)
    (before,) = remote.registry()
    remote.go()

    done = remote.project.run(*CERTIFY)

    (after,) = remote.registry()
    remote.verdict(done, after["out"])
    assert ("open", "closed") == (before["state"], after["state"])
    assert before["run_id"] == after["run_id"] == remote.job().name
    assert f"attached to {before['run_id']}" in done.err


@pytest.mark.nightly
def test_a_run_is_found_without_the_registry(pair: Make, ended: Ended) -> None:
    """
    With its registry deleted this machine still finds its own run in the remote list, and downloads it.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY)
    until(remote.soaking)
    process.kill()
    ended(process)
    for path in (remote.project.path / "runs").glob("*.remote.json"):
        path.unlink()
    remote.go()

    done = remote.project.run(*CERTIFY)

    (entry,) = remote.registry()
    remote.verdict(done, entry["out"])
    assert remote.job().name == entry["run_id"]


def test_ctrl_c_detaches_and_says_what_to_do(pair: Make, ended: Ended) -> None:
    """
    Ctrl-C is 130 and leaves the remote run alone; attach downloads it.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY)
    until(remote.soaking)

    process.send_signal(signal.SIGINT)
    detached = ended(process)
    running = remote.process().is_running()
    attaching = remote.project.start("remote", "attach", *ON, "--json")
    until(lambda: any((remote.project.path / "runs").glob(".*.lock")))  # it has found the run, which may end now
    remote.go()
    attached = ended(attaching)

    assert (130, True) == (detached.code, running)
    assert "attach" in detached.err
    assert "gatekeeper remote cancel" in detached.err
    assert attached.document == remote.verdict(attached, f"runs/{remote.job().name}")


def test_a_second_client_is_locked_out_and_a_run_can_be_cancelled(pair: Make, ended: Ended) -> None:
    """
    While a run measures there, another command is refused with its owner, and the same one with its follower. Cancel
    has gatekeeper there end by itself; whoever follows ends with 3 and the name of who cancelled.
    """
    remote = pair(REAL_TIME, soak=ENDLESS)
    process = remote.project.start(*CERTIFY, "--out", "runs/run")
    until(remote.soaking)

    second = remote.project.run("remote", "soak", "slo.toml", *ON, code=3)
    repeated = remote.project.run(*CERTIFY, "--out", "runs/run", code=3)
    cancelled = remote.project.run("remote", "cancel", *ON, "--json", code=0).document
    done = ended(process)

    assert f"mini is locked by {json.loads((remote.job() / 'job.json').read_text())['owner']}, run " in second.err
    assert f"(process {process.pid}) already follows {remote.job().name}" in repeated.err
    assert "attached" not in repeated.err
    assert 1 == len(list(remote.jobs.iterdir()))
    assert ("graceful", "finished") == (cancelled["how"], cancelled["state"])
    assert 3 == done.code
    assert "was cancelled by " in done.err
    assert (remote.project.path / "runs/run/soak-1.jsonl").is_file()


def test_a_run_started_on_that_host_locks_it_too(pair: Make, ended: Ended) -> None:
    """
    A run that was started on that machine itself is found before anything is started, and its owner named.
    """
    remote = pair(REAL_TIME, soak=ENDLESS)
    her_variables = {"GATEKEEPER_HOST_LOCK": str(remote.server.root / "host.lock"), "GATEKEEPER_OWNER": "anna@desk"}
    local = remote.with_environment(**her_variables).project.start("certify", "slo.toml", "--out", "hers")
    until((remote.project.path / "hers/plan.json").exists)

    refused = remote.project.run(*CERTIFY, code=3)

    assert None is local.poll()
    local.terminate()
    ended(local)
    assert "anna@desk, run hers" in refused.err
    assert [] == remote.registry()
    assert [] == list(remote.jobs.iterdir())


@pytest.mark.nightly
def test_a_killed_gatekeeper_there_is_reported_and_its_run_resumed(pair: Make, ended: Ended) -> None:
    """
    Kill -9 on the remote gatekeeper: exit 3 with that reason, the partial run is downloaded; --resume continues it.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    remote.process().kill()
    done = ended(process)
    partial = (remote.project.path / "run/soak-1.jsonl").read_text()
    remote.go()
    judged = remote.project.run("judge", "run", code=3)
    resumed = remote.project.run(*CERTIFY, "--out", "run", "--resume")

    assert 3 == done.code
    assert "was killed by signal 9" in done.err
    assert "unproven" in done.out
    assert "during soak-1" in judged.out
    assert len(partial.splitlines()) > 5
    assert (remote.project.path / "run/soak-1.jsonl").read_text().startswith(partial.rpartition("\n")[0])
    remote.verdict(resumed)
    assert 1 == len(list(remote.jobs.iterdir()))


@pytest.mark.nightly
def test_a_run_whose_supervisor_is_killed_continues(pair: Make, ended: Ended) -> None:
    """
    Kill -9 on the supervisor: the run finishes and writes its checksums, its verdict holds, and a remark says why.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    os.kill(remote.pid("supervisor"), signal.SIGKILL)
    remote.go()
    done = ended(process)

    remote.verdict(done)
    assert "finished without it" in done.err
    assert not (remote.job() / "exit.json").exists()


@pytest.mark.nightly
def test_a_restart_of_the_machine_is_found(pair: Make, ended: Ended, tmp_path: Path) -> None:
    """
    All remote processes die and the host boots with another boot id: exit 3 reports the restart.
    """
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    remote = pair(remote={**HELD, "GATEKEEPER_BOOT_ID_FILE": str(boot)})
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    supervisor = remote.pid("supervisor")
    os.kill(supervisor, signal.SIGSTOP)  # after a power cut no process is left to write down how the run ended
    remote.process().kill()
    os.kill(supervisor, signal.SIGKILL)
    boot.write_text("second\n")
    remote.server.cut()
    done = ended(process)

    assert 3 == done.code
    assert "was restarted during" in done.err
    assert (remote.project.path / "run/events.jsonl").is_file()
    assert [("closed", "rebooted")] == [(entry["state"], entry["outcome"]) for entry in remote.registry(".")]


@pytest.mark.nightly
def test_waiting_ends_with_patience(pair: Make, ended: Ended) -> None:
    """
    With the host gone for longer than --patience: exit 3, and what to do; the host returns, and so does the run.
    """
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--patience", "1 s", "--out", "run")
    until(remote.soaking)

    remote.server.stop()
    finished = ended(process)
    remote.server.start()
    remote.go()
    done = remote.project.run(*CERTIFY, "--out", "run")

    assert 3 == finished.code
    assert "the run continues" in finished.err
    assert "attached to " in done.err
    remote.verdict(done)


def test_a_run_that_never_started_keeps_its_id_while_its_folder_is_empty(
    scripted: Callable[..., ProjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A registered run that the host does not list is started under its id, but not into a folder that has files: the same
    command would be refused for a folder that its user never named.
    """
    monkeypatch.chdir(scripted().path)
    run = NewRun(RemoteRunner(RemoteHost("mini", "mini"), Mock()), RemoteCommand(("certify",), Path("slo.toml")))
    entry = run._new_entry()
    run._registry.write(entry)
    connection = Mock(request=Mock(return_value={"jobs": []}))

    empty = run._find(connection)
    Path(entry.out).mkdir()
    (Path(entry.out) / "manifest.json").touch()
    filled = run._find(connection)

    assert ((entry, None), (None, None)) == (empty, filled)
