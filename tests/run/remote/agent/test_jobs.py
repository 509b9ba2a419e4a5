"""Jobs: a run that was started over a connection continues without it, and how it ended is never lost."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import AgentError, SshError
from tests.builders.ssh_server import Server, stand_in
from tests.builders.waiting import until
from tests.run.remote.conftest import Serve

LINES = 500

COUNT = f"""
import os, time
from pathlib import Path
for line in range({LINES}):
    with open("progress.jsonl", "a") as out:
        out.write('{{"line": ' + str(line) + '}}\\n')
    while line == {LINES // 2} and not Path("go-on").exists():
        time.sleep(0.01)
"""
"""Writes half of its lines, waits for a file, and writes the rest."""
WAIT = """
import json, os, signal, subprocess, sys, time
server = subprocess.Popen([sys.executable, "-I", "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
server.stdout.readline()
def end(*_):
    server.terminate()
    server.wait()
    os.write(1, b"ended its server\\n")
    os._exit(130)
signal.signal(signal.SIGTERM, end if sys.argv[2] == "graceful" else signal.SIG_IGN)
with open("progress.jsonl", "a") as out:
    out.write(json.dumps({"server": server.pid}) + "\\n")
while True:
    time.sleep(1)
"""
"""Starts a server in a new session, as gatekeeper does, and runs until it is ended."""
SERVER = "import time; print('up', flush=True); time.sleep(1000)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVER}"


def start(connection: Connection, run_id: str, environment: Path, *argv: str, **more: Any) -> dict[str, Any]:
    words = {"argv": list(argv), "owner": "me@laptop", "slo_sha256": "0", "environment": str(environment)}
    return connection.request("start", run_id=run_id, **(words | more))


def ended(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return the description of a job after its end."""
    job: dict[str, Any] = list(connection.stream("follow", run_id=run_id))[-1]["job"]
    return job


def only_job(connection: Connection) -> dict[str, Any]:
    (job,) = connection.request("jobs")["jobs"]
    document: dict[str, Any] = job
    return document


def pids(server: Server, run_id: str) -> dict[str, int]:
    document: dict[str, int] = json.loads((server.state / "jobs" / run_id / "pids.json").read_text())
    return document


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def waiting(connection: Connection, tmp_path: Path, server_does: str, end: str = "graceful") -> int:
    """Start a job that waits and has a server; return the server's process id."""
    start(connection, "one", stand_in(tmp_path / "waits", WAIT), server_does, end)
    for item in connection.stream("follow", run_id="one"):
        if item["lines"]:
            server: int = json.loads(item["lines"][0])["server"]
            return server
    raise AssertionError(only_job(connection))


def test_a_job_runs_to_its_end_and_says_how(serve: Serve, environment: Path) -> None:
    """
    The real gatekeeper runs detached; its state is read off its processes, and its exit code and words are kept.
    """
    serve()

    with Connection("mini") as connection:
        started = start(connection, "one", environment, "explain", "metrics")
        job = ended(connection, "one")

    assert started["run_id"] == "one"
    assert ("finished", 0) == (job["state"], job["exit"]["code"])
    assert "per host sample" in job["log"]  # the end of what it said: a log is cut at its beginning


def test_a_job_that_never_began_is_reported_and_leaves_its_name_free(serve: Serve, tmp_path: Path) -> None:
    """
    A broken environment is reported with its output; once it is repaired, the same run starts.
    """
    serve()
    broken = stand_in(tmp_path / "broken", "")
    text = (broken / "bin" / "python").read_text()
    (broken / "bin" / "python").write_text("#!/bin/sh\necho this Python is broken >&2\nexit 1\n")

    with Connection("mini") as connection:
        with pytest.raises(AgentError, match="this Python is broken") as refused:
            start(connection, "one", broken)
        assert {"jobs": []} == connection.request("jobs")
        (broken / "bin" / "python").write_text(text)
        start(connection, "one", broken)
        job = ended(connection, "one")

    assert ("start", "finished") == (refused.value.kind, job["state"])


def test_a_job_outlives_a_cut_connection_and_no_line_is_lost(serve: Serve, tmp_path: Path) -> None:
    """
    Cut in the middle, a job continues; followed again from where the first connection was, no line is lost or repeated.
    """
    server = serve()
    lines: list[int] = []
    offset = 0
    with Connection("mini") as connection:
        start(connection, "one", stand_in(tmp_path / "counts", COUNT))
        followed = connection.stream("follow", run_id="one")
        while not lines or lines[-1] < LINES // 2:
            item = next(followed)
            offset = item["offset"]
            lines += [json.loads(line)["line"] for line in item["lines"]]
        server.cut()
        with pytest.raises(SshError):
            list(followed)
    with Connection("mini") as connection:
        assert only_job(connection)["state"] == "running"
        (server.state / "jobs" / "one" / "go-on").touch()
        for item in connection.stream("follow", run_id="one", offset=offset):
            lines += [json.loads(line)["line"] for line in item["lines"]]

    assert list(range(LINES)) == lines
    assert ("finished", 0) == (item["job"]["state"], item["job"]["exit"]["code"])


def test_a_second_run_is_refused(serve: Serve, tmp_path: Path) -> None:
    """
    While a job runs no other is started; the refusal names its owner and since when. Afterwards one is.
    """
    serve()
    with Connection("mini") as connection, Connection("mini") as second:
        waiting(connection, tmp_path, SERVER)
        with pytest.raises(AgentError, match="me@laptop") as refused:
            start(second, "two", tmp_path / "waits", SERVER, "graceful")
        with pytest.raises(AgentError) as existing:
            start(second, "one", tmp_path / "waits", SERVER, "graceful")
        list(second.stream("cancel", run_id="one"))
        start(second, "two", stand_in(tmp_path / "done", ""))

        assert ("busy", "exists") == (refused.value.kind, existing.value.kind)
        assert refused.value.more["job"]["started"] in refused.value.message
        assert "finished" == ended(second, "two")["state"]


def test_cancel_terminates_first(serve: Serve, tmp_path: Path) -> None:
    """
    The run is terminated, ends its server itself and exits with 130; nothing is killed, and the response says so.
    """
    server = serve()
    with Connection("mini") as connection:
        served = waiting(connection, tmp_path, SERVER)
    with Connection("mini") as connection:
        last = list(connection.stream("cancel", run_id="one", who="me"))[-1]

    assert ("graceful", [], 130) == (last["how"], last["killed"], last["job"]["exit"]["code"])
    assert "ended its server" in (server.state / "jobs" / "one" / "log").read_text()
    assert "me" == last["job"]["cancelled"]["who"]
    assert gone(served)


@pytest.mark.nightly
def test_cancel_kills_what_does_not_end(serve: Serve, tmp_path: Path) -> None:
    """
    A process that ignores SIGTERM is killed after the grace, a server in its own session too; the response says so.
    """
    server = serve()
    with Connection("mini") as connection:
        served = waiting(connection, tmp_path, STUBBORN, "stubborn")
        root = pids(server, "one")["gatekeeper"]
    with Connection("mini") as connection:
        last = list(connection.stream("cancel", run_id="one", grace_s=0.3))[-1]

    assert ("killed", sorted([root, served])) == (last["how"], last["killed"])
    assert (None, signal.SIGKILL) == (last["job"]["exit"]["code"], last["job"]["exit"]["signal"])
    assert gone(root)
    assert gone(served)


def test_cancel_of_a_real_run(serve: Serve, environment: Path) -> None:
    """
    The real gatekeeper ends by itself when it is terminated, with the code of an interruption.
    """
    server = serve()
    with Connection("mini") as connection:
        start(connection, "one", environment, "host", "--samples", "100000", "--interval", "0.2", "--json")
        until(lambda: (server.state / "jobs" / "one" / "log").stat().st_size, "the first sample is written")
        last = list(connection.stream("cancel", run_id="one"))[-1]

    assert ("graceful", 130) == (last["how"], last["job"]["exit"]["code"])


def test_a_killed_gatekeeper_is_found(serve: Serve, tmp_path: Path) -> None:
    """
    A gatekeeper that was killed leaves the signal behind.
    """
    server = serve()
    with Connection("mini") as connection:
        waiting(connection, tmp_path, SERVER)
    os.kill(pids(server, "one")["gatekeeper"], signal.SIGKILL)
    with Connection("mini") as connection:
        job = ended(connection, "one")

    assert ("finished", None, signal.SIGKILL) == (job["state"], job["exit"]["code"], job["exit"]["signal"])


def test_a_killed_supervisor_is_found(serve: Serve, tmp_path: Path) -> None:
    """
    A run without its supervisor is running while gatekeeper lives, may be cancelled, and has died afterwards.
    """
    server = serve()
    with Connection("mini") as connection:
        waiting(connection, tmp_path, SERVER)
    os.kill(pids(server, "one")["supervisor"], signal.SIGKILL)
    with Connection("mini") as connection:
        until(lambda: gone(pids(server, "one")["supervisor"]), "its supervisor has gone")
        orphan = only_job(connection)
        with pytest.raises(AgentError, match="has been running one"):
            start(connection, "two", tmp_path / "waits", SERVER, "graceful")
        last = list(connection.stream("cancel", run_id="one"))[-1]
        start(connection, "two", stand_in(tmp_path / "done", ""))

    assert ("running", "died", None) == (orphan["state"], last["job"]["state"], last["job"]["exit"])
    assert "graceful" == last["how"]


def test_a_reboot_is_found(serve: Serve, tmp_path: Path) -> None:
    """
    A run whose machine was restarted before it ended is `rebooted`; its lock does not block the next.
    """
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    server = serve(GATEKEEPER_BOOT_ID_FILE=str(boot))
    with Connection("mini") as connection:
        waiting(connection, tmp_path, SERVER)
    for name in ("supervisor", "gatekeeper"):
        os.kill(pids(server, "one")[name], signal.SIGKILL)
    boot.write_text("second\n")
    with Connection("mini") as connection:
        job = until(
            lambda: [job for job in connection.request("jobs")["jobs"] if job["state"] != "running"], "it has gone"
        )[0]
        start(connection, "two", stand_in(tmp_path / "done", ""))
        then = ended(connection, "two")

    assert ("rebooted", None, "first") == (job["state"], job["exit"], job["boot_id"])
    assert "finished" == then["state"]


@pytest.mark.nightly
def test_an_orderly_reboot_is_no_interruption_by_the_user(serve: Serve, tmp_path: Path) -> None:
    """
    A shutdown terminates the processes of a machine; a run that it terminated was rebooted, not finished.
    """
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    server = serve(GATEKEEPER_BOOT_ID_FILE=str(boot))
    with Connection("mini") as connection:
        waiting(connection, tmp_path, SERVER)
    os.kill(pids(server, "one")["supervisor"], signal.SIGTERM)
    until((server.state / "jobs" / "one" / "exit.json").exists, "it has ended")
    boot.write_text("second\n")
    with Connection("mini") as connection:
        job = only_job(connection)

    assert ("rebooted", 130) == (job["state"], job["exit"]["code"])


def test_files_are_listed_fetched_and_removed(serve: Serve, tmp_path: Path) -> None:
    """
    The run directory of a job is listed with digests; a job that has ended may be forgotten, one that runs may not.
    """
    server = serve()
    script = (
        "import os; os.makedirs('run/deep'); open('run/deep/a b', 'w').write('x' * 10); os.symlink('/etc', 'run/s')"
    )
    with Connection("mini") as connection:
        start(connection, "one", stand_in(tmp_path / "writes", script))
        ended(connection, "one")
        files = list(connection.stream("files", run_id="one"))
        waiting_for = stand_in(tmp_path / "waits", WAIT)
        start(connection, "two", waiting_for, SERVER, "graceful")
        with pytest.raises(AgentError, match="still running"):
            connection.request("remove", run_id="two")
        removed = connection.request("remove", run_id="one")

    assert [("deep/a b", 10)] == [(file["name"], file["size"]) for file in files]
    assert {"removed": True} == removed
    assert {"two"} == {path.name for path in (server.state / "jobs").iterdir() if path.is_dir()}


def test_a_command_in_the_foreground_ends_with_the_link(serve: Serve, tmp_path: Path) -> None:
    """
    A command that was not detached ends with the connection.
    """
    server = serve()
    stand_in(tmp_path / "talks", "import time\nprint('here', flush=True)\ntime.sleep(1000)")

    with Connection("mini") as connection:
        for item in connection.stream("run", argv=[], environment=str(tmp_path / "talks")):
            assert b"here\n" == item["content"]
            break

    until(lambda: not any("gatekeeper.py" in words for words in server.commands().values()), "it has ended")


def test_inputs_of_a_run_that_never_began_are_removed(serve: Serve, tmp_path: Path) -> None:
    """
    Inputs of a run that was refused are removed after a day, when another begins; new inputs stay, and so does a run
    that began. A damaged job.json prevents nothing.
    """
    jobs = serve().state / "jobs"
    for name in ("abandoned", "damaged", "delivered"):
        (jobs / name / "inputs").mkdir(parents=True)
    (jobs / "damaged" / "job.json").write_text('{"run_id": ')
    done = stand_in(tmp_path / "done", "")

    with Connection("mini") as connection:
        start(connection, "zero", done)
        ended(connection, "zero")
        for name in ("abandoned", "damaged", "zero"):
            os.utime(jobs / name, (1000, 1000))
        listed = [job["run_id"] for job in connection.request("jobs")["jobs"]]
        start(connection, "one", done)
        ended(connection, "one")

    assert ["zero"] == listed
    assert {"delivered", "zero", "one"} == {path.name for path in jobs.iterdir()}
