"""Whole runs on the real mlx_lm.server with the little pair."""

import tomllib
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.real_pair import TIMES, certified_as, records, smoke

pytestmark = pytest.mark.mlx


@pytest.mark.nightly
def test_the_real_server_is_certified(project: ProjectFolder) -> None:
    """The real mlx_lm.server: one process per arm, acceptance counted by our tap, both arms compared in blocks."""
    smoke(project, only="json", seconds=4, backend="mlx-server")

    certified_as(project, {"json": "promoted"})

    soaked = [record for path in (project.path / "run").glob("soak-*.jsonl") for record in records(path)]
    drafting = [record for record in soaked if record["arm"] == "candidate" and not record["answer"]["fault"]]
    assert drafting
    assert all(
        record["answer"]["rounds"]["drafted"] > 0 for record in drafting if record["answer"]["output_tokens"] > 1
    )


def test_a_server_that_exits_at_start_is_quoted(project: ProjectFolder) -> None:
    """A server that refuses its arguments is exit code 2 with the tail of its own log."""
    smoke(project, backend="mlx-server", args=["--no-such-flag"])

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert "--no-such-flag" in refused.err


def warm_cache(project: ProjectFolder, **subject: Any) -> ProjectFolder:
    """Write the shipped warm-cache SLO with absolute paths; *subject* changes its [subject]."""
    slo = tomllib.loads((ROOT / "slos" / "quickstart-warm-cache.toml").read_text())
    little = {"target": str(ROOT / "models" / "little-target"), "drafts": [str(ROOT / "models" / "little-draft")]}
    slo["subject"] |= {**little, **subject}
    project.write_slo(slo)
    return project


@pytest.mark.nightly  # most of a minute; tests/backends/dialects/test_mlx_server.py resumes a cached conversation
@pytest.mark.parametrize(("args", "outcome"), [([], "fail"), (["--prompt-cache-size", "0"], "pass")])
def test_the_warm_cache_of_the_real_server_is_soaked(project: ProjectFolder, args: list[str], outcome: str) -> None:
    """With its prompt cache on mlx_lm.server changes greedy answers, without it not; the soak finds that."""
    slo = tomllib.loads((warm_cache(project, args=args).path / "slo.toml").read_text())
    slo["workload"] = [workload | {"first": 5} for workload in slo["workload"] if workload["name"] == "json"]
    slo["sampling"]["max_tokens"] = 48
    slo["soak"] = {"duration": "2 s", "baseline_drift": 0.9}
    project.write_slo(slo)

    project.run("certify", "slo.toml", "--only", "soak", "--set", "num_draft_tokens=3", "--out", "run", code=0)

    (checks,) = (workload["checks"] for workload in project.verdict()["workloads"])
    timeless = {check["metric"]: check["outcome"] for check in checks if check["metric"] not in TIMES}
    expected = dict.fromkeys(timeless, "pass") | {"warm_cache_agreement": outcome}
    assert expected == timeless
    assert {"token_agreement", "error_rate", "speculation_engaged"} < timeless.keys()
