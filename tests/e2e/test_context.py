"""Length of the prompts: the same canaries at several lengths are workloads of their own, from sweep to policy."""

import json
import tomllib
from collections.abc import Callable

from gatekeeper.core.canary.filler import CHARACTERS
from tests.builders.project_folder import ProjectFolder

TIERS = {"1k": 1000, "4k": 4000, "16k": 16_000}
TRUTH = {"prefill": "100 ms", "prefill_token": "0.2 ms", "draft_prefill_token": "0.2 ms"}


def test_each_length_of_prompt_has_its_own_verdict_and_route(scripted: Callable[..., ProjectFolder]) -> None:
    """A draft reads long prompts too: whole answers are faster with short ones alone, and routes say how long."""
    workloads = [
        {"name": name, "canaries": "easy.jsonl", "context": tokens, "speculation": "optional"}
        for name, tokens in TIERS.items()
    ]
    objectives = [
        {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"},
        {"metric": "answer_throughput_ratio", "at_least": 1.05, "why": "the first token counts too"},
    ]
    project = scripted(TRUTH, workload=workloads, objective=objectives)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    outcomes = {workload["name"]: workload["outcome"] for workload in project.verdict()["workloads"]}
    routes = {
        route["workload"]: route for route in tomllib.loads((project.path / "run/policy.toml").read_text())["route"]
    }
    frozen = json.loads((project.path / "run/manifest.json").read_text())["canaries"]
    assert {"1k": "promoted", "4k": "promoted", "16k": "graded_back"} == outcomes
    assert {"1k": True, "4k": True, "16k": False} == {name: route["speculation"] for name, route in routes.items()}
    assert "answer_throughput_ratio" in routes["16k"]["because"]
    assert TIERS == {name: workload["context"] for name, workload in frozen.items()}
    for name in ("1k", "4k"):
        # The simulated system counts words, which are longer than the tokens of a large vocabulary.
        assert 0.5 * TIERS[name] < routes[name]["longest_prompt"] < TIERS[name] * CHARACTERS
