"""The pass that asks plain decoding again, from the plan to the verdict."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.builders.project_folder import ProjectFolder

Scripted = Callable[..., ProjectFolder]
REPEATS = {
    "objective": [
        {"metric": "plain_repeat_agreement", "at_least": 1.0, "why": "the reference must stand still"},
        {"metric": "throughput_ratio", "at_least": 1.05, "why": "it must pay"},
    ]
}


def check(project: ProjectFolder) -> dict[str, Any]:
    """Return the first check on repeats."""
    steps = [step for workload in project.verdict()["workloads"] for step in (workload, *workload["steps"])]
    return next(entry for step in steps for entry in step["checks"] if entry["metric"] == "plain_repeat_agreement")


def test_each_canary_is_decoded_plainly_twice(scripted: Scripted) -> None:
    """What the soak lacks is sent after it; the plan names the pass, and the records alone give the same verdict
    again.
    """
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}, "budget": 8}
    project = scripted(**REPEATS, sweep=sweep)

    planned = project.run("plan", "slo.toml", code=0).out
    project.run("certify", "slo.toml", "--out", "run", code=0)
    judged = project.run("judge", "run", "--json", code=0).out

    assert "plain answers again" in planned
    lines = (project.path / "run" / "plain_repeats-1.jsonl").read_text().splitlines()
    sent = Counter(json.loads(line)["canary"] for line in lines if '"canary"' in line)
    assert sent
    assert max(sent.values()) <= 2
    assert ("pass", 1.0) == (check(project)["outcome"], check(project)["center"])
    assert json.loads(judged) == project.verdict()


def test_a_reference_that_changes_its_words_fails(scripted: Scripted) -> None:
    """Plain decoding that ends every third answer early gives some canary two answers: the objective fails."""
    project = scripted(**REPEATS, truth={"faults": [{"fault": "short", "every": 3, "arm": "plain"}]})

    project.run("certify", "slo.toml", "--out", "run")

    assert "fail" == check(project)["outcome"]


def test_above_temperature_0_nothing_is_sent(scripted: Scripted) -> None:
    """Sampled answers differ by right: the pass is not made, and the objective is unproven."""
    project = scripted(**REPEATS, sampling={"temperature": 0.7})

    project.run("certify", "slo.toml", "--out", "run", code=3)

    assert not (project.path / "run" / "plain_repeats-1.jsonl").exists()
