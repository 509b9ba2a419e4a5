"""A run of few writes on a virtual clock, and its folder as a value: to be kept, damaged and put back."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines

Files = dict[str, bytes | None]
"""The content of a folder by path; None for a folder in it."""
SWEEP = ("baseline.jsonl", "null.jsonl", "sweep-default.jsonl")
RECORDS = (*SWEEP, "soak-1.jsonl", "host.jsonl", "events.jsonl")
PUBLISHED = (
    "verdict.json",
    "policy.toml",
    "chain.intoto.json",
    "certificate.intoto.json",
    "junit.xml",
    "report.html",
    "SHA256SUMS",
)


def small(folder: Path) -> ProjectFolder:
    """Write the SLO of a run with few writes."""
    user_folders = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    project = ProjectFolder(folder, {**os.environ, **user_folders, "PYTHONPATH": str(ROOT)})
    script = {"seed": 3, "token": "100 ms", "verify": "110 ms", "draft_token": {"heavy": "10 ms"}}
    (folder / "truth.json").write_text(json.dumps({**script, "canaries": {"easy-": {"acceptance": 0.9}}}))
    (folder / "easy.jsonl").write_text(canary_lines("easy", 5))
    project.write_slo(
        {
            "schema": 1,
            "name": "small",
            "subject": {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "truth.json"},
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sweep": {"repeats": 1, "num_draft_tokens": [4], "default": {"num_draft_tokens": 4}},
            "soak": {"duration": "2 s"},
            "objective": [{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}],
        }
    )
    return project


def stored(folder: Path) -> Files:
    """Return what a folder holds."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in paths}


def restored(folder: Path, files: Files) -> None:
    """Make *folder* hold just these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir(parents=True)
        else:
            (folder / name).write_bytes(content)


def gist(text: bytes | None) -> Any:
    """Return what a verdict says, without figures that another soak or another moment changes."""
    verdict = json.loads(text or b"{}")
    workloads = [
        (
            workload["name"],
            workload["outcome"],
            workload["setting"],
            [(check["metric"], check["outcome"]) for check in workload["checks"]],
        )
        for workload in verdict["workloads"]
    ]
    return verdict["outcome"], verdict["exit_code"], verdict.get("incomplete"), workloads


def lines(content: bytes | None) -> list[bytes]:
    """Return the whole lines of a record file that are records."""
    closed_lines = (content or b"").split(b"\n")[:-1]
    return [line for line in closed_lines if not line.startswith(b'{"end"')]


def unfinished(files: Files) -> Files:
    """Return the run as a kill in the judge stage leaves it."""
    remaining = {name: content for name, content in files.items() if name not in PUBLISHED}
    for name in ("host.jsonl", "events.jsonl"):
        remaining[name] = b"".join(line + b"\n" for line in lines(files[name]))
    return remaining
