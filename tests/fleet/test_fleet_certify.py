"""`gatekeeper fleet` with real ssh servers as hosts: who runs what, one at a time, and what is left when things end."""

import signal
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.builders.waiting import until
from tests.fleet.conftest import Fleet, overlap
from tests.run.remote.conftest import Ended

Make = Callable[..., Fleet]
NEVER: Mapping[str, Any] = {"objective": [{"metric": "ttft", "at_most": "1 ms", "when": "always", "why": "never"}]}


@pytest.mark.nightly
def test_trouble_on_one_host_is_not_that_of_another(make_fleet: Make, ended: Ended) -> None:
    """A host works, one loses its line, one dies, one refuses the key: the first two end both their runs."""
    fleet = make_fleet(4, {"never": NEVER, "one": {}})
    (fleet.servers["d"].root / "authorized").write_text("")
    fleet.hosts.hold()

    process = fleet.project.start("fleet", "certify", "never.toml", "one.toml", "--retries", "0", "--patience", "3 s")
    until(lambda: fleet.soaking("a", "b", "c"))
    fleet.servers["c"].close()
    assert fleet.servers["b"].cut()
    fleet.hosts.release()
    done = ended(process)

    cells = fleet.results()
    assert 1 == done.code, done.err  # a failed objective is worse than no proof
    assert ["failed", "failed"] == [cells[f"never@{host}"]["outcome"] for host in "ab"]
    assert ["promoted", "promoted"] == [cells[f"one@{host}"]["outcome"] for host in "ab"]
    assert "reconnected" in done.err
    for host in "ab":
        assert 2 == len(fleet.spans(host))
        assert not overlap(fleet.spans(host))
    assert overlap(sorted([fleet.spans("a")[0], fleet.spans("b")[0]]))
    assert "no connection to c: " in cells["never@c"]["error"]
    assert "ermission denied" in cells["never@d"]["error"]
    for name in ("never@c", "one@c", "never@d", "one@d"):
        assert (3, "") == (cells[name]["exit_code"], cells[name]["outcome"])
        assert cells[name]["hint"]
    _the_answer_is_a_table_and_a_gate(fleet, done.out)


def _the_answer_is_a_table_and_a_gate(fleet: Fleet, table: str) -> None:
    # A simulated run is of its own time: the gate finds each host's run, unchanged and expired.
    admitted = fleet.project.run("admit", "one.toml", "--fleet", "runs/fleet", "--grade", "demo", code=3)

    assert all(count in table for count in ("8 runs", "2 failed", "4 no verdict", "2 promoted", "exit code 1"))
    assert "one, one policy for all hosts: none, not proven: one@c, one@d" in table
    assert "2 promoted" in (fleet.project.path / "runs/fleet/fleet.md").read_text()
    assert "2 promoted" in (fleet.project.path / "runs/fleet/fleet.html").read_text()
    assert ["a: expired", "b: expired", "c: no_run", "d: no_run"] == [
        line[:10].rstrip(":") for line in admitted.out.splitlines()
    ]


def test_a_plan_says_what_fits(make_fleet: Make) -> None:
    """`[host]` decides before anything is started; a host that is down is named, and ends in code 3."""
    fleet = make_fleet(2, {"one": {}, "other": {"host": {"chip": "Apple M9"}}})
    fleet.servers["b"].stop()
    slos = ("one.toml", "other.toml")

    plan = fleet.project.run("fleet", "plan", *slos, "--json", code=3).document
    text = fleet.project.run("fleet", "plan", *slos, code=3).out
    fleet.project.run("fleet", "plan", *slos, "--only", "a", code=0)

    cells = {f"{cell['slo']}@{cell['host']}": cell for cell in plan["cells"]}
    assert cells["one@b"]["needs"][0].startswith("an answer: ")
    assert "not on a: other: chip is" in text
    assert "answer from b:" in text
    assert "\n1 run, " in text


@pytest.mark.nightly  # a quarter of a minute, with whole runs on several hosts
def test_whatever_is_killed_the_runs_continue(make_fleet: Make, ended: Ended) -> None:
    """Killed connections are replaced; after a killed controller the same command attaches; Ctrl-C leaves runs."""
    fleet = make_fleet(2, {"one": {}})
    fleet.hosts.hold()
    first = fleet.project.start("fleet", "certify", "one.toml")
    until(lambda: fleet.soaking("a", "b"))

    _kill_connections(first)
    _wait_for(first, ": reconnected", 2)
    first.send_signal(signal.SIGKILL)
    first.wait(30)
    second = fleet.project.start("fleet", "certify", "one.toml")
    _wait_for(second, ": attached to ", 2)
    second.send_signal(signal.SIGINT)
    done = ended(second)
    listed = [fleet.project.run("remote", "list", "--on", host, "--json").document["runs"] for host in fleet.servers]
    for host in fleet.servers:
        fleet.project.run("remote", "cancel", "--on", host, code=0)

    assert 130 == done.code
    assert "gatekeeper remote cancel" in done.err
    assert [["running"], ["running"]] == [[run["state"] for run in runs] for runs in listed]
    assert {"one@a": None, "one@b": None} == fleet.results()


def _kill_connections(controller: subprocess.Popen[str]) -> None:
    """Kill the ssh of each host."""
    for process in psutil.Process(controller.pid).children(recursive=True):
        if process.name() == "ssh":
            process.kill()


def _wait_for(controller: subprocess.Popen[str], words: str, count: int) -> None:
    """Wait until as many lines of a controller have the *words*."""
    assert controller.stderr is not None
    lines: list[str] = []
    while sum(words in line for line in lines) < count:
        lines.append(controller.stderr.readline())
        assert lines[-1], lines


@pytest.mark.nightly
def test_a_lost_cell_is_continued_in_its_fleet(make_fleet: Make, ended: Ended) -> None:
    """A killed gatekeeper is no verdict; --resume continues its run and keeps the other cells."""
    fleet = make_fleet(2, {"one": {}, "two": {}})
    fleet.hosts.hold()

    process = fleet.project.start("fleet", "certify", "one.toml", "two.toml")
    until(lambda: fleet.soaking("a", "b"))
    (killed,) = (job.name.split("-")[3] for job in fleet.runs("b"))
    for remote in fleet.servers["b"].left():
        with suppress(psutil.NoSuchProcess):
            remote.kill()
    fleet.hosts.release()
    first, lost = ended(process), fleet.results()[f"{killed}@b"]
    begun = {host: len(fleet.runs(host)) for host in "ab"}
    resumed = fleet.project.run("fleet", "certify", "one.toml", "two.toml", "--resume", "--json", "-q", code=0).document
    continued = {host: len(fleet.runs(host)) for host in "ab"}
    policies = [tomllib.loads(Path(file).read_text()) for file in resumed["policies"].values()]
    fleet.project.run("fleet", "certify", "one.toml", code=0)

    assert (3, 3, "") == (first.code, lost["exit_code"], lost["outcome"])
    assert lost["error"]
    assert lost["hint"]
    assert {"promoted"} == {cell["result"]["outcome"] for cell in resumed["cells"]}
    assert begun == continued
    assert [["a", "b"]] * 2 == [policy["hosts"] for policy in policies]
    assert [(True, 4)] * 2 == [
        (route["speculation"], route["setting"]["num_draft_tokens"]) for policy in policies for route in policy["route"]
    ]
    assert {"a": begun["a"] + 1, "b": begun["b"] + 1} == {host: len(fleet.runs(host)) for host in "ab"}
