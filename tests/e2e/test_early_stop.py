"""A sweep that stops settings early: each stop is an event, is in the verdict, and is the same after a kill."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

from tests.builders.project_folder import ProjectFolder, canary_lines
from tests.builders.scripted_slo import BOTH
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]
SWEEP: dict[str, Any] = {"repeats": 2, "budget": 48, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}}


def larger(project: ProjectFolder) -> ProjectFolder:
    for prefix in ("easy", "hard"):
        (project.path / f"{prefix}.jsonl").write_text(canary_lines(prefix, 24))
    return project


def stopped(project: ProjectFolder) -> dict[tuple[str, str], str]:
    """Return why settings were stopped early, from events.jsonl, by workload and trial."""
    lines = (project.path / "run" / "events.jsonl").read_text().splitlines()[:-1]
    stops = [event["detail"] for line in lines if (event := json.loads(line))["kind"] == "stopped"]
    return {(stop["workload"], stop["trial"]): stop["because"] for stop in stops}


def written(project: ProjectFolder) -> dict[tuple[str, str], str]:
    """Return the same from verdict.json."""
    workloads = project.verdict()["workloads"]
    return {
        (workload["name"], setting["trial"]): setting["stopped"]["because"]
        for workload in workloads
        for setting in workload["choice"]["settings"]
        if "stopped" in setting
    }


def measured(project: ProjectFolder) -> int:
    files = [*(project.path / "run").glob("sweep-*.jsonl"), project.path / "run" / "baseline.jsonl"]
    return sum(line.count('"role":"measured"') for path in files for line in path.read_text().splitlines())


def test_early_stops_are_events_and_in_the_verdict(scripted: Scripted) -> None:
    """Where drafting loses, both settings are stopped after a few canaries: the events and the verdict have the same
    reasons, there are no more records, and judge computes the same verdict from them.
    """
    project = larger(scripted(sweep=SWEEP, workload=BOTH))

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    reasons = stopped(project)
    assert reasons == written(project)
    assert {("hard", "default"), ("hard", "num_draft_tokens-2")} <= reasons.keys()
    assert measured(project) < 0.7 * 2 * 24 * 2 * 3
    assert (project.path / "run" / "verdict.json").read_text() == project.run("judge", "run", "--json", code=0).out


def test_stop_never_sends_every_request(scripted: Scripted) -> None:
    """With stop = "never" each canary is requested as often as planned, in every setting."""
    project = larger(scripted(sweep={**SWEEP, "stop": "never"}))

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    assert {} == stopped(project) == written(project)
    assert 24 * 2 * 3 == measured(project)


def test_a_kill_in_the_sweep_changes_no_decision(scripted: Scripted) -> None:
    """Killed after the first look and resumed, what was stopped stays stopped, and the verdict re-derives to the
    byte.
    """
    project = larger(scripted({"shares_process": False}, sweep=SWEEP))
    paused = project.held("run/events.jsonl", word='"stopped"')
    process: subprocess.Popen[str] = paused.start("certify", "slo.toml", "--out", "run")
    until(lambda: (project.path / "run" / "events.jsonl").exists() and '"stopped"' in text(project))
    process.kill()
    process.communicate()

    project.run("certify", "slo.toml", "--out", "run", "--resume", "--quiet")

    assert stopped(project) == written(project)
    judged = project.run("judge", "run", "--json")
    assert (project.path / "run" / "verdict.json").read_text() == judged.out


def text(project: ProjectFolder) -> str:
    return (project.path / "run" / "events.jsonl").read_text()


def test_the_plan_counts_answers_at_most(scripted: Scripted) -> None:
    """The number of answers of a sweep depends on the answers; the plan shows the largest one."""
    project = larger(scripted(sweep=SWEEP))

    assert "at most" in project.run("plan", "slo.toml", code=0).out.splitlines()[0]
