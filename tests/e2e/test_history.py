"""Stored runs over time, and the comparison of two runs."""

import json
import shutil
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import CHECKSUMS, RunDirectory
from tests.builders.project_folder import ProjectFolder, project_folder
from tests.builders.scripted_slo import EASY, write_scripted

FIRST, AGAIN, SLOWER = "runs/a-first", "runs/b-again", "runs/c-slower"


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """Runs of one SLO: the first, the same again, and one with lower acceptance; made once, copied by each test."""
    project = project_folder(tmp_path_factory.mktemp("history"))
    write = partial(write_scripted, project, sweep={"repeats": 1, "num_draft_tokens": [4]}, workload=EASY)
    write()
    for run in (FIRST, AGAIN):
        project.run("certify", "slo.toml", "--out", run, "--quiet", code=0)
    write({"canaries": {"easy-": {"acceptance": 0.6}}})
    project.run("certify", "slo.toml", "--out", SLOWER, "--quiet", code=0)
    return project


@pytest.fixture
def project(certified_once: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return certified_once.copied_to(tmp_path / "copy")


def restate(project: ProjectFolder, run: str, **fields: Any) -> None:
    """Let the manifest of a run say something else, with checksums that match."""
    path = project.path / run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    RunDirectory(path.parent).write_checksums()


def result(document: dict[str, Any], metric: str) -> str:
    (workload,) = document["workloads"]
    (text,) = (metric_row["says"] for metric_row in workload["metrics"] if metric_row["metric"] == metric)
    return str(text)


def test_history_groups_runs_by_slo(project: ProjectFolder) -> None:
    """Oldest first, each with its figures and what changed before it; the newest is compared with the one before."""
    (slo,) = project.run("history", "--json", code=0).document["slos"]
    (bars,) = [line for line in project.run("history", code=0).out.splitlines() if line.startswith("  easy  ")]

    assert [FIRST, AGAIN, SLOWER] == [run["run"] for run in slo["runs"]]
    ratios = [run["workloads"]["easy"]["throughput_ratio"]["center"] for run in slo["runs"]]
    assert ratios[2] < min(ratios[:2])
    assert {1.16} == {run["workloads"]["easy"]["bound"] for run in slo["runs"]}
    *same, (changed,) = [run["changed"] for run in slo["runs"]]
    assert ([[], []], True) == (same, changed.startswith("script: "))
    assert (AGAIN, SLOWER) == (slo["trend"]["a"], slo["trend"]["b"])
    says = {row["metric"]: row["says"] for row in slo["trend"]["workloads"]["easy"]}
    expected = {"throughput_ratio": "worse", "acceptance_rate": "worse"}
    assert expected | {"plain_decode_throughput": "no difference shown"} == says
    assert all(word in bars for word in ("▁", "bound 1.16x", "3 of 3 promoted"))


def test_history_hides_nothing(project: ProjectFolder) -> None:
    """An unfinished, a changed and an unreadable run are all listed, and none of them is part of a trend."""
    (project.path / FIRST / CHECKSUMS).unlink()
    verdict = project.path / AGAIN / "verdict.json"
    verdict.write_text(verdict.read_text().replace("promoted", "failed"))
    shutil.copytree(project.path / SLOWER, project.path / "runs" / "d-lost")
    (project.path / "runs" / "d-lost" / "manifest.json").unlink()

    document = project.run("history", "--json", code=0).document
    output = project.run("history", code=0).out

    (slo,) = document["slos"]
    assert ["unfinished", "unfinished", "promoted"] == [run["outcome"] for run in slo["runs"]]
    assert CHECKSUMS in slo["runs"][1]["trouble"]
    assert ["runs/d-lost"] == [entry["run"] for entry in document["unreadable"]]
    assert slo["trend"] is None
    assert all(word in output for word in ("not trusted", "runs/d-lost", "two complete runs"))


def test_compare_calls_a_difference_only_where_the_intervals_part(project: ProjectFolder) -> None:
    """The same run again shows none; lower acceptance is worse, which ends in 1 where `--fail-on worse` says so."""
    same = project.run("compare", FIRST, AGAIN, "--json", "--fail-on", "worse", code=0).document
    worse = project.run("compare", FIRST, SLOWER, "--json", code=0).document
    output = project.run("compare", FIRST, SLOWER, "--fail-on", "worse", code=1).out
    better = project.run("compare", SLOWER, FIRST, "--fail-on", "worse", code=0).out

    assert "no difference shown" == result(same, "throughput_ratio")
    assert ["worse", "worse"] == [result(worse, metric) for metric in ("throughput_ratio", "acceptance_rate")]
    assert ([], ["versions.script"]) == (same["differences"], worse["differences"])
    assert output.startswith("B against A: worse")
    assert all(word in output for word in ("easy throughput_ratio -", "▼"))
    assert better.startswith("B against A: better")
    assert "two runs or more" in project.run("compare", "latest", code=2).err


def test_compare_refuses_another_machine(project: ProjectFolder) -> None:
    """Runs on different chips are not comparable: the difference is named, no metric is compared, and the code is 3."""
    host = json.loads((project.path / SLOWER / "manifest.json").read_text())["host"]
    restate(project, SLOWER, host=host | {"chip": "Apple M9"})

    document = project.run("compare", FIRST, SLOWER, "--json", code=3).document

    assert ["host.chip"] == document["not_comparable"]
    assert "not compared" == result(document, "throughput_ratio")


def test_a_figure_that_went_missing_is_no_good_news(project: ProjectFolder) -> None:
    """A workload that only the first run has is not compared; with --fail-on worse that ends with 3."""
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["workload"].append({"name": "hard", "canaries": "hard.jsonl", "speculation": "optional"})
    project.write_slo(slo)
    project.run("certify", "slo.toml", "--out", "runs/d-more", "--quiet", code=0)

    document = project.run("compare", "runs/d-more", SLOWER, "--json", code=0).document
    project.run("compare", "runs/d-more", SLOWER, "--fail-on", "worse", code=3)

    reasons = {workload["name"]: workload["not_comparable"] for workload in document["workloads"]}
    assert ([], "canaries.hard") == (reasons["easy"], reasons["hard"][0])


def of_backend(project: ProjectFolder, run: str, backend: str, **target: Any) -> None:
    """Make a run look as if its answers came from another backend, which served *target*."""
    shape = {"layers": 36, "kv_heads": 8, "head_dim": 128, "value_bytes": 2, "every_layer": True}
    model = {"name": "big", "digest": "1", "files": {}, "bytes": 1, "quantisation": "4-bit g64", "vocabulary": 9}
    model |= {"tokens_sha256": None, "template_sha256": None, "architecture": "Qwen3ForCausalLM", "shape": shape}
    restate(project, run, backend=backend, target=model | target)


def test_frameworks_stand_side_by_side(project: ProjectFolder) -> None:
    """Backends of one model family are compared by absolute speeds, not by ratios to their own plain decoding."""
    other = {"name": "big.gguf", "digest": "2", "quantisation": "Q4_K_M", "architecture": "qwen3"}
    of_backend(project, FIRST, "mlx")
    of_backend(project, AGAIN, "mlx-server")
    of_backend(project, SLOWER, "llama-server", **other)

    runs = (FIRST, AGAIN, SLOWER)
    same, slower = project.run("compare", *runs, "--json", code=0).document["comparisons"]
    output = project.run("compare", *runs, code=0).out
    project.run("compare", *runs, "-o", "all.html", code=0)

    assert "backend" in same["differences"]
    assert "no difference shown" == result(same, "decode_throughput")
    assert ("not compared", "worse") == (result(slower, "throughput_ratio"), result(slower, "decode_throughput"))
    assert any("big.gguf (Q4_K_M)" in note for note in slower["notes"])
    (row,) = (line for line in output.splitlines() if line.startswith("  decode_throughput"))
    assert (3, True) == (row.count("tok/s"), "own plain decoding" in output)
    assert "llama-server" in (project.path / "all.html").read_text()


@pytest.mark.parametrize("target", [{"architecture": "LlamaForCausalLM"}, {"architecture": None}, {"shape": None}])
def test_another_model_in_another_backend_is_not_compared(project: ProjectFolder, target: dict[str, Any]) -> None:
    """Two backends that serve other models, or models whose family is unknown, are not comparable."""
    of_backend(project, FIRST, "mlx")
    of_backend(project, AGAIN, "llama-server", digest="2", **target)

    assert "target family" in project.run("compare", FIRST, AGAIN, "--json", code=3).document["not_comparable"]


def test_compare_trusts_no_damaged_run(project: ProjectFolder) -> None:
    """A run whose records were changed is judged again, found incomplete, and not compared."""
    soak = project.path / SLOWER / "soak-1.jsonl"
    soak.write_bytes(soak.read_bytes()[:-200])

    document = project.run("compare", FIRST, SLOWER, "--json", code=3).document

    assert "soak-1.jsonl" in document["not_comparable"][0]
