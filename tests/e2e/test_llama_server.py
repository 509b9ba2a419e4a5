"""Whole runs on llama-server: the real program where there is one, refusals everywhere."""

import json
import sys
import tomllib
from typing import Any

import pytest

from tests.builders.mac_tools import write_tools
from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.real_programs import llama_server
from tools import write_gguf

FAKE = f'exec "{sys.executable}" "{ROOT / "tests" / "backends" / "fake_llama_server.py"}" new "$@"'


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


REFUSED: dict[str, dict[str, Any]] = {
    "is truncated": {"target": "cut.gguf"},
    "different vocabularies": {"drafts": ["little-draft-alien.gguf"]},
    "no file": {"drafts": ["no-such.gguf"]},
    "does not show drafted": {"acceptance": "ours"},
    "invents acceptance": {"args": ["--spec-synth-len", "3"]},
}
"""What the error says, and what the SLO has."""


def test_what_cannot_be_certified_is_refused(project: ProjectFolder) -> None:
    """A truncated file, a foreign or missing draft, uncounted and invented acceptance: code 2; the rest is frozen."""
    write_tools(project.path / "bin", {"llama-server": FAKE})
    program = str(project.path / "bin" / "llama-server")
    for words, changes in REFUSED.items():
        smoke(project, program, **changes)
        content = (project.path / "little-target.gguf").read_bytes()
        (project.path / "cut.gguf").write_bytes(content[:-1000])

        assert words in project.run("certify", "slo.toml", "--out", "run", code=2).err
        assert not (project.path / "run" / "verdict.json").exists()
    smoke(project, program)
    project.run("certify", "slo.toml", "--only", "sweep", "--out", "swept", code=0)

    manifest = json.loads((project.path / "swept" / "manifest.json").read_text())
    assert {"little-target.gguf"} == manifest["target"]["files"].keys()
    assert ("qwen3", 1012) == (manifest["target"]["architecture"], manifest["target"]["vocabulary"])
    assert "version: 9999 (fake)" == manifest["versions"]["llama-server"]
    assert ("kernel" if sys.platform == "linux" else "process") == manifest["arrival_times"]
