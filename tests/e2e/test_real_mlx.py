"""Whole runs on the real mlx-lm and the real mlx_lm.server, with the little pair."""

import json
import os
import shutil
import signal
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import pytest

from gatekeeper.core.system.inputs import find_canaries
from tests.builders.place import ROOT, Done, Place
from tests.e2e.conftest import place as place_in

pytestmark = pytest.mark.mlx

Until = Callable[[Callable[[], bool]], None]
Ended = Callable[[subprocess.Popen[str]], Done]


def smoke(
    place: Place, *, only: str | None = None, seconds: float = 6, tokens: int | None = None, **subject: Any
) -> Place:
    """Write the shipped smoke SLO with absolute paths; *subject* changes its [subject].

    With *only* one workload, which may then decode plainly, one draft length is swept. *tokens* limits the answers, for
    tests that only need some.
    """
    slo = tomllib.loads((ROOT / "slos" / "smoke.toml").read_text())
    slo["subject"] |= {
        "target": str(ROOT / "models" / "little-target"),
        "drafts": [str(ROOT / "models" / "little-draft")],
        **subject,
    }
    for workload in slo["workload"]:
        file = find_canaries(workload["canaries"], ROOT / "slos")
        if tokens is not None:
            canaries = (json.loads(line) | {"max_tokens": tokens} for line in file.read_text().splitlines())
            file = place.path / file.name
            file.write_text("".join(json.dumps(one) + "\n" for one in canaries))
        workload["canaries"] = str(file)
    if only is not None:
        slo["workload"] = [one | {"speculation": "optional"} for one in slo["workload"] if one["name"] == only]
        slo["sweep"] |= {"num_draft_tokens": [4]}
    slo["soak"] |= {"duration": f"{seconds} s"}
    slo["soak"].pop("max_duration", None)
    place.write_slo(slo)
    return place


def outcomes(verdict: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["outcome"] for one in verdict["workloads"]}


ATTEMPTS = 3
"""How often a run is made whose outcome other work on the machine may have decided: then it counts as it ended."""
TIMES = {"throughput_ratio", "ttft_delta"}
"""The objectives on time; all others hold at any speed, and are demanded of every run."""


def certified_as(place: Place, hoped: dict[str, str], *, slo: str | Path = "slo.toml") -> Done:
    """Certify until the workloads end as *hoped*; repeat only a run that noise disturbed, at most ATTEMPTS times."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(place.path / "run", ignore_errors=True)
        ran = place.run("certify", str(slo), "--out", "run")
        verdict = place.verdict()
        checks = [one for work in verdict["workloads"] for one in work["checks"] if one["metric"] not in TIMES]
        assert len(hoped) <= len(checks)
        assert {"pass"} == {one["outcome"] for one in (*checks, *verdict["host_checks"])}, ran.out
        assert ran.code == verdict["exit_code"]
        if outcomes(verdict) == hoped:
            return ran
        assert not quiet(place.path / "run"), f"on a quiet machine: {ran.out}"
    pytest.fail(f"{ATTEMPTS} runs did not end as hoped, the last one so: {ran.out}")


def quiet(run: Path) -> bool:
    """Tell whether the machine was quiet: nine of ten answers took as long as their like, in each arm."""
    paces: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in (one for path in run.glob("*.jsonl") for one in records(path)):
        answer = one["answer"]
        if one["role"] != "warmup" and not answer["fault"]:
            alike = one["canary"], json.dumps(one["setting"])
            paces[one["arm"]][alike].append(answer["output_tokens"] / (answer["ended_ns"] - answer["sent_ns"]))
    for groups in paces.values():
        strayed = [abs(pace / median(seen) - 1) for seen in groups.values() if len(seen) > 2 for pace in seen]
        if len(strayed) > 1 and quantiles(strayed, n=10)[-1] >= 0.15:
            return False
    return True


def records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith('{"trial"')]


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def worker_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Find the process that holds the model: the one with the largest memory."""
    return max(children(process), key=lambda child: child.memory_info().rss)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    """The shipped smoke SLO, certified."""
    place: Place = place_in.__wrapped__(tmp_path_factory.mktemp("smoke"))  # type: ignore[attr-defined]
    return place, certified_as(smoke(place), {"json": "promoted", "random": "graded_back"})


@pytest.mark.alone
def test_the_smoke_slo_is_promoted(certified: tuple[Place, Done]) -> None:
    """
    The real mlx-lm on the real pair: JSON is promoted, random text is decoded plainly, and judging agrees.
    """
    place, ran = certified

    assert 0 == ran.code
    assert place.verdict() == place.run("judge", "run", "--json", code=0).document


def test_the_manifest_names_what_answered(certified: tuple[Place, Done]) -> None:
    """
    The manifest holds the checksum of every model file and the versions of the decoding packages.
    """
    place, _ = certified

    manifest = json.loads((place.path / "run" / "manifest.json").read_text())
    sums = {
        name: digest
        for digest, _, name in (
            line.partition("  ") for line in (ROOT / "models" / "SHA256SUMS").read_text().splitlines()
        )
    }
    expected = {name.split("/")[1]: digest for name, digest in sums.items() if name.startswith("little-target/")}
    assert expected == manifest["target"]["files"]
    assert {"gatekeeper", "mlx", "mlx-lm", "numpy", "python"} <= manifest["versions"].keys()


def test_a_killed_worker_is_a_fault_and_not_promoted(place: Place, until: Until, ended: Ended) -> None:
    """
    SIGKILL to the worker in the soak: the running answer is a fault, and the soak continues. A lost answer of the draft
    grades it back; one of the baseline costs a pair, so nothing is proven; one of plain decoding alone fails it.
    """
    smoke(place, only="json", seconds=2, tokens=24)
    soak = place.path / "run" / "soak-1.jsonl"
    process = place.start("certify", "slo.toml", "--out", "run")
    until(lambda: len(records(soak)) > 3)

    worker_of(process).kill()
    finished = ended(process)

    (fault, *_) = (one for one in records(soak) if one["answer"]["fault"])
    assert "signal 9" in fault["answer"]["fault"]
    assert not records(soak)[-1]["answer"]["fault"]
    drafted = any(one["arm"] == "candidate" for one in records(soak))
    ends = {"candidate": (0, "graded_back"), "plain": (3, "unproven") if drafted else (1, "failed")}
    assert ends[fault["arm"]] == (finished.code, outcomes(place.verdict())["json"]), finished.err
    if fault["arm"] == "candidate":
        assert any("error_rate" in step["because"] for step in place.verdict()["transitions"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_gate(place: Place, until: Until, ended: Ended, number: signal.Signals) -> None:
    """
    Interrupted or killed, gatekeeper leaves no worker behind; the run resumes and ends in a verdict.
    """
    smoke(place, only="json", seconds=2, tokens=24)
    soak = place.path / "run" / "soak-1.jsonl"
    process = place.start("certify", "slo.toml", "--out", "run")
    until(lambda: len(records(soak)) > 3)
    left = children(process)

    os.kill(process.pid, number)
    stopped = ended(process)
    _, alive = psutil.wait_procs(left, timeout=30)
    resumed = place.run("certify", "slo.toml", "--out", "run", "--resume")

    assert {signal.SIGINT: 130, signal.SIGKILL: -9}[number] == stopped.code
    assert [] == alive
    assert resumed.code == place.verdict()["exit_code"]
    assert "incomplete" not in place.verdict(), resumed.out


def test_the_real_server_is_certified(place: Place) -> None:
    """
    The real mlx_lm.server: one process per arm, acceptance counted by our tap, both arms compared in blocks.
    """
    smoke(place, only="json", seconds=4, backend="mlx-server")

    certified_as(place, {"json": "promoted"})

    soaked = [one for path in (place.path / "run").glob("soak-*.jsonl") for one in records(path)]
    drafting = [one for one in soaked if one["arm"] == "candidate" and not one["answer"]["fault"]]
    assert drafting
    assert all(one["answer"]["rounds"]["drafted"] > 0 for one in drafting if one["answer"]["output_tokens"] > 1)


def test_a_server_that_exits_at_start_is_quoted(place: Place) -> None:
    """
    A server that refuses its arguments is exit code 2 with the tail of its own log.
    """
    smoke(place, backend="mlx-server", args=["--no-such-flag"])

    refused = place.run("certify", "slo.toml", "--out", "run", code=2)

    assert "--no-such-flag" in refused.err


def test_a_draft_that_hardly_learned_is_graded_back(place: Place) -> None:
    """
    The negative control: a badly trained draft is slower even on JSON and is never promoted.
    """
    bad = str(ROOT / "models" / "little-draft-bad")
    smoke(place, only="json", seconds=2, drafts=[bad])

    place.run("certify", "slo.toml", "--out", "run")

    assert "promoted" not in outcomes(place.verdict()).values()


def warm_cache(place: Place, **subject: Any) -> Place:
    """Write the shipped warm-cache SLO with absolute paths; *subject* changes its [subject]."""
    slo = tomllib.loads((ROOT / "slos" / "quickstart-warm-cache.toml").read_text())
    little = {"target": str(ROOT / "models" / "little-target"), "drafts": [str(ROOT / "models" / "little-draft")]}
    slo["subject"] |= {**little, **subject}
    place.write_slo(slo)
    return place


@pytest.mark.parametrize(("args", "outcome"), [([], "fail"), (["--prompt-cache-size", "0"], "pass")])
def test_the_warm_cache_of_the_real_server_is_soaked(place: Place, args: list[str], outcome: str) -> None:
    """
    mlx_lm.server with a draft and its prompt cache on changes greedy answers, without the cache it does not; the soak
    finds exactly that, at any speed of this machine.
    """
    slo = tomllib.loads((warm_cache(place, args=args).path / "slo.toml").read_text())
    slo["workload"] = [one | {"first": 5} for one in slo["workload"] if one["name"] == "json"]
    slo["sampling"]["max_tokens"] = 48
    slo["soak"] = {"duration": "2 s", "sentinel_drift": 0.9}
    place.write_slo(slo)

    place.run("soak", "slo.toml", "--set", "num_draft_tokens=3", "--out", "run", code=0)

    (found,) = (one["checks"] for one in place.verdict()["workloads"])
    timeless = {one["metric"]: one["outcome"] for one in found if one["metric"] not in TIMES}
    expected = dict.fromkeys(timeless, "pass") | {"warm_cache_agreement": outcome}
    assert expected == timeless
    assert {"token_agreement", "error_rate", "speculation_engaged"} < timeless.keys()


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_the_warm_cache_of_the_real_server_is_caught(place: Place) -> None:
    """
    mlx_lm.server with a draft and its prompt cache on changes greedy answers: that alone breaks, and grades back.
    """
    warm_cache(place)

    place.run("certify", "slo.toml", "--out", "run", code=1)

    verdict = place.verdict()
    broken = [step["because"].removeprefix("autoregressive: ") for step in verdict["transitions"]]
    advice = {one["advice"] for one in verdict["findings"] if one["kind"] == "warm_cache_changes_answers"}
    assert {"json": "graded_back", "code": "graded_back"} == outcomes(verdict)
    assert ["warm_cache_agreement", "warm_cache_agreement"] == [one.partition(":")[0] for one in broken]
    assert not any("; token_agreement" in one or "; throughput_ratio" in one for one in broken)
    assert all("--prompt-cache-size 0" in one for one in advice)
    assert advice
    assert verdict == place.run("judge", "run", "--json", code=1).document


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_the_way_out_of_the_warm_cache_is_promoted(place: Place) -> None:
    """
    The same server deployed with `--prompt-cache-size 0` meets every objective, the one about the cache included.
    """
    warm_cache(place, args=["--prompt-cache-size", "0"])

    place.run("certify", "slo.toml", "--out", "run", code=0)

    assert {"json": "promoted", "code": "promoted"} == outcomes(place.verdict())


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_the_quickstart_ends_as_the_readme_says(place: Place) -> None:
    """
    The README's first command: JSON and code are promoted, random text is sent to plain decoding, a demo, code 0.
    """
    hoped = {"json": "promoted", "code": "promoted", "random": "graded_back"}

    ran = certified_as(place, hoped, slo=ROOT / "slos" / "quickstart.toml")

    assert ("demo", 0) == (place.verdict()["grade"], ran.code)
