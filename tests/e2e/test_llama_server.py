"""Whole runs on llama-server: the real program where there is one, refusals everywhere."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.real_programs import llama_server
from tools import write_gguf

UNSURE = {"code": (0.79, 0.98), "prose": (0.22, 1.0)}
"""Acceptance of drafts of 12 tokens, and of those that end where the draft is unsure."""
FAKE = ROOT / "tests" / "backends" / "fake_llama_server.py"


def smoke(project: ProjectFolder, program: str, *, acceptance: str = "claims", **changes: Any) -> None:
    """Write the shipped smoke SLO for llama-server, with the little pair as GGUF next to it."""
    write_gguf.main([str(project.path), "little-target", "little-draft", "little-draft-alien"])
    slo = tomllib.loads((ROOT / "slos" / "smoke.toml").read_text())
    slo["subject"] = {
        "backend": "llama-server",
        "target": "little-target.gguf",
        "drafts": ["little-draft.gguf"],
        "program": [program],
        "args": ["--ctx-size", "2048", "--parallel", "1"],
        **changes,
    }
    for objective in slo["objective"]:
        if objective["metric"] == "acceptance_rate":
            objective["from"] = acceptance
    project.write_slo(slo)


@pytest.fixture
def fake(tmp_path: Path) -> str:
    """A fake llama-server of a new build."""
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" new "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.slow
def test_the_real_server_is_soaked(project: ProjectFolder) -> None:
    """The real llama-server on the little pair as GGUF: lossless, and its acceptance judged by claims that add up."""
    smoke(project, llama_server(), args=["--threads", "1", "--ctx-size", "2048", "--parallel", "1"])

    # It may be slower on a busy machine, where certify would choose plain decoding.
    project.run("certify", "slo.toml", "--only", "soak", "--set", "num_draft_tokens=4", "--out", "run", code=0)

    verdict = project.run("judge", "run", "--json").document
    (json_workload,) = (workload for workload in verdict["workloads"] if workload["name"] == "json")
    checks = {check["metric"]: check for check in json_workload["checks"]}
    assert ("pass", "pass") == (checks["token_agreement"]["outcome"], checks["acceptance_rate"]["outcome"])
    assert checks["acceptance_rate"]["center"] > 0.7
    assert "as the server reports" in checks["acceptance_rate"]["because"]
    assert "counter_lie" not in {finding["kind"] for finding in verdict["findings"]}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_draft_that_ends_where_it_is_unsure_on_the_real_server(project: ProjectFolder) -> None:
    """With draft_p_min the real llama-server ends drafts at different lengths, so more of what it drafts is
    accepted.
    """
    smoke(project, llama_server(), args=["--threads", "1", "--ctx-size", "2048", "--parallel", "1"])
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["workload"] = [
        {"name": name, "canaries": f"little/{name}", "first": 12, "speculation": "optional"} for name in UNSURE
    ]
    lengths = {"num_draft_tokens": [4, 12], "draft_p_min": [0.0, 0.6]}
    slo["sweep"] = {"design": "grid", "repeats": 1, "budget": 8, "default": {"num_draft_tokens": 4}, **lengths}
    slo["objective"] = [
        objective for objective in slo["objective"] if objective["metric"] in {"throughput_ratio", "token_agreement"}
    ]
    project.write_slo(slo)

    project.run("certify", "slo.toml", "--out", "run")

    for workload in project.verdict()["workloads"]:
        choice = workload["choice"]
        rates = {setting["trial"]: setting["acceptance_rate"] for setting in choice["settings"]}
        full_rounds, ended = (rates[f"num_draft_tokens-12_draft_p_min-{p_min}"] for p_min in (0.0, 0.6))
        assert UNSURE[workload["name"]] == pytest.approx((full_rounds, ended), abs=0.05)


def test_the_manifest_names_the_file_and_the_build(project: ProjectFolder, fake: str) -> None:
    """The manifest holds the checksum and the header's facts of a GGUF target, the program's version, and whose
    times the
    arrivals have.
    """
    smoke(project, fake)

    project.run("certify", "slo.toml", "--only", "sweep", "--out", "run", code=0)

    manifest = json.loads((project.path / "run" / "manifest.json").read_text())
    assert {"little-target.gguf"} == manifest["target"]["files"].keys()
    assert ("qwen3", 1012) == (manifest["target"]["architecture"], manifest["target"]["vocabulary"])
    assert "version: 9999 (fake)" == manifest["versions"]["llama-server"]
    assert ("kernel" if sys.platform == "linux" else "process") == manifest["arrival_times"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target": "cut.gguf"}, "is truncated"),
        ({"drafts": ["little-draft-alien.gguf"]}, "different vocabularies"),
        ({"drafts": ["no-such.gguf"]}, "no file"),
        ({"acceptance": "ours"}, "does not show drafted"),
        ({"args": ["--spec-synth-len", "3"]}, "invents acceptance"),
    ],
)
def test_what_cannot_be_certified_is_refused(
    project: ProjectFolder, fake: str, changes: dict[str, Any], says: str
) -> None:
    """A truncated file, a foreign or missing draft, uncounted and invented acceptance: exit code 2, no run."""
    smoke(project, fake, **changes)
    content = (project.path / "little-target.gguf").read_bytes()
    (project.path / "cut.gguf").write_bytes(content[:-1000])

    done = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert says in done.err
    assert not (project.path / "run" / "verdict.json").exists()
