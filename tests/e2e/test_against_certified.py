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


def write(project: ProjectFolder, truth: Mapping[str, Any] | None = None, **changes: Any) -> None:
    write_scripted(project, truth, **{"workload": EASY, "objective": OBJECTIVES, "soak": WHOLE, **changes})


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """A folder with the first certified run; made once, copied by each test."""
    project = project_folder(tmp_path_factory.mktemp("certified"))
    write(project)
    project.run("certify", "slo.toml", "--out", "runs/first", "--baseline", "none", "--quiet", code=0)
    return project


@pytest.fixture
def project(certified_once: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return certified_once.copied_to(tmp_path / "copy")


def certify(project: ProjectFolder, name: str, *words: str, code: int) -> Any:
    return project.run("certify", "slo.toml", "--out", f"runs/{name}", "--quiet", *words, code=code)


def against(project: ProjectFolder, run: str) -> dict[str, dict[str, Any]]:
    (workload,) = project.verdict(run)["workloads"]
    checks = [*(step for part in workload["steps"] for step in part["checks"]), *workload["checks"]]
    return {check["metric"]: check for check in reversed(checks) if check.get("against") == "certified"}


def test_the_same_version_again_is_no_worse(project: ProjectFolder) -> None:
    """The newest certified run is found, verified, frozen by digest, and judged again byte for byte."""
    certify(project, "second", code=0)

    checks = against(project, "runs/second")
    passed = {objective["metric"]: "pass" for objective in OBJECTIVES[1:]}
    assert passed == {name: check["outcome"] for name, check in checks.items()}
    assert pytest.approx(1, abs=0.04) == checks["throughput_ratio"]["center"]
    frozen = json.loads((project.path / "runs/second/manifest.json").read_text())["certified"]
    assert ("runs/first", 64) == (frozen["run"], len(frozen["sha256"]))
    shutil.rmtree(project.path / "runs/first")
    assert project.verdict("runs/second") == project.run("judge", "runs/second", "--json", code=0).document
    copy = project.path / "runs/second/inputs/certified.json"
    copy.write_text(copy.read_text().replace('"acceptance_rate"', '"acceptance_late"'))
    assert "certified.json" in project.run("judge", "runs/second", "--json", code=3).out


def test_a_slower_version_fails_although_it_still_beats_plain_decoding(project: ProjectFolder) -> None:
    """A draft that fits worse is graded back: headline and table show its own speed, objectives the ratio of runs."""
    write(project, {"canaries": {"easy-": {"acceptance": 0.75}}})

    output = certify(project, "second", code=1).out

    (workload,) = project.verdict("runs/second")["workloads"]
    tried = [check for step in workload["steps"] for check in step["checks"] if check["metric"] == "throughput_ratio"]
    plain = max(check["center"] for check in tried if "against" not in check)
    assert f"{plain:.2f}x" in next(line for line in output.splitlines() if line.startswith("easy "))
    rows = " ".join(output.split())
    assert all(f"≥ {bound}x {AGAINST_CERTIFIED}" in rows for bound in (0.95, 0.97))
    checks = against(project, "runs/second")
    failed = {name for name, check in checks.items() if check["outcome"] == "fail"}
    assert {"throughput_ratio", "acceptance_rate"} <= failed
    assert {"task_pass_delta", "ttft_delta"} & failed == set()
    assert checks["acceptance_rate"]["hi"] < 0.97
    assert AGAINST_CERTIFIED in checks["throughput_ratio"]["because"]


def test_without_a_certified_run_nothing_is_measured(project: ProjectFolder) -> None:
    """No certified run, or one that did not pass, is refused before the first token, with the way out."""
    shutil.move(project.path / "runs/first", project.path / "elsewhere")

    refused, unknown = (certify(project, "second", *words, code=2) for words in ((), ("--baseline", "canaries")))

    assert "--baseline none" in refused.err
    assert "--baseline none" in project.run("plan", "slo.toml", code=0).out
    assert "is no certified run" in unknown.err
    assert not (project.path / "runs/second").exists()


@pytest.mark.nightly
def test_certified_runs_of_the_same_system_count_together(project: ProjectFolder) -> None:
    """A run is compared with all certified runs of its system, so with no lucky one, and with none at other conditions.

    One with other drafts is compared with them, and does not count with them.
    """
    certify(project, "second", code=0)
    certify(project, "third", code=0)
    write(project, subject={"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json"})
    certify(project, "third-other", code=0)
    certify(project, "third-then", code=0)
    write(project, sampling={"max_tokens": 48})
    certify(project, "unlike", code=3)

    names = ("second", "third", "third-other", "third-then")
    copies = {name: json.loads((project.path / f"runs/{name}/inputs/certified.json").read_text()) for name in names}
    runs = {name: 1 + len(copy.get("pooled", ())) for name, copy in copies.items()}
    assert {"second": 1, "third": 2, "third-other": 3, "third-then": 1} == runs
    answers = {name: len(copy["workloads"]["easy"]["throughput_ratio"]) for name, copy in copies.items()}
    assert answers["third"] > 1.9 * answers["second"]
    assert "sampling.max_tokens" in against(project, "runs/unlike")["throughput_ratio"]["because"]


def test_a_bound_that_two_soaks_cannot_tell_apart_is_refused(tmp_path: Path) -> None:
    """Three per cent are too close for ten minutes: `plan` names a bound and a duration that would do, and they do."""
    project = project_folder(tmp_path)
    close = {**OBJECTIVES[1], "at_least": 0.97}
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
    certify(project, "demo", "--baseline", "none", code=0)

    refused = certify(project, "second", code=2)
    certify(project, "second", "--baseline", "runs/demo", code=0)

    assert "runs/demo" in refused.err
    assert "pass" == against(project, "runs/second")["throughput_ratio"]["outcome"]
