"""What fails while a region is explored: the certified point stays promoted, and nothing unproven is routed."""

import json
import math
import resource
import signal
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper.analysis.metrics import comparability
from tests.builders.disk import at_line
from tests.builders.golden_words import lines_with
from tests.builders.project_folder import ROOT, Done, ProjectFolder, canary_lines
from tests.builders.real_pair import certified_as
from tests.builders.scripted_slo import EASY
from tests.builders.small_run import lines
from tests.builders.waiting import until
from tests.e2e.conftest import ended, project, scripted
from tests.e2e.test_interruptions import Ended
from tests.e2e.test_worker_run import echoing
from tools import write_gguf

__all__ = ["ended", "project", "scripted"]

RUN = ("certify", "slo.toml", "--out", "run")
FAKE = ROOT / "tests" / "backends" / "fake_llama_server.py"


def points(project: ProjectFolder) -> dict[str, tuple[str, str]]:
    """Return the outcome and the reason of each point that was probed."""
    region = project.verdict()["workloads"][0]["region"]
    return {json.dumps(point["point"]): (point["outcome"], point["because"]) for point in region["points"]}


def promoted(project: ProjectFolder, done: Done) -> dict[str, Any]:
    """Check that the run promotes its workload; return the region of its policy."""
    assert (0, "promoted") == (done.code, project.verdict()["outcome"]), done.out + done.err
    region: dict[str, Any] = tomllib.loads((project.path / "run" / "policy.toml").read_text())["route"][0]["region"]
    return region


@pytest.mark.nightly
def test_a_server_that_refuses_longer_prompts_limits_the_region_alone(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    HTTP 400 to each prompt beyond the server's window: that context is outside, by the answers that failed. What was
    certified stays promoted, and the other axis is explored as if nothing had happened.
    """
    monkeypatch.setattr(comparability, "OUTLIER_FACTOR", math.inf)  # on a busy machine the fake's speed varies
    write_gguf.main([str(project.path), "little-target", "little-draft"])
    (project.path / "lines.jsonl").write_text(canary_lines("line", 8))
    project.write_slo(
        {
            "schema": 1,
            "name": "window",
            "subject": {
                "backend": "llama-server",
                "target": "little-target.gguf",
                "drafts": ["little-draft.gguf"],
                "program": [sys.executable, str(FAKE), "new"],
            },
            "workload": [{"name": "lines", "canaries": "lines.jsonl"}],
            "sweep": {"repeats": 1, "budget": 8, "num_draft_tokens": [3]},
            "soak": {"duration": "2 s", "max_duration": "60 s", "sentinel_share": 0.5, "sentinel_drift": 0.99},
            "region": {"context": [40, 400], "temperature": [0.0, 0.5], "canaries": 8, "repeats": 1},
            "objective": [{"metric": "throughput_ratio", "at_least": 0.01, "why": "it is a fake"}],
        }
    )
    refusing = ProjectFolder(
        project.path, {**project.environment, "FAKE_LLAMA": json.dumps({"pass_s": 0.005, "window": 100})}
    )

    done = refusing.run(*RUN)

    assert project.verdict() == project.run("judge", "run", "--json", code=0).document
    region, points_by_name = promoted(refusing, done), points(refusing)
    outcome, because = points_by_name['{"context": 400}']
    assert "outside" == outcome
    assert "error_rate" in because
    assert ("inside", "inside") == (points_by_name['{"context": 40}'][0], points_by_name['{"temperature": 0.5}'][0])
    assert 0.5 == region["temperature"]["at_most"]
    assert 5 < region["context"]["at_most"] <= 40
    assert "HTTP 400" in (project.path / "run" / "region.jsonl").read_text()


DIES = """
    if request["temperature"] > 0.7:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""

BREAK = 'open("run/broken", "w").close()'
BROKEN = 'import os\nif os.path.exists("run/broken"):\n    raise SystemExit(7)\n'


def dying(project: ProjectFolder, code: str) -> ProjectFolder:
    """Write an SLO for the echoing worker with *code* at the start of each answer, and a region of two temperatures."""
    echoing(project, timeout="1 s")
    worker = project.path / "my_worker.py"
    begin = '    send(begin=request["ask"])\n'
    text = worker.read_text().replace(begin, code + begin, 1)
    worker.write_text(text.replace('"num_draft_tokens"]', '"num_draft_tokens", "temperature", "max_tokens"]'))
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["sweep"] |= {"num_draft_tokens": [2]}
    slo["soak"] |= {"sentinel_drift": 0.99}
    slo["region"] = {"temperature": [0.0, 0.5, 1.0], "max_tokens": [128], "canaries": 8, "repeats": 1}
    project.write_slo(slo)
    return project


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        pytest.param("SIGKILL", "worker died: signal 9", id="killed", marks=pytest.mark.nightly),
        pytest.param("SIGSTOP", "timeout", id="stopped"),
    ],
)
def test_a_system_that_dies_of_a_point_is_started_for_the_next_one(
    project: ProjectFolder, number: str, fault: str
) -> None:
    """
    The worker is killed, or stopped, by each request of one point: that point is outside, by the answers that failed;
    the next point is measured by a system that was started again.
    """
    done = certified_as(dying(project, DIES.replace("SIGKILL", number)), {"lines": "promoted"})

    region, points_by_name = promoted(project, done), points(project)
    assert ("inside", "outside") == (
        points_by_name['{"temperature": 0.5}'][0],
        points_by_name['{"temperature": 1.0}'][0],
    )
    assert "error_rate" in points_by_name['{"temperature": 1.0}'][1]
    assert "temperature 1" in lines_with("died (3 in a row)", done.err)
    assert "the limit was not tried" in points_by_name['{"max_tokens": 128}'][1]
    assert 0.5 == region["temperature"]["at_most"]
    assert f'"fault":"{fault}' in (project.path / "run" / "region.jsonl").read_text()


@pytest.mark.nightly
def test_a_system_that_never_starts_again_leaves_the_rest_open(project: ProjectFolder) -> None:
    """
    It dies of a point and its program is broken then: a warning, the point and all later ones are open, and what was
    proven before stays.
    """
    worker = dying(project, DIES.replace("        os.kill", f"        {BREAK}\n        os.kill")).path / "my_worker.py"
    worker.write_text(BROKEN + worker.read_text())

    done = certified_as(project, {"lines": "promoted"})

    region, points_by_name = promoted(project, done), points(project)
    assert "stays open" in done.out + done.err
    assert ["inside", "open", "open"] == [outcome for outcome, _ in points_by_name.values()]
    assert (0.5, 64) == (region["temperature"]["at_most"], region["max_tokens"]["at_most"])


def regional(scripted: Callable[..., ProjectFolder]) -> ProjectFolder:
    """Write an SLO for a simulated server that drafts well up to temperature 0.7."""
    return scripted(
        {"ratio": 1.5, "slower": [{"axis": "temperature", "above": 0.7, "by": 2.0}]},
        workload=EASY,
        objective=[{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}],
        sweep={"repeats": 1, "num_draft_tokens": [4]},
        region={"temperature": [0.0, 0.3, 0.7, 1.0]},
    )


def explored(project: ProjectFolder) -> None:
    """Check that the region is the one of the script."""
    assert ["inside", "inside", "outside"] == [outcome for outcome, _ in points(project).values()]


def test_an_interrupt_in_the_region_is_130_and_resumable(scripted: Callable[..., ProjectFolder], ended: Ended) -> None:
    """
    Ctrl-C while a point is measured: code 130, nothing is promoted until --resume has explored the rest, and each
    answer is kept.
    """
    project = regional(scripted)
    file = project.path / "run" / "region.jsonl"
    process = project.held("run/region.jsonl", after=20).start(*RUN, "--quiet")
    until(lambda: file.exists() and len(lines(file.read_bytes())) > 20)

    process.send_signal(signal.SIGINT)
    interrupted = ended(process)
    before = lines(file.read_bytes())
    unfinished = project.run("judge", "run")
    done = project.run(*RUN, "--resume")

    assert (130, 3) == (interrupted.code, unfinished.code)
    assert "--resume" in interrupted.err
    assert before == lines(file.read_bytes())[: len(before)]
    promoted(project, done)
    explored(project)


def test_a_disk_that_is_full_in_the_region_loses_nothing(
    scripted: Callable[..., ProjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    No room for the answers of a point: code 4 with the file and the way on; with room, --resume explores the rest.
    """
    project = regional(scripted)
    file, before = project.path / "run" / "region.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, before[1]))

    try:
        with monkeypatch.context() as patch:
            at_line(patch, "region.jsonl", 20, fill)
            full = project.run(*RUN, code=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    lines_before = lines(file.read_bytes())
    done = project.run(*RUN, "--resume")

    assert all(word in full.err for word in ("region.jsonl: ", "File too large"))
    assert "--resume" in full.err
    assert lines_before == lines(file.read_bytes())[: len(lines_before)]
    promoted(project, done)
    explored(project)
