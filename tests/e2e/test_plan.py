"""`gatekeeper plan`: the forecast of a run's duration, with and without the models."""

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper.core.clock import wall_seconds
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY

Scripted = Callable[..., ProjectFolder]

RUNS: dict[str, dict[str, Any]] = {
    "promoted": {},
    "an early stop": {"sweep": {"repeats": 3, "stop": "early", "num_draft_tokens": [4]}},
    "a soak longer than its duration": {
        "soak": {"duration": "20 s", "sentinel_share": 0.1},
        "objective": [{"metric": "token_agreement", "at_least": 1.0, "why": "every canary, in both arms"}],
    },
    "plain blocks": {"truth": {"shares_process": False}},
    "several streams": {"soak": {"duration": "300 s", "concurrency": 4}},
    "a fallback": {
        "objective": [{"metric": "acceptance_rate", "at_least": 0.99, "why": "no draft reaches it"}],
        "sweep": {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_the_forecast_of_a_simulated_run_is_near_its_duration(name: str, scripted: Scripted) -> None:
    """
    With the fallback steps that were taken, the time between first and last event is within 25 % of the forecast, which
    is a range where the sweep may stop early.
    """
    project = scripted(**RUNS[name], workload=EASY)

    planned = json.loads(project.run("plan", "slo.toml", "--json", code=0).out)
    project.run("certify", "slo.toml", "--out", "run", "--quiet")

    events = [json.loads(line) for line in (project.path / "run" / "events.jsonl").read_text().splitlines()]
    times = [seconds for event in events if (seconds := wall_seconds(event.get("at", ""))) is not None]
    steps = list(planned["expected_fallback_seconds"].values())
    steps_taken = (
        len({event["detail"]["soak"] for event in events if event.get("detail", {}).get("stage") == "soak"}) - 1
    )
    took = max(times) - min(times) - sum(steps[:steps_taken])
    assert 0.75 * planned["least_total_seconds"] <= took <= 1.25 * planned["expected_total_seconds"]


def test_a_plan_needs_no_models(scripted: Scripted) -> None:
    """
    Where the models are not on this machine, `plan` says so, derives the speed from the target's name, and ends in 3.
    """
    subject = {"backend": "mlx", "target": "someone/Other-8B-4bit", "drafts": ["someone/Other-0.5B-4bit"]}
    project = scripted(subject=subject)

    planned = project.run("plan", "slo.toml", code=3)

    assert all(word in planned.out for word in ("'someone/Other-8B-4bit'", "its name tells, 4.5 GB"))
    assert "expected in total" in planned.out
    assert "next:" not in planned.out


def test_a_plan_that_can_be_run_ends_with_its_command(scripted: Scripted) -> None:
    """
    The last line is the command that certifies the file, which runs as pasted.
    """
    last = scripted(workload=EASY).run("plan", "slo.toml", code=0).out.splitlines()[-1]

    assert last.startswith("next: ")
    assert shlex.split(last)[-2:] == ["certify", "slo.toml"]


def test_a_given_speed_is_used(scripted: Scripted) -> None:
    """
    `--assume` sets the speed of plain decoding; a quantity of another kind is refused with an example.
    """
    project = scripted()

    assert "40 tok/s" in project.run("plan", "slo.toml", "--assume", "40 tok/s", code=0).out
    assert "--assume '40 tok/s'" in project.run("plan", "slo.toml", "--assume", "40 W", code=2).err
