# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""Answers that were to be decoded plainly, and of which their server says that it drafted them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.live.request_routes import RequestRoutes
from tests.builders.deployment import Answering, Deployed, WatchOutput
from tests.builders.live_server import LiveProxy, LiveServer, listening, proxied, published
from tests.builders.servers import DRAFTED, PROTOCOLS, USAGE, WORDS, delta, event, finish, llama_server, usage

pytestmark = pytest.mark.timeout(120)
ERRORS = {"metric": "error_rate", "at_most": 0.2, "for": 0.0}
TELLING = ("lmstudio", "mtplx", "mlx-vlm", "vllm-mlx", "rapid-mlx", "sglang")


def tap(*, drafting: bool) -> tuple[bytes, ...]:
    """Return the stream of mlx_lm.server with our tap."""
    counts: dict[str, Any] = {"tokens": len(WORDS), "rounds": 3, "drafted": DRAFTED, "accepted": 9}
    counts |= {"tried_by_position": [3, 3, 3, 3], "accepted_by_position": [3, 3, 2, 1]}
    words = [event(delta(content=word)) for word in WORDS]
    told = USAGE | ({"speculative": counts} if drafting else {})
    return (*words, event(finish()), event(usage() | {"usage": told}), b"data: [DONE]\n\n")


def pieces(backend: str, *, drafting: bool) -> tuple[bytes, ...]:
    if backend == "mlx-server":
        return tap(drafting=drafting)
    if backend == "ddtree":
        return tuple(PROTOCOLS[backend].pieces({"stream": False}, drafting))
    if backend in {"llama-server", "openai"}:
        return tuple(llama_server(drafting).pieces({}, drafting))
    request: dict[str, Any] = {"return_spec_tokens_details": True, "generation_mode": "mtp" if drafting else "ar"}
    request |= {"draft_model": "heavy"} if drafting else {}
    return tuple(PROTOCOLS[backend].pieces(request, drafting))


async def metrics(proxy: LiveProxy) -> str:
    async with proxy.session.get(proxy.url + "/metrics") as answer:
        return await answer.text()


@pytest.mark.parametrize("backend", [*TELLING, "llama-server", "mlx-server", "ddtree", "openai"])
async def test_a_plain_answer_that_was_drafted_turns_every_route_off(tmp_path: Path, backend: str) -> None:
    """The answer is no evidence and is recorded, in metrics and on the terminal; from then on nothing speculates."""
    kind = {"Content-Type": "application/json" if backend == "ddtree" else "text/event-stream"}
    servers = [LiveServer(pieces(backend, drafting=drafting), headers=kind) for drafting in (True, True, False)]

    draws = iter([1.0, 0.0, 1.0])
    async with listening(servers[0]) as server, listening(servers[1]) as plain:
        async with proxied(tmp_path, server, plain, draw=lambda: next(draws), publish=False) as proxy:
            published(proxy.routes, backend=backend)
            for number in range(3):
                await proxy.chat(**{"x-gatekeeper-conversation": str(number)})
            speculative, holdout, after = proxy.records
            benefit = proxy.routes.evidence.benefit("easy")

            assert benefit is not None
            assert {"speculative": 1, "holdout": 0} == benefit.answers
            assert ("speculative", "plain", "plain") == tuple(record["route"] for record in proxy.records)
            assert speculative["drafted"]
            assert holdout["drafted"]
            assert "plain decoding is not plain" in after["because"]
            assert 1 == sum("not plain" in line for line in proxy.said)
            text = await metrics(proxy)
            assert 'gatekeeper_proxy_not_plain_total{workload="easy"} 2.0' in text
            assert 'gatekeeper_proxy_speculates{workload="easy"} 0.0' in text


@pytest.mark.parametrize("backend", [*TELLING, "llama-server", "mlx-server", "ddtree", "openai"])
async def test_a_plain_answer_that_was_not_drafted_is_evidence(tmp_path: Path, backend: str) -> None:
    """Zeros, nulls and absent counts are plain decoding's."""
    kind = {"Content-Type": "application/json" if backend == "ddtree" else "text/event-stream"}

    async with listening(LiveServer(pieces(backend, drafting=False), headers=kind)) as plain:
        async with proxied(tmp_path, plain, plain, draw=lambda: 0.0, publish=False) as proxy:
            published(proxy.routes, backend=backend)
            await proxy.chat()
            benefit = proxy.routes.evidence.benefit("easy")

            assert benefit is not None
            assert ("", {"speculative": 0, "holdout": 1}) == (proxy.routes.not_plain, benefit.answers)
            assert not proxy.records[0]["drafted"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_words_of_an_answer_are_no_claim(tmp_path: Path, *, streamed: bool) -> None:
    """A model that writes what a server would report of its drafts turns nothing off."""
    words = '{"timings": {"draft_n": 5, "draft_n_accepted": 5}}'
    part = {"choices": [{"delta" if streamed else "message": {"content": words}}], "usage": USAGE}
    piece = event(part) if streamed else json.dumps(part).encode()
    kind = {"Content-Type": "text/event-stream" if streamed else "application/json"}

    async with listening(LiveServer((piece,), headers=kind)) as plain:
        async with proxied(tmp_path, plain, plain, draw=lambda: 0.0, publish=False) as proxy:
            published(proxy.routes, backend="llama-server")
            await proxy.chat()

            assert ("", [None]) == (proxy.routes.not_plain, [record["drafted"] for record in proxy.records])


JSON, SSE = "application/json", "text/event-stream"
CLAIM = b'"timings": {"draft_n": 5, "draft_n_accepted": 5}'
DOCUMENT = b'{"choices": [{"message": {"content": "%s"}}], %s}'
PLAIN = '{"choices": [], "mtplx_stats": {"generation_mode": "ar"}}'
MTP = PLAIN.replace('"ar"', '"mtp"')


async def holdout(path: Path, answer: bytes, backend: str = "llama-server", **headers: str) -> tuple[str, int]:
    """Return what the proxy says of plain decoding after this answer of the holdout, and how many it counts."""
    async with listening(LiveServer((answer,), headers=headers)) as plain:
        async with proxied(path, plain, plain, draw=lambda: 0.0, publish=False) as proxy:
            published(proxy.routes, backend=backend)
            await proxy.chat()
            benefit = proxy.routes.evidence.benefit("easy")
            return proxy.routes.not_plain, 0 if benefit is None else benefit.answers["holdout"]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        pytest.param(JSON, DOCUMENT % (b"x" * (1 << 18), CLAIM), id="256 kB"),
        pytest.param(JSON, DOCUMENT % (b"x" * (5 << 20), CLAIM), id="5 MB"),
        pytest.param(JSON, DOCUMENT % (b"x" * (1 << 18), b'"metadata": {"usage": {}}, ' + CLAIM), id="another usage"),
        pytest.param(SSE, b"data: %s\n\n" % (DOCUMENT % (b"x" * (1 << 17), CLAIM)), id="line of 128 kB"),
        pytest.param(SSE, b"data: %s\n\n" % (DOCUMENT % (b"x" * (3 << 20), CLAIM)), id="line of 3 MB"),
        pytest.param(SSE, b"data: {%s}" % CLAIM, id="line without end"),
        pytest.param(SSE, b"data: {%s}\n\n%s" % (CLAIM, b": \n\n" * (1 << 16)), id="comments after it"),
    ],
)
async def test_a_claim_is_found_at_the_end_of_any_answer(tmp_path: Path, kind: str, answer: bytes) -> None:
    """However long an answer or its last line is, the counts after its words turn every route off."""
    not_plain, answers = await holdout(tmp_path, answer, **{"Content-Type": kind})

    assert ("plain decoding is not plain: of a plain answer, 5 tokens were drafted", 0) == (not_plain, answers)


async def test_what_a_server_repeats_of_a_request_is_no_claim(tmp_path: Path) -> None:
    """Deeper inside a long answer stands what a client may have written: it turns nothing off."""
    answer = DOCUMENT % (b"x" * (1 << 18), b'"metadata": {%s}, "usage": {"completion_tokens": 3}' % CLAIM)

    assert ("", 1) == await holdout(tmp_path, answer, **{"Content-Type": JSON})


@pytest.mark.parametrize(
    ("answer", "headers"),
    [
        pytest.param(gzip.compress(DOCUMENT % (b"x", CLAIM)), {"Content-Encoding": "gzip"}, id="compressed"),
        pytest.param(DOCUMENT % (b"x" * (1 << 18), b'"id": "1"'), {}, id="no claim at the end"),
    ],
)
async def test_an_answer_whose_claim_cannot_be_read_is_no_evidence(
    tmp_path: Path, answer: bytes, headers: dict[str, str]
) -> None:
    """Nothing shows that it was plain, and nothing that it was not: it is neither evidence nor an alarm."""
    not_plain, answers = await holdout(tmp_path, answer, **{"Content-Type": JSON}, **headers)

    assert ("", 0) == (not_plain, answers)


@pytest.mark.parametrize("streamed", [False, True])
async def test_mtplx_says_by_its_mode_how_it_decoded(tmp_path: Path, *, streamed: bool) -> None:
    """Without counts the mode alone turns every route off, or leaves them on."""
    headers = {"Content-Type": SSE if streamed else JSON}
    answers = [(f"data: {text}\n\n" if streamed else text).encode() for text in (MTP, PLAIN)]
    (tmp_path / "ar").mkdir()
    drafted = await holdout(tmp_path, answers[0], "mtplx", **headers)
    plain = await holdout(tmp_path / "ar", answers[1], "mtplx", **headers)

    assert "plain decoding is not plain: of a plain answer, its server says that it used a draft" == drafted[0]
    assert (0, ("", 1)) == (drafted[1], plain)


def test_the_watch_turns_the_routes_off_until_another_certificate(tmp_path: Path) -> None:
    """Once live requests have shown it, the next round bars every route; a restart continues from that."""
    with Answering() as server, Answering() as plain:
        deployed, output = Deployed.served(tmp_path, server.url), WatchOutput()
        deployed.policy(guards=[ERRORS], watch={"interval": 0.1, "duty": 0.5})
        traffic = RequestRoutes()
        addresses = {"url": server.url, "plain_url": plain.url}
        with deployed.session(output, traffic=traffic, **addresses) as session:
            session.run(1)
            speculated = traffic.routes["easy"].speculation
            traffic.not_plain = "plain decoding is not plain: the server drafted 12 tokens of an answer"
            code = session.run(1)
        with deployed.session(output, traffic=RequestRoutes(), **addresses) as session:
            again = session.run(1)

    assert speculated
    assert (1, 1, ["barred 0>2"]) == (code, again, output.changes)
    assert "12 tokens" in output.of("change")[0]["because"]


def test_a_plain_canary_that_was_drafted_turns_the_routes_off(tmp_path: Path) -> None:
    """A plain server of --plain-url that says of a canary that it was drafted is not the certified one."""
    guards = [{"metric": "throughput_ratio", "at_least": 0.01, "for": 3600.0}, ERRORS]
    with Answering() as server, Answering() as plain:
        deployed, output = Deployed.served(tmp_path, server.url), WatchOutput()
        deployed.policy(guards=guards, watch={"interval": 0.1, "duty": 0.5})
        plain.drafted = plain.accepted = 0
        with deployed.session(output, url=server.url, plain_url=plain.url) as session:
            assert 0 == session.run(2)
            plain.drafted = 10
            session.run(2)

    assert ["barred 0>2"] == output.changes
    assert "not plain: 10 tokens were drafted" in output.of("change")[0]["because"]
