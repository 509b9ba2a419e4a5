"""Stored runs over time, and the comparison of two runs."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import CHECKSUMS, RunDirectory
from tests.builders.place import Place
from tests.e2e.conftest import place as place_in
from tests.e2e.conftest import scripted as scripted_in

ONE = {"workload": [{"name": "easy", "canaries": "easy.jsonl"}]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Runs of one SLO: `first`, `again`, and `slower` with lower acceptance; made once, copied by each test."""
    place: Place = place_in.__wrapped__(tmp_path_factory.mktemp("history"))  # type: ignore[attr-defined]
    write: Callable[..., Place] = scripted_in.__wrapped__(place)  # type: ignore[attr-defined]
    write(**ONE)
    for name in ("a-first", "b-again"):
        place.run("certify", "slo.toml", "--out", f"runs/{name}", "--quiet", code=0)
    write({"canaries": {"easy-": {"acceptance": 0.6}}}, **ONE)
    place.run("certify", "slo.toml", "--out", "runs/c-slower", "--quiet", code=0)
    return place


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:
    folder = tmp_path / "copy"
    shutil.copytree(made.path, folder)
    return Place(folder, made.environment)


def result(document: dict[str, Any], metric: str) -> str:
    (workload,) = document["workloads"]
    (found,) = (one["says"] for one in workload["metrics"] if one["metric"] == metric)
    return str(found)


def test_history_groups_runs_by_slo(place: Place) -> None:
    """
    Runs are listed by SLO, oldest first, with ratio and acceptance, and the newest is compared with the previous one.
    """
    (slo,) = place.run("history", "--json", code=0).document["slos"]

    assert ["runs/a-first", "runs/b-again", "runs/c-slower"] == [one["run"] for one in slo["runs"]]
    ratios = [one["workloads"]["easy"]["throughput_ratio"]["center"] for one in slo["runs"]]
    assert ratios[2] < min(ratios[:2])
    assert ("runs/b-again", "runs/c-slower") == (slo["trend"]["a"], slo["trend"]["b"])
    assert {"lower"} == {one["says"] for one in slo["trend"]["workloads"]["easy"]}


def test_history_hides_nothing(place: Place) -> None:
    """
    An unfinished, a changed and an unreadable run are all listed, and none of them is part of a trend.
    """
    runs = place.path / "runs"
    (runs / "a-first" / CHECKSUMS).unlink()
    verdict = runs / "b-again" / "verdict.json"
    verdict.write_text(verdict.read_text().replace("promoted", "failed"))
    shutil.copytree(runs / "c-slower", runs / "d-lost")
    (runs / "d-lost" / "manifest.json").unlink()

    found = place.run("history", "--json", code=0).document
    shown = place.run("history", code=0).out

    (slo,) = found["slos"]
    assert ["unfinished", "unfinished", "promoted"] == [one["outcome"] for one in slo["runs"]]
    assert CHECKSUMS in slo["runs"][1]["trouble"]
    assert ["runs/d-lost"] == [one["run"] for one in found["unreadable"]]
    assert slo["trend"] is None
    assert all(word in shown for word in ("not trusted", "cannot be read: runs/d-lost", "needs two complete runs"))


def test_compare_calls_a_difference_only_where_the_intervals_part(place: Place) -> None:
    """
    The same run again shows no difference; lower acceptance shows as lower, and other differences are named.
    """
    same = place.run("compare", "runs/a-first", "runs/b-again", "--json", code=0).document
    worse = place.run("compare", "runs/a-first", "runs/c-slower", "--json", code=0).document

    assert "no difference shown" == result(same, "throughput_ratio")
    assert ["lower", "lower"] == [result(worse, "throughput_ratio"), result(worse, "acceptance_rate")]
    assert ([], ["versions.script"]) == (same["differences"], worse["differences"])


def test_compare_refuses_another_machine(place: Place) -> None:
    """
    Runs on different chips are not comparable: the difference is named, no metric is compared, and the code is 3.
    """
    manifest = place.path / "runs" / "c-slower" / "manifest.json"
    document = json.loads(manifest.read_text())
    document["host"]["chip"] = "Apple M9"
    manifest.write_text(json.dumps(document))
    RunDirectory(place.path / "runs" / "c-slower").write_checksums()

    done = place.run("compare", "runs/a-first", "runs/c-slower", "--json", code=3)
    shown = place.run("compare", "runs/a-first", "runs/c-slower", code=3).out

    assert ["host.chip"] == done.document["not_comparable"]
    assert "not compared" == result(done.document, "throughput_ratio")
    assert "not comparable: host.chip" in shown


def test_compare_trusts_no_damaged_run(place: Place) -> None:
    """
    A run whose records were changed is judged again, found incomplete, and not compared.
    """
    soak = place.path / "runs" / "c-slower" / "soak-1.jsonl"
    soak.write_bytes(soak.read_bytes()[:-200])

    found = place.run("compare", "runs/a-first", "runs/c-slower", "--json", code=3).document

    assert "soak-1.jsonl" in found["not_comparable"][0]


def test_compare_looks_at_workloads_one_by_one(place: Place) -> None:
    """
    A workload that one run lacks is not compared; the others are.
    """
    slo = tomllib.loads((place.path / "slo.toml").read_text())
    slo["workload"].append({"name": "hard", "canaries": "hard.jsonl", "speculation": "optional"})
    place.write_slo(slo)
    place.run("certify", "slo.toml", "--out", "runs/d-more", "--quiet", code=0)

    found = place.run("compare", "runs/c-slower", "runs/d-more", "--json", code=0).document

    reasons = {one["name"]: one["not_comparable"] for one in found["workloads"]}
    assert {"easy": [], "hard": ["canaries.hard", "A has no such workload"]} == reasons


def test_a_folder_that_is_not_there_is_code_2(place: Place) -> None:
    """
    A missing folder of runs, and a folder that is not a run, are exit code 2.
    """
    assert "nowhere is not a folder" in place.run("history", "nowhere", code=2).err
    assert "manifest.json" in place.run("compare", "runs", "runs", code=2).err
