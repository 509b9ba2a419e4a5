"""What the end-to-end tests share."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import Done, ProjectFolder, canary_lines, project_folder


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    return project_folder(tmp_path)


@pytest.fixture
def scripted(project: ProjectFolder) -> Callable[..., ProjectFolder]:
    """Write an SLO for a scripted subject: `easy` drafts well, `hard` badly; both can be changed."""

    def write(truth: Mapping[str, Any] | None = None, **changes: Any) -> ProjectFolder:
        subject = {
            "seed": 3,
            # Slow tokens: a soak of minutes is a hundred answers to judge, not a thousand.
            "token": "100 ms",
            "verify": "110 ms",
            "draft_token": {"heavy": "10 ms", "light": "5 ms"},
            "noise": {"answer": 0.02},
            "canaries": {"easy-": {"acceptance": 0.9}, "hard-": {"acceptance": 0.05}},
            **(truth or {}),
        }
        (project.path / "truth.json").write_text(json.dumps(subject))
        for prefix in ("easy", "hard"):
            (project.path / f"{prefix}.jsonl").write_text(canary_lines(prefix, 12))
        slo = {
            "schema": 1,
            "name": "scripted",
            "subject": {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"},
            "workload": [
                {"name": "easy", "canaries": "easy.jsonl"},
                {"name": "hard", "canaries": "hard.jsonl", "speculation": "optional"},
            ],
            "sweep": {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
            "soak": {"duration": "150 s"},
            "objective": [
                {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"},
                {"metric": "token_agreement", "at_least": 1, "why": "it must be lossless"},
            ],
            **changes,
        }
        # A dozen pairs of unlike canaries look like a decay in one of a thousand steady soaks.
        slo["soak"] = {"sentinel_drift": 0.5, **slo["soak"]}
        project.write_slo(slo)
        return project

    return write


@pytest.fixture
def ended() -> Callable[[subprocess.Popen[str]], Done]:
    """Wait for a started command and return what it said."""

    def wait(process: subprocess.Popen[str]) -> Done:
        out, err = process.communicate(timeout=240)
        return Done(process.returncode, out, err)

    return wait


@pytest.fixture
def kill_group() -> Callable[[subprocess.Popen[str], signal.Signals], None]:
    """Send a signal to the command alone, as a terminal or an operator would."""

    def send(process: subprocess.Popen[str], number: signal.Signals) -> None:
        os.kill(process.pid, number)

    return send
