"""Objectives with `against = "certified"`: no worse than the last certified run, or unproven."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.judgement import AGAINST_CERTIFIED
from tests.builders.project_folder import ProjectFolder, project_folder
from tests.builders.scripted_slo import EASY, write_scripted

OBJECTIVES = [
    {"metric": "throughput_ratio", "at_least": 1.05, "why": "it must pay"},
    {"metric": "throughput_ratio", "at_least": 0.95, "against": "certified", "why": "no slower than certified"},
    {"metric": "acceptance_rate", "at_least": 0.97, "against": "certified", "why": "the draft fits as well"},
    {"metric": "system_throughput_ratio", "at_least": 0.9, "against": "certified", "why": "the host does as much"},
    {"metric": "ttft_delta", "at_most": 0.1, "against": "certified", "why": "the first token comes as early"},
    {"metric": "task_pass_delta", "at_least": 0.0, "against": "certified", "why": "answers are as good"},
]
WHOLE = {"duration": "600 s", "until": "duration"}
"""The shortest soak that certifies."""
SLOWER = {"canaries": {"easy-": {"acceptance": 0.75}}}


# Runs of a script begin at the same time: the newest is the last by its name.
RUNS = ("second", "third", "third-other", "third-then")


def write(project: ProjectFolder, truth: Mapping[str, Any] | None = None, **changes: Any) -> None:
    write_scripted(project, truth, **{"workload": EASY, "objective": OBJECTIVES, "soak": WHOLE, **changes})


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """A folder with the first certified run; made once, copied by each test."""
    project = project_folder(tmp_path_factory.mktemp("certified"))
    write(project)
    project.run("certify", "slo.toml", "--out", "runs/first", "--baseline", "none", "--quiet", code=0)
    return project


@pytest.fixture(scope="module")
def made_twice(certified_once: ProjectFolder, tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """A copy with a second run, which was compared with the first."""
    project = certified_once.copied_to(tmp_path_factory.mktemp("twice") / "copy")
    project.run("certify", "slo.toml", "--out", "runs/second", "--quiet", code=0)
    return project


@pytest.fixture
def twice(made_twice: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return made_twice.copied_to(tmp_path / "copy")


@pytest.fixture
def project(certified_once: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return certified_once.copied_to(tmp_path / "copy")


def against(project: ProjectFolder, run: str) -> dict[str, dict[str, Any]]:
    (workload,) = project.verdict(run)["workloads"]
    checks = [*(step for part in workload["steps"] for step in part["checks"]), *workload["checks"]]
    return {check["metric"]: check for check in reversed(checks) if check.get("against") == "certified"}


def test_the_same_version_again_is_no_worse(twice: ProjectFolder) -> None:
    """The newest certified run beside the output is found, verified, frozen by digest, and judged again byte for
    byte.
    """
    checks = against(twice, "runs/second")
    assert {objective["metric"]: "pass" for objective in OBJECTIVES[1:]} == {
        name: check["outcome"] for name, check in checks.items()
    }
    assert pytest.approx(1, abs=0.04) == checks["throughput_ratio"]["center"]
    frozen = json.loads((twice.path / "runs/second/manifest.json").read_text())["certified"]
    assert ("runs/first", 64) == (frozen["run"], len(frozen["sha256"]))
    shutil.rmtree(twice.path / "runs/first")
    again = twice.run("judge", "runs/second", "--json", code=0).out
    assert (twice.path / "runs/second/verdict.json").read_text() == again


def test_a_slower_version_fails_although_it_still_beats_plain_decoding(project: ProjectFolder) -> None:
    """A draft that fits worse than when it was certified is graded back, with the change and what differs. The table
    and
    the headline show its speed against plain decoding, the rows of objectives the ratio of the two runs.
    """
    write(project, SLOWER)

    output = project.run("certify", "slo.toml", "--out", "runs/second", "--quiet", code=1).out

    (workload,) = project.verdict("runs/second")["workloads"]
    tried = [check for step in workload["steps"] for check in step["checks"] if check["metric"] == "throughput_ratio"]
    plain = max(check["center"] for check in tried if "against" not in check)
    assert f"{plain:.2f}x" in next(line for line in output.splitlines() if line.startswith("easy "))
    rows = " ".join(output.split())
    assert f"≥ 0.95x {AGAINST_CERTIFIED}" in rows
    assert f"≥ 0.97x {AGAINST_CERTIFIED}" in rows
    assert "run: against" not in rows
    checks = against(project, "runs/second")
    assert ("fail", "fail") == (checks["throughput_ratio"]["outcome"], checks["acceptance_rate"]["outcome"])
    assert checks["acceptance_rate"]["hi"] < 0.97
    assert ("pass", "pass") == (checks["task_pass_delta"]["outcome"], checks["ttft_delta"]["outcome"])
    assert AGAINST_CERTIFIED in checks["throughput_ratio"]["because"]


def test_without_a_certified_run_nothing_is_measured(project: ProjectFolder) -> None:
    """No certified run, or one that did not pass, is refused before the first token, with the way out."""
    shutil.move(project.path / "runs/first", project.path / "elsewhere")

    refused = project.run("certify", "slo.toml", "--out", "runs/second", "--quiet", code=2)
    unknown = project.run("certify", "slo.toml", "--out", "runs/second", "--baseline", "canaries", "--quiet", code=2)

    assert "--baseline none" in refused.err
    assert "--baseline none" in project.run("plan", "slo.toml", code=0).out
    assert "is no certified run" in unknown.err
    assert not (project.path / "runs/second").exists()


@pytest.mark.nightly
def test_another_sampling_or_a_changed_copy_leaves_it_unproven(project: ProjectFolder) -> None:
    """A run at other conditions is not comparable, and a copy of the figures that was changed proves nothing."""
    write(project, sampling={"max_tokens": 48})
    project.run("certify", "slo.toml", "--out", "runs/second", "--quiet", code=3)
    (project.path / "runs/third").mkdir()
    write(project)
    project.run("certify", "slo.toml", "--out", "runs/third", "--baseline", "runs/first", "--quiet", code=0)
    copy = project.path / "runs/third/inputs/certified.json"
    copy.write_text(copy.read_text().replace('"acceptance_rate"', '"acceptance_late"'))

    assert "sampling.max_tokens" in against(project, "runs/second")["throughput_ratio"]["because"]
    assert "certified.json" in project.run("judge", "runs/third", "--json", code=3).out
    assert "tampered" in project.run("admit", "slo.toml", "--run", "runs/third", code=3).out


@pytest.mark.nightly
def test_certified_runs_of_the_same_system_count_together(twice: ProjectFolder) -> None:
    """A run is compared with the newest certified run and with the older ones of the same system, so with no lucky one;
    one with other drafts is compared with them, and does not count with them.
    """
    twice.run("certify", "slo.toml", "--out", "runs/third", "--quiet", code=0)
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json"}
    write(twice, subject=subject)
    twice.run("certify", "slo.toml", "--out", "runs/third-other", "--quiet", code=0)
    twice.run("certify", "slo.toml", "--out", "runs/third-then", "--quiet", code=0)

    copies = {name: json.loads((twice.path / f"runs/{name}/inputs/certified.json").read_text()) for name in RUNS}
    runs = {name: 1 + len(copy.get("pooled", ())) for name, copy in copies.items()}
    assert {"second": 1, "third": 2, "third-other": 3, "third-then": 1} == runs
    answers = {name: len(copy["workloads"]["easy"]["throughput_ratio"]) for name, copy in copies.items()}
    assert answers["third"] > 1.9 * answers["second"]


def test_a_bound_that_two_soaks_cannot_tell_apart_is_refused(tmp_path: Path) -> None:
    """Three per cent are closer than ten minutes of these answers can prove: `plan` ends in 2 and names the nearest
    bound
    and the duration that would do, and the bound that it names is accepted.
    """
    project = project_folder(tmp_path)
    (against_certified,) = (dict(objective) for objective in OBJECTIVES if objective.get("at_least") == 0.95)
    close = {**against_certified, "at_least": 0.97}
    write(project, objective=[OBJECTIVES[0], close])

    refused = project.run("plan", "slo.toml", "--json", code=2).document
    (complaint,) = [complaint for complaint in refused["complaints"] if complaint["weight"] == "never"]
    bound, minutes = re.findall(r"at_least = (0\.\d+) or less, or duration = \"(\d+)m\"", complaint["hint"])[0]

    write(project, objective=[OBJECTIVES[0], {**close, "at_least": float(bound)}])
    project.run("plan", "slo.toml", code=0)
    write(project, objective=[OBJECTIVES[0], close], soak={"duration": f"{minutes}m", "until": "duration"})
    project.run("plan", "slo.toml", code=0)


def test_a_demo_is_compared_with_only_where_it_is_named(tmp_path: Path) -> None:
    """A run whose soak was too short for a certificate is never taken for the certified run by itself."""
    project = project_folder(tmp_path)
    write(project, soak={"duration": "150 s"})
    project.run("certify", "slo.toml", "--out", "runs/demo", "--baseline", "none", "--quiet", code=0)

    refused = project.run("certify", "slo.toml", "--out", "runs/second", "--quiet", code=2)
    project.run("certify", "slo.toml", "--out", "runs/second", "--baseline", "runs/demo", "--quiet", code=0)

    assert "runs/demo" in refused.err
    assert "pass" == against(project, "runs/second")["throughput_ratio"]["outcome"]
