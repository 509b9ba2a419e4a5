"""An SLO for a scripted subject: its canaries `easy` draft well, `hard` badly; all of it can be changed."""

import json
import os
from collections.abc import Mapping
from typing import Any

from tests.builders.project_folder import ProjectFolder, canary_lines

SEED = int(os.environ.get("SCRIPT_SEED", "3"))
"""The same draws each time, so that what passes once passes again; the night draws others."""
EASY = [{"name": "easy", "canaries": "easy.jsonl"}]
"""The one workload that is promoted."""
BOTH = [*EASY, {"name": "hard", "canaries": "hard.jsonl", "speculation": "optional"}]
"""With one that is graded back: half as long again to certify, for tests that are about two."""
SLOW = {"token": "300 ms", "verify": "330 ms", "draft_token": {"heavy": "30 ms", "light": "15 ms"}}
"""An answer takes seconds, as those of a real model do: ten minutes of them are few to judge, and each has samples."""


def write_scripted(project: ProjectFolder, truth: Mapping[str, Any] | None = None, **changes: Any) -> ProjectFolder:
    """Write it into *project* with its script and its canaries; *truth* changes the script, *changes* the SLO."""
    subject = {
        "seed": SEED,
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
        "workload": EASY,
        "sweep": {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
        # One step down, which is one more soak; `fallback={}` is the whole ladder.
        "fallback": {"ladder": ["autoregressive"]},
        "soak": {"duration": "60 s"},
        "objective": [
            {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"},
            {"metric": "token_agreement", "at_least": 1, "why": "it must be lossless"},
        ],
        **changes,
    }
    # A dozen pairs of unlike canaries look like a decay in one of a thousand steady soaks.
    slo["soak"] = {"baseline_drift": 0.5, **slo["soak"]}
    project.write_slo(slo)
    return project
