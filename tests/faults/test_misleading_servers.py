"""Servers over sockets whose faults look like a result: refusals, and answers that contradict themselves."""

import time
from pathlib import Path

import pytest

from tests.builders.project_folder import ProjectFolder
from tests.builders.servers import (
    CHAT,
    DONE,
    REFUSAL,
    Pieces,
    Protocol,
    Request,
    certify_served,
    delta,
    event,
    finish,
    usage,
)

GAINS = {"metric": "throughput_ratio", "at_least": 1.05, "why": "it must pay"}
WORDS = tuple(f"word{number} " for number in range(24))
GAP_S = 0.005
OPTIONAL = [{"name": "work", "canaries": "work.jsonl", "speculation": "optional"}]


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    return ProjectFolder(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache"), "GITHUB_ACTIONS": "true"})


def sound(_request: Request, drafting: bool) -> Pieces:
    """One token a chunk plainly, two a chunk with the draft, half as late."""
    width = 2 if drafting else 1
    for at in range(0, len(WORDS), width):
        time.sleep(GAP_S)
        yield event(delta(content="".join(WORDS[at : at + width])))
    yield event(finish())
    yield event(usage(usage={"prompt_tokens": 9, "completion_tokens": len(WORDS)}))
    yield DONE


@pytest.mark.parametrize("status", [400, 503, 200])
@pytest.mark.parametrize("required", [True, False], ids=["required", "optional"])
def test_a_server_that_refuses_every_draft_is_quoted(project: ProjectFolder, status: int, *, required: bool) -> None:
    """
    Each drafted request is refused, also by an error as HTTP 200: code 3, and the server's words are on the screen, in
    JUnit and in the annotations, in place of "no gain was proven".
    """
    refusing = Protocol(CHAT, sound, refuses=lambda _request, drafting: status if drafting else None)

    done = certify_served(project, refusing, GAINS, **({} if required else {"workload": OPTIONAL}))

    assert 3 == done.code
    assert "all_drafted_failed" in {finding["kind"] for finding in project.verdict()["findings"]}
    junit = (project.path / "run" / "junit.xml").read_text()
    annotations = "".join(line for line in done.err.splitlines() if line.startswith("::error"))
    assert all(REFUSAL in text and "no gain" not in text for text in (done.out, junit, annotations))
