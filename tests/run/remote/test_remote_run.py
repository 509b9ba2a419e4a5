"""A certify on another machine, over a real ssh connection: as if it were here, whatever happens on the way."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import psutil

from tests.builders.place import Done, Place
from tests.run.remote.conftest import Pair

Make = Callable[..., Pair]
Until = Callable[[Callable[[], bool]], None]
Ended = Callable[[subprocess.Popen[str]], Done]

REAL_TIME = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
UNHURRIED = {"duration": "3 s", "sentinel_drift": 0.9}
ENDLESS = {"duration": "600 s", "sentinel_drift": 0.9}
"""As long as somebody has to be there; it is ended by the test."""
CERTIFY = ("remote", "certify", "slo.toml", "--on", "far")


def answers(pair: Pair) -> int:
    """Count the answers that were recorded over there."""
    found = list(pair.jobs.glob("*/run/soak-1.jsonl"))
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
    assert "judged again here: the same verdict, byte for byte" in done.err
    assert "promoted" == done.document["outcome"]
    assert {"policy.toml", "SHA256SUMS", "report.html"} <= {one.name for one in (made.place.path / "run").iterdir()}
    assert not (made.place.path / ".run.part").exists()
    assert [("finished", 0, True)] == [(one["state"], one["exit_code"], one["fetched"]) for one in again]
    (entry,) = [json.loads(path.read_text()) for path in made.place.path.glob("*.remote.json")]
    assert ("closed", "promoted") == (entry["state"], entry["outcome"])
    assert f"numpy=={version('numpy')}" in entry["installed"]


def test_a_cut_connection_changes_nothing(pair: Make, until: Until, ended: Ended) -> None:
    """
    Every session is killed in the middle of the soak: the near side says so once, connects again, and ends with the
    verdict of a run that nobody disturbed.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    process = made.place.start(*CERTIFY, "--out", "run")
    until(lambda: answers(made) > 5)

    assert made.server.cut() > 0
    done = ended(process)

    made.home(done)
    assert 1 == done.err.count("connection: lost: ")
    assert "connected again" in done.err
    assert 1 == len(list(made.jobs.iterdir()))


def test_a_pulled_cable_is_noticed(pair: Make, until: Until, ended: Ended) -> None:
    """
    Nothing passes any more and nobody says so: ssh asks, finds out, and the run is followed over a new connection.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    often = f"{made.server.words} -o ServerAliveInterval=2 -o ServerAliveCountMax=3"
    near = Place(made.place.path, {**made.place.environment, "GATEKEEPER_SSH": often})
    process = near.start(*CERTIFY, "--out", "run")
    until(lambda: answers(made) > 5)

    assert made.server.freeze() > 0
    done = ended(process)

    made.home(done)
    assert "connection: lost: far does not answer" in done.err
    assert "connected again" in done.err


def test_the_same_command_attaches_after_a_kill_here(pair: Make, until: Until, ended: Ended) -> None:
    """
    Kill -9 on this side in the soak: the run goes on there, and the same command attaches to it, by its run id.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    process = made.place.start(*CERTIFY)
    until(lambda: answers(made) > 5)
    process.kill()
    ended(process)
    (before,) = made.ledger()

    done = made.place.run(*CERTIFY)

    (after,) = made.ledger()
    made.home(done, after["out"])
    assert ("open", "closed") == (before["state"], after["state"])
    assert before["run_id"] == after["run_id"] == made.job().name
    assert f"attached to {before['run_id']}" in done.err


def test_a_lost_ledger_is_made_good_by_the_far_side(pair: Make, until: Until, ended: Ended) -> None:
    """
    Without its ledger this machine still finds the run that is its own there, and brings it home.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    process = made.place.start(*CERTIFY)
    until(lambda: answers(made) > 5)
    process.kill()
    ended(process)
    for path in (made.place.path / "runs").glob("*.remote.json"):
        path.unlink()

    done = made.place.run(*CERTIFY)

    (entry,) = made.ledger()
    made.home(done, entry["out"])
    assert made.job().name == entry["run_id"]


def test_ctrl_c_detaches_and_says_what_to_do(pair: Make, until: Until, ended: Ended) -> None:
    """
    Ctrl-C here is 130 and ends nothing there; attach brings the run home.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    process = made.place.start(*CERTIFY)
    until(lambda: answers(made) > 5)

    process.send_signal(signal.SIGINT)
    left = ended(process)
    running = gatekeeper_there(made).is_running()
    attached = made.place.run("remote", "attach", "--on", "far", "--json")

    assert (130, True) == (left.code, running)
    assert "the same command attaches" in left.err
    assert "gatekeeper remote cancel" in left.err
    assert attached.document == made.home(attached, f"runs/{made.job().name}")


def test_a_second_client_is_locked_out(pair: Make, until: Until, ended: Ended) -> None:
    """
    While a run measures there, another order is refused with its owner and age: from here, and by a run over there.
    """
    made = pair(REAL_TIME, soak=ENDLESS)
    process = made.place.start(*CERTIFY)
    until(lambda: answers(made) > 5)

    second = made.place.run("remote", "soak", "slo.toml", "--on", "far", code=3)
    same = made.place.run(*CERTIFY, code=3)
    made.place.run("remote", "cancel", "--on", "far", code=0)
    ended(process)

    assert f"far is occupied by {json.loads((made.job() / 'job.json').read_text())['owner']}, run " in second.err
    assert f"(process {process.pid}) follows {made.job().name} already" in same.err
    assert "attached" not in same.err
    assert 1 == len(list(made.jobs.iterdir()))


def test_a_local_run_over_there_locks_out_as_well(pair: Make, until: Until, ended: Ended) -> None:
    """
    Who measures on that machine itself is found before anything is started, and named.
    """
    made = pair(REAL_TIME, soak=ENDLESS)
    theirs = {"GATEKEEPER_HOST_LOCK": str(made.server.root / "host.lock"), "GATEKEEPER_OWNER": "anna@desk"}
    local = Place(made.place.path, {**made.place.environment, **theirs}).start("certify", "slo.toml", "--out", "hers")
    until((made.place.path / "hers/plan.json").exists)

    refused = made.place.run(*CERTIFY, code=3)

    assert None is local.poll()
    local.terminate()
    ended(local)
    assert "occupied by anna@desk, run hers" in refused.err
    assert [] == made.ledger()
    assert [] == list(made.jobs.iterdir())


def test_a_killed_gatekeeper_there_is_told_with_what_it_left(pair: Make, until: Until, ended: Ended) -> None:
    """
    Kill -9 on the far gatekeeper: exit 3 that says so, its partial run home and unproven; --resume goes on with it.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    process = made.place.start(*CERTIFY, "--out", "run")
    until(lambda: answers(made) > 5)

    gatekeeper_there(made).kill()
    done = ended(process)
    partial = (made.place.path / "run/soak-1.jsonl").read_text()
    judged = made.place.run("judge", "run", code=3)
    resumed = made.place.run(*CERTIFY, "--out", "run", "--resume")

    assert 3 == done.code
    assert "was killed by signal 9" in done.err
    assert "unproven" in done.out
    assert "soak-1.jsonl" in judged.out
    assert len(partial.splitlines()) > 5
    assert (made.place.path / "run/soak-1.jsonl").read_text().startswith(partial.rpartition("\n")[0])
    made.home(resumed)
    assert 1 == len(list(made.jobs.iterdir()))


def test_a_run_whose_supervisor_is_killed_goes_on(pair: Make, until: Until, ended: Ended) -> None:
    """
    Kill -9 on what watches over the run: the run ends by itself, seals itself, and its verdict stands; that is said.
    """
    made = pair(REAL_TIME, soak=UNHURRIED)
    process = made.place.start(*CERTIFY, "--out", "run")
    until(lambda: answers(made) > 5)

    os.kill(json.loads((made.job() / "pids.json").read_text())["supervisor"], signal.SIGKILL)
    done = ended(process)

    made.home(done)
    assert "it came to its end by itself" in done.err
    assert not (made.job() / "exit.json").exists()


def test_a_restart_of_the_machine_is_found(pair: Make, until: Until, ended: Ended, tmp_path: Path) -> None:
    """
    Everything there dies and the machine comes up with another boot id: exit 3 that says restarted, never silence.
    """
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    made = pair(REAL_TIME, far={"GATEKEEPER_BOOT_ID_FILE": str(boot)}, soak=UNHURRIED)
    process = made.place.start(*CERTIFY, "--out", "run")
    until(lambda: answers(made) > 5)

    supervisor = json.loads((made.job() / "pids.json").read_text())["supervisor"]
    os.kill(supervisor, signal.SIGSTOP)  # a power cut leaves nobody to write down how it ended
    gatekeeper_there(made).kill()
    os.kill(supervisor, signal.SIGKILL)
    boot.write_text("second\n")
    made.server.cut()
    done = ended(process)

    assert 3 == done.code
    assert "the machine was restarted during the run" in done.err
    assert (made.place.path / "run/events.jsonl").is_file()
    assert ("closed", "rebooted") == tuple(
        json.loads(path.read_text())[key]
        for path in made.place.path.glob("*.remote.json")
        for key in ("state", "outcome")
    )


def test_cancel_ends_a_run_and_its_follower_is_told(pair: Make, until: Until, ended: Ended) -> None:
    """
    Cancel asks gatekeeper there to end, which it does by itself; whoever follows ends with 3 and the name of who asked.
    """
    made = pair(REAL_TIME, soak=ENDLESS)
    process = made.place.start(*CERTIFY, "--out", "run")
    until(lambda: answers(made) > 5)

    cancelled = made.place.run("remote", "cancel", "--on", "far", "--json", code=0).document
    done = ended(process)

    assert ("graceful", "finished") == (cancelled["how"], cancelled["state"])
    assert 3 == done.code
    assert "was cancelled by " in done.err
    assert (made.place.path / "run/soak-1.jsonl").is_file()
