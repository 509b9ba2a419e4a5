"""As real servers are used: conversations that grow, on the little pair."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder
from tests.builders.real_pair import ATTEMPTS, outcomes, records
from tests.builders.real_programs import llama_server
from tools import write_gguf

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(1500)]
CONVERSATIONS, TURNS = 6, 3
LAYERS = 48
"""Of the target in llama-server: with its own eight an answer ends before a clock on a busy machine shows a speed."""
OBJECTIVES: list[dict[str, Any]] = [
    {"metric": "throughput_ratio", "at_least": 0.3, "why": "how fast a busy machine is does not count here"},
    {"metric": "warm_cache_agreement", "at_least": 0.0, "why": "a known fault of one of the servers"},
]


def talk_lines() -> str:
    """Return conversations whose prompts, which the pair answers with JSON, grow with each turn."""
    lines: list[str] = []
    prompts = [
        json.loads(line)["messages"][-1]["content"]
        for line in (ROOT / "canaries" / "little" / "json.jsonl").read_text().splitlines()
    ]
    for number in range(CONVERSATIONS):
        messages: list[dict[str, str]] = []
        for turn in range(1, TURNS + 1):
            messages = [*messages, {"role": "user", "content": prompts[number * TURNS + turn - 1]}]
            canary = {"id": f"talk-{number}-{turn}", "conversation": f"c{number}", "turn": turn, "messages": messages}
            lines.append(json.dumps(canary | {"max_tokens": 32}))
            messages = [*messages, {"role": "assistant", "content": '{"name": "a note"}'}]
    return "\n".join(lines)


def prepare(project: ProjectFolder, backend: str) -> None:
    """Write an SLO of one workload of conversations on the little pair, with the cache as deployed."""
    target, draft = (str(ROOT / "models" / f"little-{name}") for name in ("target", "draft"))
    args: list[str] = []
    if backend == "llama-server":
        args = ["--threads", "1", "--ctx-size", "8192", "--parallel", "1"]
        llama_server()
        for model, layers in ((target, LAYERS), (draft, None)):
            write_gguf.write(Path(model), project.path / f"{Path(model).name}.gguf", layers=layers, kind="F16")
        target, draft = "little-target.gguf", "little-draft.gguf"
    (project.path / "talk.jsonl").write_text(talk_lines())
    subject = {"backend": backend, "target": target, "drafts": [draft], "args": args, "prompt_cache": "as-deployed"}
    project.write_slo(
        {
            "schema": 1,
            "name": "use",
            "subject": subject,
            "sampling": {"temperature": 0.0, "max_tokens": 32},
            "workload": [{"name": "talk", "canaries": "talk.jsonl"}],
            "sweep": {"num_draft_tokens": [4], "repeats": 1, "stop": "never"},  # a look starts four servers
            "soak": {"duration": "4 s", "baseline_share": 0.5, "baseline_drift": 0.9},
            "objective": OBJECTIVES,
        }
    )


@pytest.mark.parametrize("backend", [pytest.param("mlx-server", marks=pytest.mark.mlx), "llama-server"])
def test_conversations_that_grow_are_certified(project: ProjectFolder, backend: str) -> None:
    """Each turn is resumed on the server's cache in both arms, and each length of context has its line."""
    prepare(project, backend)
    for _ in range(ATTEMPTS):  # a busy machine may leave it unproven
        shutil.rmtree(project.path / "run", ignore_errors=True)
        ran = project.run("certify", "slo.toml", "--out", "run")
        if outcomes(project.verdict()) != {"talk": "unproven"}:
            break
    assert {"talk": "promoted"} == outcomes(project.verdict()), ran.out

    turns = [record for record in records(project.path / "run" / "warm_cache-1.jsonl") if record["role"] == "warm"]
    read = {(turn["arm"], turn["canary"]): turn["answer"]["prompt_tokens"] for turn in turns}
    assert {"plain", "candidate"} == {turn["arm"] for turn in turns}
    for turn in turns:
        if turn["repeat"] > 0:
            head, _, number = turn["canary"].rpartition("-")
            before = read[turn["arm"], f"{head}-{int(number) - 1}"]
            assert turn["answer"]["claims"]["cached_tokens"] >= 0.8 * before, turn
    contexts = project.verdict()["workloads"][0]["measured"]["contexts"]
    assert max(read.values()) == contexts[-1]["most"]
    assert CONVERSATIONS * (TURNS - 1) == sum(each["turns"] for each in contexts)
    page = (project.path / "run" / "report.html").read_text()
    assert len(contexts) == page.count('data-head="Prompt, tokens"')
    assert project.verdict() == project.run("judge", "run", "--json").document
