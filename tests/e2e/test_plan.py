"""`gatekeeper plan`: the forecast of a run's duration, with and without the models."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.plan.request_costs import Assumptions
from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.backends.scripted.scripted_answer import plan_answer
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import wall_seconds
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.records import Setting
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.run.plan import run_forecast
from gatekeeper.run.prepare import prepare
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY

Scripted = Callable[..., ProjectFolder]

RUNS: dict[str, dict[str, Any]] = {
    "promoted": {},
    "an early stop": {"sweep": {"repeats": 3, "stop": "early", "num_draft_tokens": [4]}},
    "a soak longer than its duration": {
        "soak": {"duration": "20 s", "baseline_share": 0.1},
        "objective": [{"metric": "token_agreement", "at_least": 1.0, "why": "every canary, in both arms"}],
    },
    "plain blocks": {"truth": {"shares_process": False}},
    "several streams": {"soak": {"duration": "300 s", "concurrency": 4}},
    "a fallback": {
        "objective": [{"metric": "acceptance_rate", "at_least": 0.99, "why": "no draft reaches it"}],
        "sweep": {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
    },
}


def forecast_by_script(slo_path: Path) -> tuple[float, float, list[float]]:
    """Return the least and the expected seconds of a run, and of each fallback step, by the script's own times."""
    prepared = prepare(read_inputs(slo_path), Path(), measuring=False)
    backend = prepared.backend
    assert isinstance(backend, ScriptedBackend)

    @cache
    def by_id(name: str, knobs: Setting) -> float:
        canary = canaries[name]
        request = DecodeRequest(canary, knobs, sampling_for(prepared.inputs.slo, canary, knobs, 1))
        return sum(gap for gap, _ in plan_answer(backend.context(request, number=0, pace=1.0, seconds=0.0)).bursts)

    def seconds_of(_workload: str, canary: Canary, knobs: Setting) -> float:
        return by_id(canary.id, knobs)

    canaries = {canary.id: canary for members in prepared.inputs.canaries.values() for canary in members}
    assumed = Assumptions(500.0, None, logits=False, answer_seconds=seconds_of)
    run = replace(run_forecast(prepared)[0], assumed=assumed)
    conditional = {each.name for each in FOLLOW_UPS if each.conditional}
    stages = {stage.name: stage.seconds for stage in run.stages()}
    saved = stages["sweep"] - run.shortest_sweep() + sum(stages.get(name, 0.0) for name in conditional)
    return sum(stages.values()) - saved, sum(stages.values()), [stage.seconds for stage in run.fallback()]


@pytest.mark.parametrize("name", RUNS)
def test_the_forecast_of_a_simulated_run_is_near_its_duration(name: str, scripted: Scripted) -> None:
    """With the steps that were taken a run lasts within 25 % of its forecast."""
    project = scripted(**RUNS[name], workload=EASY)

    least_s, most_s, fallback = forecast_by_script(project.path / "slo.toml")
    project.run("certify", "slo.toml", "--out", "run", "--quiet")

    events = [json.loads(line) for line in (project.path / "run" / "events.jsonl").read_text().splitlines()]
    times = [seconds for event in events if (seconds := wall_seconds(event.get("at", ""))) is not None]
    steps_taken = (
        len({event["detail"]["soak"] for event in events if event.get("detail", {}).get("stage") == "soak"}) - 1
    )
    took = max(times) - min(times) - sum(fallback[:steps_taken])
    assert 0.75 * least_s <= took <= 1.25 * most_s


def test_a_plan_needs_no_models(scripted: Scripted) -> None:
    """Without models `plan` derives the speed from the target's name, says how to fetch them, and ends in 3."""
    subject = {"backend": "mlx", "target": "someone/Other-8B-4bit", "drafts": ["someone/Other-0.5B-4bit"]}
    project = scripted(subject=subject)

    planned = project.run("plan", "slo.toml", code=3)

    assert all(word in planned.out for word in ("'someone/Other-8B-4bit'", "its name tells, 4.5 GB"))
    assert "expected in total" in planned.out
    assert "next:" not in planned.out
