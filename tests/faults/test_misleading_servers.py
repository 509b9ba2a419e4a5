"""Servers over sockets whose faults look like a result: refusals, and answers that contradict themselves."""

import time
from collections.abc import Callable
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


def streamed(
    drafting: bool,
    *,
    width: int = 2,
    first: int = 0,
    kept: Callable[[int], bool] = lambda _: True,
    counted: int = len(WORDS),
) -> Pieces:
    """One token a chunk plainly, and *width* a chunk with the draft, as late as one.

    The *first* tokens of a drafted answer come as one; only words that are *kept* are sent, *counted* ones reported.
    """
    width = width if drafting else 1
    waiting = list[str]()
    for at in range(0, len(WORDS), width):
        time.sleep(GAP_S)
        waiting += [word for number, word in enumerate(WORDS[at : at + width], at) if kept(number)]
        if waiting and not (drafting and at + width < first):
            yield event(delta(content="".join(waiting)))
            waiting.clear()
    yield event(finish())
    yield event(usage(usage={"prompt_tokens": 9, "completion_tokens": counted}))
    yield DONE


def sound(_request: Request, drafting: bool) -> Pieces:
    return streamed(drafting)


def ends_alone(number: int) -> bool:
    """Keep the first and the last words of an answer."""
    return number < 4 or number >= len(WORDS) - 2


VICES: dict[str, Callable[[Request, bool], Pieces]] = {
    "both arms send a few words and count all": lambda _, drafting: streamed(
        drafting, kept=lambda number: ends_alone(number) and number % 3 == 0
    ),
    "the draft sends first and last words and counts all": lambda _, drafting: streamed(
        drafting, kept=ends_alone if drafting else lambda _: True
    ),
    "the draft counts tokens past the end": lambda _, drafting: streamed(
        drafting, width=1, counted=len(WORDS) + (4 if drafting else 0)
    ),
}


@pytest.mark.parametrize("vice", VICES)
def test_counts_that_contradict_the_text_prove_nothing(project: ProjectFolder, vice: str) -> None:
    """Unproven, code 3, whether the faulty counts favour the draft or not; the contradiction is the reason."""
    done = certify_served(project, Protocol(CHAT, VICES[vice]), GAINS)

    assert 3 == done.code
    assert "contradiction" in {finding["kind"] for finding in project.verdict()["findings"]}


def test_a_bundle_at_the_beginning_is_no_speed(project: ProjectFolder) -> None:
    """A draft that is no faster and sends half of an answer at once shows no gain: pieces weigh by their text."""
    bundling = Protocol(CHAT, lambda _, drafting: streamed(drafting, width=1, first=12))

    done = certify_served(project, bundling, GAINS)

    verdict = project.verdict()
    assert 0 != done.code
    assert "promoted" not in {workload["outcome"] for workload in verdict["workloads"]}


@pytest.mark.parametrize(("status", "required"), [(400, True), (503, True), (200, False)])
def test_a_server_that_refuses_every_draft_is_quoted(project: ProjectFolder, status: int, *, required: bool) -> None:
    """Refused drafts are code 3 with the server's words on the screen, in JUnit and in the annotations."""
    refusing = Protocol(CHAT, sound, refuses=lambda _request, drafting: status if drafting else None)

    done = certify_served(project, refusing, GAINS, **({} if required else {"workload": OPTIONAL}))

    assert 3 == done.code
    assert "drafted_failed" in {finding["kind"] for finding in project.verdict()["findings"]}
    junit = (project.path / "run" / "junit.xml").read_text()
    annotations = "".join(line for line in done.err.splitlines() if line.startswith("::error"))
    assert all(REFUSAL in text and "no gain" not in text for text in (done.out, junit, annotations))
