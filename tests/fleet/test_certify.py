"""`gatekeeper fleet` with real ssh servers as hosts: who runs what, one at a time, and what is left when things end."""

import json
import signal
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from tests.fleet.conftest import Fleet, overlap
from tests.run.remote.conftest import ENDLESS, REAL_TIME, UNHURRIED, Ended, Until

Make = Callable[..., Fleet]
SLOS: Mapping[str, Mapping[str, Any]] = {"one": {}, "two": {}}


def test_every_slo_is_certified_on_every_host(fleet: Make) -> None:
    """
    Two SLOs on two hosts give four verdicts. No two runs overlap on a host; the answer is written in three forms.
    """
    made = fleet(2, SLOS)

    done = made.place.run("fleet", "certify", "one.toml", "two.toml", "--json", code=0)

    found = made.answer()
    assert found == done.document
    assert {"one@a", "one@b", "two@a", "two@b"} == {one["name"] for one in found["cells"]}
    assert {"promoted"} == {one["outcome"] for one in found["cells"]}
    for host in made.servers:
        assert 2 == len(made.spans(host))
        assert not overlap(made.spans(host))
    assert "4 runs: 4 promoted" in (made.place.path / "runs/fleet/fleet.md").read_text()
    assert "4 promoted" in (made.place.path / "runs/fleet/fleet.html").read_text()
    (contrast, *_) = [one["workloads"]["easy"] for one in found["alike"]]
    assert "no difference shown" == contrast["says"]


def test_a_host_that_does_not_answer_leaves_its_runs_open(fleet: Make) -> None:
    """
    A host that is down is named with its reason; the other host's runs end, and the exit code is that of no proof.
    """
    made = fleet(2, {"one": {}})
    made.servers["b"].stop()

    plan = made.place.run("fleet", "plan", "one.toml", "--json", code=0).document
    made.place.run("fleet", "certify", "one.toml", "--retries", "0", code=3)

    assert plan["cells"][1]["needs"][0].startswith("an answer: ")
    up, down = made.answer()["cells"]
    assert ("promoted", "") == (up["outcome"], down["outcome"])
    assert "b" in down["error"]
    assert down["hint"]


def test_a_host_that_does_not_fit_takes_no_run(fleet: Make) -> None:
    """
    `[host]` decides before anything is installed: the plan says what differs, and the matrix leaves the pair out.
    """
    made = fleet(1, {"one": {}, "two": {"host": {"chip": "Apple M9"}}})

    plan = made.place.run("fleet", "plan", "one.toml", "two.toml", code=0)
    matrix = json.loads(made.place.run("fleet", "matrix", "one.toml", "two.toml", code=0).out)

    assert "not on a: two: chip is" in plan.out
    assert [("one.toml", "a")] == [(one["slo"], one["host"]) for one in matrix["include"]]


def test_a_failed_objective_is_not_tried_again(fleet: Make) -> None:
    """
    A failed objective is an answer at the first try: the worst exit code is that of the fleet.
    """
    made = fleet(1, {"one": {"objective": [{"metric": "ttft", "at_most": "1 ms", "when": "always", "why": "never"}]}})

    done = made.place.run("fleet", "certify", "one.toml", "--json")

    (cell,) = made.answer()["cells"]
    assert (1, "failed") == (done.code, cell["outcome"])
    assert 1 == len(made.spans("a"))


def test_a_killed_controller_attaches_to_what_runs(fleet: Make, until: Until, ended: Ended) -> None:
    """
    Kill -9 on the controller in the soak: the runs continue on their hosts, and the same command attaches to them.
    """
    made = fleet(2, {"one": {}}, REAL_TIME, soak=UNHURRIED)
    process = made.place.start("fleet", "certify", "one.toml")
    jobs = [server.state / "jobs" for server in made.servers.values()]
    until(lambda: all(any(job.glob("*/run/baseline.jsonl")) for job in jobs))

    process.send_signal(signal.SIGKILL)
    process.wait(30)
    done = ended(made.place.start("fleet", "certify", "one.toml"))

    assert done.code in {0, 3}, done.err  # a busy machine may prove nothing; what counts is that nothing ran twice
    assert [1, 1] == [len(list(job.iterdir())) for job in jobs]
    assert ["done", "done"] == [one["state"] for one in made.answer()["cells"]]


def test_cancel_ends_the_runs_of_the_fleet(fleet: Make, until: Until, ended: Ended) -> None:
    """
    Ctrl-C leaves the runs alone and says so; `fleet cancel` then ends each on its host.
    """
    made = fleet(2, {"one": {}}, REAL_TIME, soak=ENDLESS)
    process = made.place.start("fleet", "certify", "one.toml")
    jobs = [server.state / "jobs" for server in made.servers.values()]
    until(lambda: all(any(job.glob("*/run/baseline.jsonl")) for job in jobs))

    process.send_signal(signal.SIGINT)
    done = ended(process)
    listed = [made.place.run("remote", "list", "--on", host, "--json").document["runs"] for host in made.servers]
    cancelled = made.place.run("fleet", "cancel", code=0)

    assert 130 == done.code
    assert "gatekeeper fleet cancel stops them" in done.err
    assert ["running", "running"] == [runs[0]["state"] for runs in listed]
    assert 2 == cancelled.out.count(": cancelled")
    until(lambda: not any(one.left() for one in made.servers.values()))


def test_the_answer_of_a_fleet_is_a_gate_and_a_policy(fleet: Make) -> None:
    """
    `fleet report` repeats the answer and its exit code, `fleet policy` writes the routes that hold on both hosts.
    """
    made = fleet(2, {"one": {}})
    made.place.run("fleet", "certify", "one.toml", code=0)

    report = made.place.run("fleet", "report", code=0)
    policy = tomllib.loads(made.place.run("fleet", "policy", "one", code=0).out)

    assert "2 runs: 2 promoted (exit code 0)" in report.out
    assert ["a", "b"] == sorted(policy["hosts"])
    (route,) = policy["route"]
    assert route["speculation"]
    assert 4 == route["setting"]["num_draft_tokens"]
    # A simulated run is of its own time: the gate finds each host's run, unchanged and expired.
    admitted = made.place.run("admit", "one.toml", "--fleet", "runs/fleet", "--grade", "demo", code=3)
    assert ["a: expired", "b: expired"] == [line[:10] for line in admitted.out.splitlines()]
