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


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """Runs of one SLO: `first`, `again`, and `slower` with lower acceptance; made once, copied by each test."""
    project = project_folder(tmp_path_factory.mktemp("history"))
    write = partial(write_scripted, project, sweep={"repeats": 1, "num_draft_tokens": [4]})
    write(workload=EASY)
    for name in ("a-first", "b-again"):
        project.run("certify", "slo.toml", "--out", f"runs/{name}", "--quiet", code=0)
    write({"canaries": {"easy-": {"acceptance": 0.6}}}, workload=EASY)
    project.run("certify", "slo.toml", "--out", "runs/c-slower", "--quiet", code=0)
    return project


@pytest.fixture
def project(certified_once: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    return certified_once.copied_to(tmp_path / "copy")


def result(document: dict[str, Any], metric: str) -> str:
    (workload,) = document["workloads"]
    (text,) = (metric_row["says"] for metric_row in workload["metrics"] if metric_row["metric"] == metric)
    return str(text)


def test_history_groups_runs_by_slo(project: ProjectFolder) -> None:
    """Runs are listed by SLO, oldest first, with ratio and acceptance, and the newest is compared with the previous
    one.
    """
    (slo,) = project.run("history", "--json", code=0).document["slos"]

    assert ["runs/a-first", "runs/b-again", "runs/c-slower"] == [run["run"] for run in slo["runs"]]
    ratios = [run["workloads"]["easy"]["throughput_ratio"]["center"] for run in slo["runs"]]
    assert ratios[2] < min(ratios[:2])
    assert ("runs/b-again", "runs/c-slower") == (slo["trend"]["a"], slo["trend"]["b"])
    says = {row["metric"]: row["says"] for row in slo["trend"]["workloads"]["easy"]}
    assert {
        "throughput_ratio": "worse",
        "plain_decode_throughput": "no difference shown",  # the draft alone accepts less
        "acceptance_rate": "worse",
    } == says


def test_history_says_what_changed_and_draws_a_line_of_each_workload(project: ProjectFolder) -> None:
    """Each run names its host and what differs from the run before; the terminal has a sparkline with the bound."""
    (slo,) = project.run("history", "--json", code=0).document["slos"]
    (bars,) = [line for line in project.run("history", code=0).out.splitlines() if line.startswith("  easy  ")]

    changed = [run["changed"] for run in slo["runs"]]
    assert [] == changed[0] == changed[1]
    assert changed[2][0].startswith("script: ")
    assert 1 == len({run["host"] for run in slo["runs"]})
    assert {1.16} == {run["workloads"]["easy"]["bound"] for run in slo["runs"]}
    words = bars.split()
    assert "easy" == words[0]
    assert "▁" == words[1][2]
    assert all(word in bars for word in ("bound 1.16x", "3 of 3 promoted"))


def test_history_says_that_the_display_went_to_sleep(project: ProjectFolder) -> None:
    """It may explain a slow night on a Mac, and the runs can still be compared; an older run that lacks it is no
    change.
    """
    for name, display in (("a-first", None), ("b-again", "on"), ("c-slower", "asleep")):
        path = project.path / "runs" / name / "manifest.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"host": document["host"] | {"display": display}}))
        RunDirectory(path.parent).write_checksums()

    (slo,) = project.run("history", "--json", code=0).document["slos"]

    changed = [[line.split() for line in run["changed"] if line.startswith("host.display")] for run in slo["runs"]]
    assert [[], [], [["host.display:", "on", "→", "asleep"]]] == changed
    assert ("runs/b-again", "runs/c-slower") == (slo["trend"]["a"], slo["trend"]["b"])


def test_history_is_a_page(project: ProjectFolder) -> None:
    """`-o history.html` writes a page that loads nothing: a mark a run with its interval, and why a check failed."""
    failing = {"metric": "ttft_delta", "at_most": -0.5, "why": "as fast as that"}
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    project.write_slo({**slo, "objective": [*slo["objective"], failing], "fallback": {"ladder": ["autoregressive"]}})
    project.run("certify", "slo.toml", "--out", "runs/d-late", "--quiet", code=1)

    project.run("history", "-o", "history.html", code=0)
    page = (project.path / "history.html").read_text()

    assert 4 == page.count('class="center ')
    assert "default-src &#x27;none&#x27;" in page
    assert "4 runs, 3 promoted." in page
    assert "given up: ttft_delta: " in page


def test_history_hides_nothing(project: ProjectFolder) -> None:
    """An unfinished, a changed and an unreadable run are all listed, and none of them is part of a trend."""
    runs = project.path / "runs"
    (runs / "a-first" / CHECKSUMS).unlink()
    verdict = runs / "b-again" / "verdict.json"
    verdict.write_text(verdict.read_text().replace("promoted", "failed"))
    shutil.copytree(runs / "c-slower", runs / "d-lost")
    (runs / "d-lost" / "manifest.json").unlink()

    document = project.run("history", "--json", code=0).document
    output = project.run("history", code=0).out

    (slo,) = document["slos"]
    assert ["unfinished", "unfinished", "promoted"] == [run["outcome"] for run in slo["runs"]]
    assert CHECKSUMS in slo["runs"][1]["trouble"]
    assert ["runs/d-lost"] == [entry["run"] for entry in document["unreadable"]]
    assert slo["trend"] is None
    assert all(word in output for word in ("not trusted", "runs/d-lost", "two complete runs"))


def test_compare_calls_a_difference_only_where_the_intervals_part(project: ProjectFolder) -> None:
    """The same run again shows no difference; lower acceptance shows as worse, and other differences are named."""
    document = project.run("compare", "runs/a-first", "runs/b-again", "--json", code=0).document
    worse = project.run("compare", "runs/a-first", "runs/c-slower", "--json", code=0).document

    assert "no difference shown" == result(document, "throughput_ratio")
    assert ["worse", "worse"] == [result(worse, "throughput_ratio"), result(worse, "acceptance_rate")]
    assert ([], ["versions.script"]) == (document["differences"], worse["differences"])


def test_compare_refuses_another_machine(project: ProjectFolder) -> None:
    """Runs on different chips are not comparable: the difference is named, no metric is compared, and the code is 3."""
    manifest = project.path / "runs" / "c-slower" / "manifest.json"
    document = json.loads(manifest.read_text())
    document["host"]["chip"] = "Apple M9"
    manifest.write_text(json.dumps(document))
    RunDirectory(project.path / "runs" / "c-slower").write_checksums()

    done = project.run("compare", "runs/a-first", "runs/c-slower", "--json", code=3)
    output = project.run("compare", "runs/a-first", "runs/c-slower", code=3).out

    assert ["host.chip"] == done.document["not_comparable"]
    assert "not compared" == result(done.document, "throughput_ratio")
    assert "host.chip" in output


def test_compare_fails_on_worse_where_that_is_asked(project: ProjectFolder) -> None:
    """--fail-on worse ends with 1 for a proven loss and 0 for a gain; without it, both are 0."""
    project.run("compare", "runs/a-first", "runs/c-slower", code=0)
    worse = project.run("compare", "runs/a-first", "runs/c-slower", "--fail-on", "worse", code=1).out
    project.run("compare", "runs/a-first", "runs/b-again", "--fail-on", "worse", code=0)
    better = project.run("compare", "runs/c-slower", "runs/a-first", "--fail-on", "worse")

    assert worse.startswith("B against A: worse")
    assert all(word in worse for word in ("easy throughput_ratio -", "▼"))
    assert 0 == better.code
    assert better.out.startswith("B against A: better")
    assert "easy acceptance_rate +" in better.out
    assert "two runs or more" in project.run("compare", "latest", code=2).err


def test_a_figure_that_went_missing_is_no_good_news(project: ProjectFolder) -> None:
    """With --fail-on worse a workload that only the first run has ends with 3."""
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["workload"].append({"name": "hard", "canaries": "hard.jsonl", "speculation": "optional"})
    project.write_slo(slo)
    project.run("certify", "slo.toml", "--out", "runs/d-more", "--quiet", code=0)

    project.run("compare", "runs/d-more", "runs/c-slower", code=0)
    project.run("compare", "runs/d-more", "runs/c-slower", "--fail-on", "worse", code=3)


def test_the_markdown_fits_a_pull_request(project: ProjectFolder) -> None:
    """The first line is the marker a job finds its comment by; then the result, and a table of the figures."""
    project.run("compare", "runs/a-first", "runs/c-slower", "-o", "c.md", code=0)

    marker, _, headline, *rest = (project.path / "c.md").read_text().splitlines()

    assert ("<!-- gatekeeper -->", True) == (marker, headline.startswith("## B against A: worse"))
    (row,) = (line for line in rest if line.startswith("| `throughput_ratio`"))
    assert "▼" in row
    assert 3 == row.count(" | ") + 1


def of_backend(project: ProjectFolder, run: str, backend: str, **target: Any) -> None:
    """Make a run look as if its answers came from another backend, which served *target*."""
    path = project.path / "runs" / run / "manifest.json"
    shape = {"layers": 36, "kv_heads": 8, "head_dim": 128, "value_bytes": 2, "every_layer": True}
    model = {"name": "big", "digest": "1", "files": {}, "bytes": 1, "quantisation": "4-bit g64", "vocabulary": 9}
    model |= {"tokens_sha256": None, "template_sha256": None, "architecture": "Qwen3ForCausalLM", "shape": shape}
    document = json.loads(path.read_text()) | {"backend": backend, "target": model | target}
    path.write_text(json.dumps(document))
    RunDirectory(path.parent).write_checksums()


def test_frameworks_stand_side_by_side(project: ProjectFolder) -> None:
    """Backends that serve one model family are compared in one table: absolute speeds are, ratios to their own plain
    decoding are not, and what differs is named.
    """
    of_backend(project, "a-first", "mlx")
    of_backend(project, "b-again", "mlx-server")
    of_backend(
        project, "c-slower", "llama-server", name="big.gguf", digest="2", quantisation="Q4_K_M", architecture="qwen3"
    )

    runs = ("runs/a-first", "runs/b-again", "runs/c-slower")
    comparisons = project.run("compare", *runs, "--json", code=0).document["comparisons"]
    output = project.run("compare", *runs, code=0).out

    assert ["backend" in comparison["differences"] for comparison in comparisons] == [True, True]
    assert ["not compared", "worse"] == [
        result(comparisons[1], "throughput_ratio"),
        result(comparisons[1], "decode_throughput"),
    ]
    assert "no difference shown" == result(comparisons[0], "decode_throughput")
    assert any("big.gguf (Q4_K_M)" in note for note in comparisons[1]["notes"])
    (row,) = (line for line in output.splitlines() if line.startswith("  decode_throughput"))
    assert 3 == row.count("tok/s")
    assert "own plain decoding" in output
    project.run("compare", *runs, "-o", "all.html", code=0)
    page = (project.path / "all.html").read_text()
    assert all(word in page for word in ("llama-server", "decode_throughput", "▼", "Content-Security-Policy"))
    assert "src=" not in page


@pytest.mark.parametrize("target", [{"architecture": "LlamaForCausalLM"}, {"architecture": None}, {"shape": None}])
def test_another_model_in_another_backend_is_not_compared(project: ProjectFolder, target: dict[str, Any]) -> None:
    """Two backends that serve other models, or models whose family is unknown, are not comparable."""
    of_backend(project, "a-first", "mlx")
    of_backend(project, "b-again", "llama-server", digest="2", **target)

    refused = project.run("compare", "runs/a-first", "runs/b-again", "--json", code=3).document

    assert "target family" in refused["not_comparable"]


def test_compare_trusts_no_damaged_run(project: ProjectFolder) -> None:
    """A run whose records were changed is judged again, found incomplete, and not compared."""
    soak = project.path / "runs" / "c-slower" / "soak-1.jsonl"
    soak.write_bytes(soak.read_bytes()[:-200])

    document = project.run("compare", "runs/a-first", "runs/c-slower", "--json", code=3).document

    assert "soak-1.jsonl" in document["not_comparable"][0]


def test_compare_looks_at_workloads_one_by_one(project: ProjectFolder) -> None:
    """A workload that one run lacks is not compared; the others are."""
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["workload"].append({"name": "hard", "canaries": "hard.jsonl", "speculation": "optional"})
    project.write_slo(slo)
    project.run("certify", "slo.toml", "--out", "runs/d-more", "--quiet", code=0)

    document = project.run("compare", "runs/c-slower", "runs/d-more", "--json", code=0).document

    reasons = {workload["name"]: workload["not_comparable"] for workload in document["workloads"]}
    assert {"easy", "hard"} == reasons.keys()
    assert [] == reasons["easy"]
    different, missing = reasons["hard"]
    assert "canaries.hard" == different
    assert missing.startswith("runs/c-slower ")


def test_a_folder_that_is_not_there_is_code_2(project: ProjectFolder) -> None:
    """A missing folder of runs, and a folder that is not a run, are exit code 2."""
    assert "no folder nowhere" in project.run("history", "nowhere", code=2).err
    assert "a folder of" in project.run("compare", "runs", "runs", code=2).err
