# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""The holdout over real sockets: conversations keep their arm, and what their answers are evidence of."""

import asyncio
import html
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gatekeeper.core.judgement import Estimate
from gatekeeper.live.live_evidence import STREAM
from gatekeeper.report import phrases
from tests.builders.live_server import LiveServer, listening, live_policy, proxied, published
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


class PausingServer(LiveServer):
    """Answers after a pause of so many seconds."""

    pause_s = 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.pause_s)
        return await super().answer(request)


async def test_ordinary_clients_prove_the_gain_by_whole_answers(tmp_path: Path) -> None:
    """Whole answers are compared; the page says what to send, and calls it no proof where prompts may be cached."""
    draws = iter([0.0, 1.0] * 20)
    pieces, headers = (b'{"choices":[{"message":{"content":"word"}}]}',), {"Content-Type": "application/json"}
    server, plain = (PausingServer(pieces=pieces, headers=headers) for _ in range(2))
    plain.pause_s = 0.05
    async with (
        listening(server),
        listening(plain),
        proxied(tmp_path, server, plain, draw=lambda: next(draws)) as proxy,
    ):
        for number in range(40):
            await proxy.chat({"messages": [{"role": "user", "content": f"say {number}"}]})
        benefit = proxy.routes.evidence.benefit("easy")
        async with proxy.session.get(proxy.url + "/") as answer:
            page = html.unescape(await answer.text())
        published(proxy.routes, of=live_policy(cache="on"))
        async with proxy.session.get(proxy.url + "/") as answer:
            cached = html.unescape(await answer.text())

        assert benefit is not None
        assert isinstance(benefit.whole, Estimate)
        assert benefit.whole.center > 1
        benefit_text = f"live, whole answers: {phrases.ratio(benefit.whole)}"
        assert (True, False) == (benefit_text in page, f"{benefit_text}; no proof" in page)
        assert f"{benefit_text}; no proof" in cached
        assert all(
            f"40 of 40 answers showed no decode speed: a client that sends {STREAM}" in text for text in (page, cached)
        )
