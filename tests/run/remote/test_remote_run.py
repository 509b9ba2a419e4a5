"""A certify on a remote host, over a real ssh connection: equal to a local one, whatever happens meanwhile."""

import json
import os
import signal
import tomllib

import pytest

from tests.builders.slo import objective
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, ENDLESS, HELD, ON, REAL_TIME, Ended, Make


def test_a_remote_run_is_downloaded_and_judged_again(pair: Make) -> None:
    """Certified by a gatekeeper in ~/.local/bin, downloaded whole, and judged to the same bytes."""
    remote = pair()

    done = remote.project.run(*CERTIFY, "--out", "run", "--json", code=0)
    judged = remote.project.run("judge", "run", "--json", code=0)

    local_verdict = (remote.project.path / "run/verdict.json").read_text()
    assert (remote.run() / "verdict.json").read_text() == done.out == judged.out == local_verdict
    assert "the same verdict" in done.err
    assert "soak-1: at least 60 s" in done.err
    assert "promoted" == done.document["outcome"]
    assert {"policy.toml", "SHA256SUMS", "report.html"} <= {
        path.name for path in (remote.project.path / "run").iterdir()
    }
    assert [] == list(remote.project.path.glob(".run.*"))
    assert [("ended", 0, True)] == [(run["state"], run["exit_code"], run["fetched"]) for run in remote.listed()]


@pytest.mark.nightly
def test_a_cut_connection_changes_nothing(pair: Make, ended: Ended) -> None:
    """Every session is killed in mid-soak: the loss is reported once, and the client reconnects."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    assert remote.server.cut() > 0
    remote.go()
    done = ended(process)

    remote.verdict(done)
    assert 1 == done.err.count("connection: lost: ")
    assert "reconnected" in done.err
    assert 1 == len(remote.jobs)


@pytest.mark.nightly
def test_a_pulled_cable_is_noticed(pair: Make, ended: Ended) -> None:
    """Nothing passes any more, without an error: ssh finds out, and the run is followed over a new connection."""
    remote = pair(remote=HELD)
    often = f"{remote.server.words} -o ServerAliveInterval=1 -o ServerAliveCountMax=2"
    process = remote.with_environment(GATEKEEPER_SSH=often).project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    assert remote.server.freeze() > 0
    remote.go()
    done = ended(process)

    remote.verdict(done)
    assert "connection: lost: no connection to mini: Timeout" in done.err
    assert "reconnected" in done.err


def test_the_same_command_attaches_after_a_kill_here(pair: Make, ended: Ended) -> None:
    """Kill -9 on the client in the soak: the run continues there, and the same command attaches to it."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY)
    until(remote.soaking)
    process.kill()
    ended(process)
    remote.go()

    done = remote.project.run(*CERTIFY)

    name = remote.job().name
    remote.verdict(done, f"runs/{name}")
    assert f"attached to {name}" in done.err
    assert 1 == len(remote.jobs)


def test_ctrl_c_detaches_and_says_what_to_do(pair: Make, ended: Ended) -> None:
    """Ctrl-C is 130 and leaves the remote run alone; attach downloads it."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY)
    until(remote.soaking)

    process.send_signal(signal.SIGINT)
    detached = ended(process)
    running = remote.process().is_running()
    attaching = remote.project.start("remote", "attach", *ON, "--json")
    remote.go()
    attached = ended(attaching)

    assert (130, True) == (detached.code, running)
    assert "attach" in detached.err
    assert "gatekeeper remote cancel" in detached.err
    assert attached.document == remote.verdict(attached, f"runs/{remote.job().name}")


def test_a_second_client_is_locked_out_and_a_run_can_be_cancelled(pair: Make, ended: Ended) -> None:
    """A second command is refused with the owner; cancel ends the run, and names who cancelled it."""
    remote = pair(REAL_TIME, soak=ENDLESS)
    process = remote.project.start(*CERTIFY, "--out", "runs/run")
    until(remote.soaking)
    (remote.project.path / "other.toml").write_text((remote.project.path / "slo.toml").read_text() + "\n")

    second = remote.project.run("remote", "certify", "other.toml", *ON, code=3)
    cancelled = remote.project.run("remote", "cancel", *ON, "--json", code=0).document
    done = ended(process)

    record = json.loads((remote.job() / "job.json").read_text())
    assert all(text in second.err for text in (f"mini is locked by {record['owner']}, run ", record["started"]))
    assert 1 == len(remote.jobs)
    assert "graceful" == cancelled["how"]
    assert 3 == done.code
    assert "was cancelled by " in done.err
    assert (remote.project.path / "runs/run/soak-1.jsonl").is_file()
    assert ["cancelled"] == [line.split()[1] for line in remote.project.run("remote", "list", *ON).out.splitlines()[1:]]


def test_two_starts_at_once_make_one_run(pair: Make, ended: Ended) -> None:
    """Two commands that both find the host free: one run is started, and the other is refused."""
    remote = pair(REAL_TIME, soak={"duration": "2 s", "baseline_drift": 0.9})
    (remote.project.path / "other.toml").write_text((remote.project.path / "slo.toml").read_text() + "\n")

    processes = [remote.project.start("remote", "certify", name, *ON) for name in ("slo.toml", "other.toml")]
    first, second = sorted((ended(process) for process in processes), key=lambda done: "is locked by" in done.err)

    assert "the same verdict" in first.err
    assert (3, True) == (second.code, "is locked by" in second.err), second.err


@pytest.mark.nightly
def test_a_killed_gatekeeper_there_is_reported_and_its_run_resumed(pair: Make, ended: Ended) -> None:
    """Kill -9 there is exit 3 with the reason and the partial run; --resume continues it."""
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
    assert 1 == len(remote.jobs)


@pytest.mark.nightly
def test_a_run_whose_supervisor_is_killed_continues(pair: Make, ended: Ended) -> None:
    """Kill -9 on the shell that waits there: the run finishes, its verdict holds, and a remark says why."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    os.kill(int((remote.job() / "supervisor").read_text()), signal.SIGKILL)
    remote.go()
    done = ended(process)

    remote.verdict(done)
    assert "the shell that waited for it was killed" in done.err
    assert not (remote.job() / "exit").exists()


@pytest.mark.nightly
def test_a_restart_of_the_machine_is_found(pair: Make, ended: Ended) -> None:
    """All processes of the run are gone at once: exit 3 says what that means, and a new command starts a new run."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)

    supervisor = int((remote.job() / "supervisor").read_text())
    os.kill(supervisor, signal.SIGSTOP)  # after a power cut no process is left to write down how the run ended
    remote.process().kill()
    os.kill(supervisor, signal.SIGKILL)
    remote.server.cut()
    done = ended(process)
    remote.go()
    again = remote.project.run(*CERTIFY, "--out", "again")

    assert 3 == done.code
    assert "the host was restarted" in done.err
    assert (remote.project.path / "run/events.jsonl").is_file()
    remote.verdict(again, "again")
    assert 2 == len(remote.jobs)


def test_another_process_under_its_number_is_not_the_run(pair: Make, ended: Ended) -> None:
    """After a restart the process number of the run may be another program's: that is not taken for it, nor killed."""
    remote = pair(remote=HELD)
    process = remote.project.start(*CERTIFY, "--out", "run")
    until(remote.soaking)
    os.kill(int((remote.job() / "supervisor").read_text()), signal.SIGKILL)
    remote.process().kill()
    ended(process)

    for name in ("pid", "supervisor"):
        (remote.job() / name).write_text(f"{os.getpid()}\n")
    (listed,) = remote.listed()
    cancelled = remote.project.run("remote", "cancel", remote.job().name, *ON, code=0)

    assert "died" == listed["state"]
    assert "had already ended" in cancelled.out


@pytest.mark.nightly
def test_waiting_ends_with_patience(pair: Make, ended: Ended) -> None:
    """With the host gone for longer than --patience: exit 3, and what to do; the host returns, and so does the run."""
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


def test_the_certified_runs_of_the_host_are_compared_with(pair: Make) -> None:
    """Certified runs on that host count as local ones would; --baseline names one by its id alone."""
    against = objective("acceptance_rate", at_least=0.97, against="certified")
    soak = {"duration": "600 s", "until": "duration"}
    remote = pair(objective=[objective("throughput_ratio", at_least=1.05), against], soak=soak)

    refused = remote.project.run(*CERTIFY, "--out", "none", code=2)
    remote.project.run(*CERTIFY, "--baseline", "none", "--out", "first", code=0)
    (first,) = [run for run in remote.listed() if run["exit_code"] == 0]
    compared = remote.project.run(*CERTIFY, "--out", "second", code=0)
    elsewhere = remote.project.run(*CERTIFY, "--baseline", "../first", code=2)

    assert "--baseline none" in refused.err
    manifest = json.loads((remote.project.path / "second/manifest.json").read_text())
    assert manifest["certified"]["run"].endswith(first["run"])
    assert "the same verdict" in compared.err
    assert "no run of the remote host" in elsewhere.err


WRONG = [
    (("certify", "none.toml", "--on", "mini"), 2, "does not exist"),
    (("certify", "slo.toml"), 2, "--on"),
    (("certify", "slo.toml", "--on", "-oProxyCommand=x"), 2, "is not a valid host name"),
    (("certify", "slo.toml", "--on", "mini", "--patience", "soon"), 2, "--patience"),
    (("certify", "slo.toml", "--on", "mini", "--out", "."), 2, "is not empty"),
    (("certify", "slo.toml", "--on", "mini", "--resume"), 2, "no unfinished run of this command"),
    (("certify", "slo.toml", "--on", "mini", "--send-env", "NOT_SET"), 2, "this variable is not set"),
    (("certify", "keyed.toml", "--on", "nowhere.invalid"), 2, "--send-env MY_KEY"),
    (("certify", "contradicting.toml", "--on", "mini"), 2, "contradict each other"),
    (("attach", "--on", "mini"), 2, "no run is running"),
    (("cancel", "--on", "mini"), 2, "no run is running"),
    (("sertify", "slo.toml", "--on", "mini"), 2, "did you mean 'certify'?"),
    (("certify", "slo.toml", "--on", "nowhere.invalid"), 3, "nowhere.invalid"),
]


def test_a_wrong_command_says_what_to_do(pair: Make) -> None:
    """A wrong command line is 2, a host that cannot be reached 3; each says what is wrong and what to do."""
    remote = pair(objective=[objective("acceptance_rate", at_least=0.9)])
    slo = tomllib.loads((remote.project.path / "slo.toml").read_text())
    both = [*slo["objective"], objective("acceptance_rate", at_most=0.1)]
    remote.project.write_slo({**slo, "objective": both}, "contradicting.toml")
    remote.project.write_slo({**slo, "subject": {**slo["subject"], "api_key_env": "MY_KEY"}}, "keyed.toml")

    for words, code, sentence in WRONG:
        done = remote.project.run("remote", *words)

        assert (code, True) == (done.code, sentence in done.err), (words, done.err)
    assert not remote.server.state.exists()
