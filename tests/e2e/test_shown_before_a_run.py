"""What two short answers show before a run decides what can be judged of it, whatever is forecast of the server."""

import json
from collections.abc import Mapping

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines
from tests.builders.servers import (
    CHAT,
    DONE,
    USAGE,
    Pieces,
    Protocol,
    RecordedServer,
    Request,
    by_round,
    event,
    finish,
    one_by_one,
)

REPORTED = {"prompt_tokens_details": {"cached_tokens": 0}}
"""How a server tells that it read a whole prompt."""
FIRST_TOKEN = {"metric": "ttft_delta", "at_most": 0.08, "why": "a reader waits for it"}


def attached(
    project: ProjectFolder,
    backend: str,
    usage: Mapping[str, object],
    objective: Mapping[str, object] = FIRST_TOKEN,
    *,
    joined: bool = False,
) -> tuple[RecordedServer, RecordedServer]:
    """Write an SLO with an *objective* for two servers, whose answers end with *usage*; *joined*: a piece a round."""

    def pieces(_request: Request, drafting: bool) -> Pieces:
        yield from by_round(drafting=drafting) if joined else one_by_one()
        yield event(finish(usage={**USAGE, **usage}))
        yield DONE

    protocol = Protocol(CHAT, pieces)
    servers = RecordedServer(protocol, drafting=True), RecordedServer(protocol, drafting=False)
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 6))
    project.write_slo(
        {
            "schema": 1,
            "name": "attached",
            "subject": {
                "backend": backend, "target": str(ROOT / "models" / "little-target"), "served_model_name": "big",
                "drafts": ["as-served" if backend == "openai" else str(ROOT / "models" / "little-draft")],
                "url": servers[0].url, "plain_url": servers[1].url,
            },
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sweep": {"repeats": 1},
            "soak": {"duration": "1 s"},
            "objective": [dict(objective)],
        }
    )  # fmt: skip
    return servers


@pytest.mark.parametrize("backend", ["openai", "omlx"])
def test_a_first_token_is_judged_where_the_server_tells_what_was_cached(project: ProjectFolder, backend: str) -> None:
    """A server whose dialect forecasts nothing of its prompt cache, and whose answers tell of it, is measured: the run
    begins, and its manifest keeps what was shown.
    """
    fast, plain = attached(project, backend, REPORTED)

    planned = project.run("plan", "slo.toml", code=0)
    with fast, plain:
        project.run("certify", "slo.toml", "--only", "sweep", "--output", "run")

    manifest = json.loads((project.path / "run" / "manifest.json").read_text())
    assert f"not every {backend} shows how much of a prompt came from a cache" in " ".join(planned.out.split())
    assert "COLD" in manifest["sight"]


def test_it_is_refused_where_the_server_does_not_tell(project: ProjectFolder) -> None:
    """Exit code 3 after two short answers, which say nothing of a cache."""
    fast, plain = attached(project, "openai", {})

    with fast, plain:
        refused = project.run("certify", "slo.toml", "--output", "run", code=3)

    assert "did not show how much of a prompt came from a cache in two short answers" in " ".join(refused.err.split())


def test_gaps_per_token_are_refused_where_several_tokens_come_a_piece(project: ProjectFolder) -> None:
    """Exit code 3 after two short answers, with another server or objective to take, and no advice about canaries."""
    objective = {"metric": "itl_p50", "at_most": "1 s", "why": "reading speed"}
    fast, plain = attached(project, "openai", REPORTED, objective, joined=True)

    with fast, plain:
        refused = project.run("certify", "slo.toml", "--output", "run", code=3)

    assert "did not show how many tokens each piece of two short answers has" in " ".join(refused.err.split())
    assert "canaries" not in refused.err
    assert "answer_latency" in refused.err
