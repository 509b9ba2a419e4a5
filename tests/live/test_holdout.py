# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""The holdout over real sockets: conversations keep their arm, and what their answers are evidence of."""

from pathlib import Path
from typing import Any

import pytest

from tests.builders.live_server import LiveServer, listening, proxied
from tests.builders.waiting import until_in_loop

pytestmark = pytest.mark.timeout(120)
TURNS = 4
CLIENTS = 6
SECRET = "the launch of client"


def talk(client: int, turn: int) -> dict[str, Any]:
    """Return the request of a client in its turn, with all turns before it."""
    messages = [{"role": "system", "content": "you are a clerk."}, {"role": "user", "content": f"{SECRET} {client}"}]
    for number in range(turn):
        messages += [
            {"role": "assistant", "content": f"answer {number}"},
            {"role": "user", "content": f"and {number}?"},
        ]
    return {"messages": messages, "stream": True}


async def test_all_requests_of_a_conversation_go_to_one_server(tmp_path: Path) -> None:
    """Each server gets whole conversations, which are counted; neither the record nor the page holds their words."""
    draws = iter([0.0, 1.0] * (CLIENTS // 2))
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain, draw=lambda: next(draws)) as proxy:
            for turn in range(TURNS):
                for client in range(CLIENTS):
                    await proxy.chat(talk(client, turn))
            async with proxy.session.get(proxy.url + "/metrics") as answer:
                metrics = await answer.text()
            benefit = proxy.routes.evidence.benefit("easy")

    firsts = [{body["messages"][1]["content"] for body in live_server.bodies} for live_server in (plain, server)]
    assert [{f"{SECRET} {client}" for client in range(start, CLIENTS, 2)} for start in (0, 1)] == firsts
    assert benefit is not None
    assert {"speculative": 3 * TURNS, "holdout": 3 * TURNS} == benefit.answers
    assert {"speculative": 3, "holdout": 3} == benefit.conversations
    samples = dict(line.rsplit(maxsplit=1) for line in metrics.splitlines() if not line.startswith("#"))
    assert "3.0" == samples['gatekeeper_proxy_conversations{arm="holdout",workload="easy"}']
    assert CLIENTS == len({record["conversation"] for record in proxy.records})
    assert SECRET not in (tmp_path / "live.jsonl").read_text()


@pytest.mark.parametrize(
    ("claim", "speed"),
    [
        (b"", None),
        (b',"timings":{"prompt_ms":900.0,"predicted_n":4,"predicted_ms":500.0}', 8.0),
        (b',"eval_count":4,"eval_duration":250000000', 16.0),
        (b',"timings":{"predicted_ms":0}', None),
        (b',"timings":{"predicted_ms":-5}', None),
        (b',"timings":{"predicted_ms":NaN}', None),
    ],
)
async def test_an_answer_that_is_not_streamed_shows_a_speed_only_where_its_server_states_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claim: bytes, speed: float | None
) -> None:
    """Its duration holds the prompt, which one arm may have cached: that is no speed, and no first token."""
    observations = []

    body = b'{"choices":[{"message":{"content":"four"}}]%s}' % claim
    server = LiveServer(pieces=(body,), headers={"Content-Type": "application/json"})
    async with listening(server), proxied(tmp_path, server) as proxy:
        monkeypatch.setattr(proxy.routes.evidence, "add", lambda observation, _: observations.append(observation))
        await proxy.chat({"messages": []})
        await until_in_loop(lambda: bool(proxy.records))

    (observation,) = observations
    assert (speed, None, False) == (observation.speed, observation.ttft, observation.streamed)
