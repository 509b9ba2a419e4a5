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
    """mlx_lm.server with a draft and its prompt cache on changes greedy answers, without the cache it does not; the
    soak
    finds exactly that, at any speed of this machine.
    """
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


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_the_warm_cache_of_the_real_server_is_caught(project: ProjectFolder) -> None:
    """mlx_lm.server with a draft and its prompt cache on changes greedy answers: that alone breaks, and grades back."""
    warm_cache(project)

    certified_as(project, {"json": "graded_back", "code": "graded_back"})

    verdict = project.verdict()
    broken = [step["because"].removeprefix("drafting off: ") for step in verdict["transitions"]]
    advice = {finding["advice"] for finding in verdict["findings"] if finding["kind"] == "warm_cache_changes_answers"}
    assert 1 == verdict["exit_code"]
    assert ["warm_cache_agreement", "warm_cache_agreement"] == [reason.partition(":")[0] for reason in broken]
    assert not any("; token_agreement" in reason or "; throughput_ratio" in reason for reason in broken)
    assert all("mlx-lm 0.23.2 to 0.32.2" in sentence and "--prompt-cache-size 0" in sentence for sentence in advice)
    assert advice
    assert verdict == project.run("judge", "run", "--json", code=1).document


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_the_way_out_of_the_warm_cache_is_promoted(project: ProjectFolder) -> None:
    """The same server deployed with `--prompt-cache-size 0` meets every objective, the one about the cache included."""
    warm_cache(project, args=["--prompt-cache-size", "0"])

    ran = certified_as(project, {"json": "promoted", "code": "promoted"})

    assert 0 == ran.code
