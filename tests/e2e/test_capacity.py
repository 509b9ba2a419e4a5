"""The capacity: the run measures how many streams keep its latency objectives, and the policy carries it."""

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from bench.capacity import known_server as capacity_server
from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines
from tests.builders.scripted_slo import EASY
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]

BATCHING = {"plain": 0.05, "candidate": 0.25}
"""Each further stream adds 5 % to every time of plain decoding, and 25 % with a draft, which is 2.7 times as fast."""


def with_capacity(scripted: Scripted, at_most: str, **changes: Any) -> ProjectFolder:
    """Return a project whose inter-token latency may not exceed *at_most*, with 80 canaries."""
    project = scripted(
        {"batching": BATCHING} | changes.pop("truth", {}),
        workload=changes.pop("workload", EASY),
        objective=[
            *changes.pop("objectives", [{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}]),
            {"metric": "itl_p95", "at_most": at_most, "why": "a reader waits"},
        ],
        sweep={"repeats": 1, "num_draft_tokens": [4]},
        soak={"duration": "100 s"},
        capacity={"streams": 32, "max_duration": "30 s"},
        promote={"valid_for": "3000 d"},
        **changes,
    )
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 80))
    return project


def capacity_of(project: ProjectFolder) -> dict[str, Any]:
    capacity: dict[str, Any] = project.verdict("run")["workloads"][0]["capacity"]
    return capacity


def route_of(project: ProjectFolder) -> dict[str, Any]:
    route: dict[str, Any] = tomllib.loads((project.path / "run" / "policy.toml").read_text())["route"][0]
    return route


def bracketed(reach: dict[str, Any], truth: int) -> bool:
    """Tell whether the true number of streams lies in an interval, and the interval is narrow."""
    least, most = int(reach["at_least"]), int(reach["at_most"])
    return least <= truth <= most and most - least <= 3


def test_a_run_finds_the_capacity_of_its_script(scripted: Scripted) -> None:
    """
    Plain decoding takes 103 ms for 95 % of its tokens, so ten streams keep 152 ms; the draft's 77 ms keep them for
    four. The policy drafts up to what is proven, `judge` derives the same bytes, and `explain` and the page show it.
    """
    project = with_capacity(scripted, "152 ms")

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    capacity = capacity_of(project)
    assert bracketed(capacity["plain"], 10)
    assert bracketed(capacity["draft"], 4)
    assert capacity["draft"]["at_least"] == capacity["gain"]["at_least"] == route_of(project)["max_concurrency"]
    assert capacity["gain"]["at_most"] is None
    assert project.run("judge", "run", "--json", code=0).out == (project.path / "run" / "verdict.json").read_text()
    project.run("admit", "slo.toml", "--run", "run", "--grade", "demo", code=0)
    drawn = project.run("explain", "run", code=0).out
    assert f"up to {capacity['draft']['at_least']} streams keep" in drawn
    assert capacity == project.run("explain", "run", "--json", code=0).document["easy"]["capacity"]
    page = (project.path / "run" / "report.html").read_text()
    assert 'aria-label="itl_p95 by streams in flight' in page
    assert "capacity" in project.run("plan", "slo.toml", "--json").document["expected_seconds"]


@pytest.mark.nightly
def test_a_route_ends_where_plain_decoding_overtakes(scripted: Scripted) -> None:
    """
    A loose bound on the latency keeps many streams, but a draft is slower than plain decoding from some number on: the
    route is capped at the most for which it is proven faster.
    """
    project = with_capacity(scripted, "600 ms", truth={"batching": {"plain": 0.0, "candidate": 0.25}})

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    capacity = capacity_of(project)
    words = {level["streams"]: level["outcome"] for level in capacity["gain"]["levels"]}
    assert capacity["plain"]["at_most"] is None
    assert capacity["draft"]["at_least"] > capacity["gain"]["at_most"] + 1
    assert bracketed(capacity["gain"], 7)
    assert "slower" == words[max(words)]
    assert capacity["gain"]["at_least"] == route_of(project)["max_concurrency"]


@pytest.mark.parametrize("fault", ["garble", "die", pytest.param("hang", marks=pytest.mark.nightly)])
def test_a_server_that_fails_has_its_capacity_there(scripted: Scripted, fault: str) -> None:
    """
    More than six requests in flight fail, or end or stop the server: that is a result, and six streams are the capacity
    of both arms.
    """
    project = with_capacity(
        scripted,
        "600 ms",
        truth={"batching": {"plain": 0.0, "candidate": 0.0}, "faults": [{"above_streams": 6, "fault": fault}]},
    )

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    capacity = capacity_of(project)
    assert [(6, 6)] * 2 == [(capacity[arm]["at_least"], capacity[arm]["at_most"]) for arm in ("plain", "draft")]
    assert 6 == route_of(project)["max_concurrency"]
    assert all(level["failed"] for level in capacity["plain"]["levels"] if level["streams"] > 6)


def test_a_workload_that_decodes_plainly_has_a_capacity_too(scripted: Scripted) -> None:
    """
    A draft that gains nothing is graded back; how many streams plain decoding keeps is measured all the same.
    """
    project = with_capacity(
        scripted,
        "152 ms",
        truth={"canaries": {"easy-": {"acceptance": 0.05}}},
        workload=[EASY[0] | {"speculation": "optional"}],
    )

    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)

    capacity = capacity_of(project)
    assert bracketed(capacity["plain"], 10)
    assert not {"draft", "gain", "max_concurrency"} & capacity.keys()
    assert "max_concurrency" not in route_of(project)


@pytest.mark.nightly  # tests/e2e/test_region.py kills the exploration of a region, which goes on in the same way
def test_a_killed_search_goes_on_where_it_was(scripted: Scripted) -> None:
    """
    Kill -9 within a probe: --resume keeps its answers, and judges to the byte.
    """
    project = with_capacity(scripted, "152 ms")
    file = project.path / "run" / "capacity.jsonl"
    process = project.held("run/capacity.jsonl", after=40).start("certify", "slo.toml", "--out", "run", "--quiet")
    until(lambda: file.exists() and len(file.read_text().splitlines()) >= 40)
    process.kill()
    process.communicate()
    before = file.read_text().splitlines()

    project.run("certify", "slo.toml", "--out", "run", "--resume", "--quiet", code=0)

    assert before == file.read_text().splitlines()[: len(before)]
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()[:-1] if '"role":"measured"' in line]
    assert len(keys) == len(set(keys))
    assert bracketed(capacity_of(project)["draft"], 4)
    assert project.run("judge", "run", "--json", code=0).out == (project.path / "run" / "verdict.json").read_text()


@pytest.mark.nightly  # a quarter of a minute of real requests
def test_a_real_server_that_refuses_a_seventh_request_has_six_streams(project: ProjectFolder) -> None:
    """
    Over HTTP, on real threads: a probe has as many requests in flight as it says, no more and no fewer.
    """
    with capacity_server("--base", "0.005", "--step", "0", "--refuse-above", "6") as url:
        project.write_slo(
            {
                "schema": 1,
                "name": "refuses",
                "subject": {
                    "backend": "openai",
                    "target": str(ROOT / "models" / "little-target"),
                    "served_model_name": "known",
                    "url": f"{url}/v1",
                },
                "workload": [EASY[0] | {"speculation": "optional"}],
                "sweep": {"repeats": 1},
                "soak": {"duration": "1 s"},
                "capacity": {"streams": 16},
                "objective": [{"metric": "tpot_p95", "at_most": "10 s", "why": "only a refusal counts"}],
            }
        )
        (project.path / "easy.jsonl").write_text(canary_lines("easy", 80))
        project.run("certify", "slo.toml", "--out", "run", "--quiet")

    plain = capacity_of(project)["plain"]
    assert (6, 6) == (plain["at_least"], plain["at_most"])


def test_a_capacity_without_a_latency_is_refused(scripted: Scripted) -> None:
    """
    Nothing says how many streams are too many where no objective bounds a latency: exit 2, before anything runs.
    """
    project = scripted(workload=EASY, capacity={"streams": 8})

    refused = project.run("plan", "slo.toml", "--json", code=2)

    assert "capacity.streams" in refused.out + refused.err
