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
READING = {"metric": "itl_p50", "at_most": "1 s", "why": "reading speed"}


def attached(
    project: ProjectFolder,
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
                "backend": "openai", "target": str(ROOT / "models" / "little-target"), "served_model_name": "big",
                "drafts": ["as-served"],
                "url": servers[0].url, "plain_url": servers[1].url,
            },
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sweep": {"repeats": 1},
            "soak": {"duration": "1 s"},
            "objective": [dict(objective)],
        }
    )  # fmt: skip
    return servers


def test_a_first_token_is_judged_where_the_server_tells_what_was_cached(project: ProjectFolder) -> None:
    """Answers that tell of the cache are measured, whatever the dialect forecasts."""
    fast, plain = attached(project, REPORTED)

    planned = project.run("plan", "slo.toml", code=0)
    with fast, plain:
        project.run("certify", "slo.toml", "--only", "sweep", "--output", "run")

    manifest = json.loads((project.path / "run" / "manifest.json").read_text())
    assert "not every openai shows how much of a prompt came from a cache" in " ".join(planned.out.split())
    assert "COLD" in manifest["sight"]


@pytest.mark.parametrize(
    ("usage", "objective", "hidden", "instead"),
    [
        ({}, FIRST_TOKEN, "how much of a prompt came from a cache in two short answers", ""),
        (REPORTED, READING, "how many tokens each piece of two short answers has", "answer_latency"),
    ],
)
def test_what_two_short_answers_do_not_show_is_refused(
    project: ProjectFolder, usage: Mapping[str, object], objective: Mapping[str, object], hidden: str, instead: str
) -> None:
    """Exit code 3, with another server or objective to take, and no advice about canaries."""
    fast, plain = attached(project, usage, objective, joined=objective is READING)

    with fast, plain:
        refused = project.run("certify", "slo.toml", "--output", "run", code=3)

    assert f"did not show {hidden}" in " ".join(refused.err.split())
    assert instead in refused.err
    assert "canaries" not in refused.err
