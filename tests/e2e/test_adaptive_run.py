"""Whole runs of a system that chooses its draft length by the load, as vLLM's and SGLang's do."""

import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.project_folder import ProjectFolder

EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
LOADS = {
    "design": "grid",
    "repeats": 1,
    "num_draft_tokens": [2, 6, "adaptive"],
    "concurrency": [1, 8],
    "default": {"num_draft_tokens": 6},
}


@pytest.mark.parametrize(
    ("by_load", "length", "reason"),
    [
        ({"1": 6, "5": 1}, "adaptive", "only the fixed length is slower than plain decoding|proven faster"),
        ({"1": 6, "5": 12}, 6, r"at concurrency 8 it is 0\."),
    ],
    ids=["shrinks under load", "grows under load"],
)
def test_a_length_that_follows_the_load(
    scripted: Callable[..., ProjectFolder], by_load: dict[str, int], length: object, reason: str
) -> None:
    """
    With 8 streams a long draft costs more than it saves. A server that then shortens it is as fast as the best fixed
    length for one stream and slower than plain decoding nowhere, so it is chosen and soaked, and its
    route drafts for 8 requests; one that lengthens it is
    as fast for one stream too, and is not.
    """
    truth: dict[str, Any] = {"adaptive": by_load, "batching": {"draft_token": 0.05}}
    project = scripted(truth, workload=EASY, sweep=LOADS)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    (workload,) = project.verdict()["workloads"]
    choice = workload["choice"]
    (compared,) = choice["adaptive"]
    # For one stream both are alike: on a busy machine one may be proven a hundredth faster.
    assert re.search(reason, choice["because"])
    assert length == choice["setting"]["num_draft_tokens"] == workload["setting"]["num_draft_tokens"]
    assert ("default", length == "adaptive") == (compared["against"], compared["chosen"])
    written = tomllib.loads((project.path / "run" / "policy.toml").read_text())
    (route,) = written["route"]
    assert (length, 8 if length == "adaptive" else 1) == (
        route["setting"]["num_draft_tokens"],
        route["max_concurrency"],
    )
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document
