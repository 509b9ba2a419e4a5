"""A certified region: the run explores it, the policy carries it, and nobody routes beyond it."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]

TRUTH = {
    "ratio": 1.5,
    "slower": [
        {"axis": "temperature", "above": 0.7, "by": 2.0},
        {"axis": "context", "above": 700, "by": 2.0},
        {"axis": "concurrency", "above": 2, "by": 2.0},
    ],
}
"""Drafting pays up to temperature 0.7, some 700 words and two streams."""
REGION = {"temperature": [0.0, 0.3, 0.7, 1.0], "context": [500, 1000], "concurrency": [1, 2, 4]}


def with_region(scripted: Scripted, region: dict[str, Any] | None = None, **changes: Any) -> ProjectFolder:
    return scripted(
        TRUTH | changes.pop("truth", {}),
        workload=EASY,
        objective=[{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}],
        sweep={"repeats": 1, "num_draft_tokens": [4]},
        soak={"duration": "100 s"},
        promote={"valid_for": "3000 d"},
        region=region or REGION,
        **changes,
    )


def region_of(project: ProjectFolder, run: str = "run") -> dict[str, Any]:
    region: dict[str, Any] = project.verdict(run)["workloads"][0]["region"]
    return region


def outcomes(project: ProjectFolder, run: str = "run") -> dict[str, list[str]]:
    return {axis["axis"]: [value["outcome"] for value in axis["values"]] for axis in region_of(project, run)["axes"]}


@pytest.fixture
def certified(scripted: Scripted) -> ProjectFolder:
    project = with_region(scripted)
    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)
    return project


def test_a_run_finds_the_region_of_its_script(certified: ProjectFolder, tmp_path: Path) -> None:
    """
    Each axis ends where the script does; the policy routes that far and no further, `judge` derives the same bytes,
    `explain` (of `latest`, too) and the page draw it, and neither a wider policy nor a policy without its region is
    admitted.
    """
    run, judged = certified.path / "run", certified.run("judge", "run", "--json", code=0)

    assert outcomes(certified) == {
        "temperature": ["certified", "inside", "inside", "outside"],
        "context": ["inside", "outside"],
        "concurrency": ["certified", "inside", "outside"],
    }
    assert judged.out == (run / "verdict.json").read_text()
    text = (run / "policy.toml").read_text()
    region = tomllib.loads(text)["route"][0]["region"]
    assert (0.0, 0.7, 2) == (
        region["temperature"]["at_least"],
        region["temperature"]["at_most"],
        region["concurrency"]["at_most"],
    )
    assert 300 < region["context"]["at_most"] < 500
    assert all("together_at_most" in limits for limits in region.values())
    assert len((run / "region.jsonl").read_text().splitlines()) < 400
    drawn = certified.run("explain", "run", code=0).out
    shutil.copytree(run, certified.path / "runs" / "only")
    assert drawn == certified.run("explain", "latest", code=0).out
    assert "temperature \\ context" in drawn
    assert "temperature <= 0.7" in drawn
    assert "outside at temperature 1" in drawn
    assert "Certified region" in (run / "report.html").read_text()
    certified.run("admit", "slo.toml", "--run", "run", "--grade", "demo", code=0)
    for change, number in (
        (("at_most = 0.7", "at_most = 0.9"), 1),
        ((text[text.index("[route.region]") :].split("\n\n")[0], ""), 2),
    ):
        tried = tmp_path / f"tried-{number}"
        shutil.copytree(run, tried)
        (tried / "policy.toml").write_text(text.replace(*change, 1))
        RunDirectory(tried).write_checksums()
        refused = certified.run("admit", "slo.toml", "--run", str(tried), "--grade", "demo", "--json", code=3).document
        assert ("tampered", True) == (refused["reason"], "policy.toml" in refused["because"])


def test_a_killed_exploration_goes_on_where_it_was(scripted: Scripted) -> None:
    """
    Kill -9 within a point: --resume keeps its answers, ends with the same outcomes, and judges to the byte.
    """
    project = with_region(scripted, {"temperature": [0.0, 0.3, 0.7, 1.0]})
    file = project.path / "run" / "region.jsonl"
    process = project.held("run/region.jsonl", after=30).start("certify", "slo.toml", "--out", "run", "--quiet")
    until(lambda: file.exists() and len(file.read_text().splitlines()) >= 30)
    process.kill()
    process.communicate()
    before = file.read_text().splitlines()

    project.run("certify", "slo.toml", "--out", "run", "--resume", "--quiet", code=0)

    assert before == file.read_text().splitlines()[: len(before)]
    assert {"temperature": ["certified", "inside", "inside", "outside"]} == outcomes(project)
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()[:-1] if '"role":"measured"' in line]
    assert len(keys) == len(set(keys))
    assert (project.path / "run" / "verdict.json").read_text() == project.run("judge", "run", "--json", code=0).out


def test_where_the_arms_need_a_process_each_the_region_is_found_too(scripted: Scripted) -> None:
    """
    Without a shared process each look takes turns in ABBA blocks; the boundary is the same.
    """
    project = with_region(scripted, {"temperature": [0.0, 0.7, 1.0]}, truth={"shares_process": False})

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    assert {"temperature": ["certified", "inside", "outside"]} == outcomes(project)


def test_more_streams_must_pay_for_the_server_as_a_whole(scripted: Scripted) -> None:
    """
    Each answer decodes faster with a draft, but waits longer for its first token. With two streams fewer tokens come in
    all, so that point is outside, although the SLO names the speed of single answers alone.
    """
    project = with_region(scripted, {"concurrency": [1, 2]}, truth={"slower": [], "draft_prefill": "2 s"})

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    (point,) = region_of(project)["points"]
    assert "outside" == point["outcome"]
    assert point["because"].startswith("system_throughput_ratio:")
    assert ["pass"] == [check["outcome"] for check in point["checks"] if check["metric"] == "throughput_ratio"]
