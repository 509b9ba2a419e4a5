# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""What clients may hold: connections, the time for a head and a body, and memory. A limit of ours blames no server."""

import asyncio
import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from multidict import CIMultiDict

from gatekeeper.live.http import client_limits
from gatekeeper.live.http.forward import forwarded_headers
from tests.builders.deployment import CERTIFIED, Answering, Deployed
from tests.builders.descriptors import few_descriptors
from tests.builders.live_server import ASKED, CHAT, WORDS, LiveServer, listening, proxied
from tests.builders.proxy_process import proxy
from tests.builders.waiting import until, until_in_loop

pytestmark = pytest.mark.timeout(240)
HEAD = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ONCE = {"interval": 3600.0, "missing_for": 36000.0, "canaries": 1}
GUARD = {"metric": "error_rate", "at_most": 0.5, "for": 60.0}
BODY = {**ASKED, "stream": True}


async def test_a_process_without_descriptors_blames_no_server(tmp_path: Path) -> None:
    """Without a descriptor the client gets 503, no answer counts as failed, and with one the next is answered."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            async with proxy.session.get(proxy.url + "/") as response:  # a connection to the proxy, that stays
                await response.read()
            with few_descriptors(0):
                refused = [await proxy.chat() for _ in range(2)]
            status, _, headers = await proxy.chat()
            await asyncio.sleep(0.01)
            benefit = proxy.routes.evidence.benefit("easy")

            assert [(503, "5")] * 2 == [
                (code, response_headers["Retry-After"]) for code, _, response_headers in refused
            ]
            assert "may not open more files" in json.loads(refused[0][1])["error"]["message"]
            assert (200, "speculative") == (status, headers["x-gatekeeper-route"])
            assert benefit is not None
            assert ({"speculative": 1, "holdout": 0}, 0.0) == (
                benefit.answers,
                benefit.error_share["speculative"][0],
            )
            assert ["none", "none", "speculative"] == [record["route"] for record in proxy.records]
            assert 1 == len(proxy.said)
            assert 0 == len(plain.requests)


@pytest.mark.whole
@pytest.mark.parametrize(("soft", "hard", "idle"), [(128, 128, 116), (128, 1024, 200)])
def test_idle_connections_turn_no_speculation_off(tmp_path: Path, soft: int, hard: int, idle: int) -> None:
    """Connections beyond few descriptors get 503; where more are allowed they are taken, and requests speculate."""
    with Answering() as server, Answering() as plain:
        plain.drafted = plain.accepted = 0
        deployed = Deployed.served(tmp_path, server.url)
        deployed.policy(guards=[GUARD], watch=ONCE, proxy={"default": "easy", "holdout": 0.01}, **CERTIFIED)
        options = ("--url", server.url, "--plain-url", plain.url)
        files = (deployed.path / "policy.toml", deployed.path / "run", deployed.path / "slo.toml")
        with proxy(*files, *options, descriptors=(soft, hard)) as (process, url):
            until(lambda: (tmp_path / "policy.live.toml").exists() or process.poll() is not None)
            assert process.poll() is None, url
            place = ("127.0.0.1", int(url.rpartition(":")[2]))
            connections = [socket.create_connection(place, timeout=60) for _ in range(idle)]
            statuses = [status(url) for _ in range(12)]
            for connection in connections:
                connection.close()
            until(lambda: status(url) == 200)
            assert [200] * 3 == [status(url) for _ in range(3)]  # one request in a hundred is held out
            metrics = httpx2.get(f"{url}/metrics").text

            assert process.poll() is None

    records = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    requests = [record for record in records if record["kind"] == "request"]
    assert ({200} if hard > 128 else {503}) == set(statuses)
    assert [] == [request["fault"] for request in requests if request["fault"] is not None]
    assert "gatekeeper_proxy_faults_total{" not in metrics
    assert any(request["arm"] == "speculative" for request in requests)


def status(url: str) -> int:
    """Return the status of one request on a connection of its own; 503 where it is closed before it is read."""
    with suppress(httpx2.TransportError):
        return httpx2.post(url + CHAT, json=BODY, timeout=60).status_code
    return 503


async def test_a_head_that_does_not_arrive_ends_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a head is not waited for, nor one that drips; an answer may take longer."""
    monkeypatch.setattr(client_limits, "HEAD_S", 0.3)
    async with listening(LiveServer(waits=True)) as server, proxied(tmp_path, server) as proxy:
        async with proxy.session.post(proxy.url + CHAT, json=BODY) as slow:
            assert WORDS[0] == await slow.content.readany()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            dripping = asyncio.ensure_future(_drip(writer))
            ended = await asyncio.wait_for(_rest(reader), 60)
            dripping.cancel()
            writer.close()
            server.go.set()
            rest = await slow.read()

        assert (b"", True) == (ended, rest.endswith(b"[DONE]\n\n"))


async def _drip(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    with suppress(ConnectionError):
        while True:
            writer.write(b"X: y\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionResetError):
        return await reader.read()
    return b""


async def test_a_body_that_does_not_arrive_ends_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets 408, the server no request, and the bytes that came count no more."""
    monkeypatch.setattr(client_limits, "BODY_S", 0.3)
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(HEAD + b"Content-Length: 100\r\n\r\n{")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        writer.close()

        assert (b"408", []) == (answer.split(b" ")[1], server.requests)


@pytest.mark.parametrize(("method", "path"), [(b"GET", b"/v1/models"), (b"POST", b"/v1/embeddings")])
async def test_a_body_that_is_passed_on_has_a_time_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: bytes, path: bytes
) -> None:
    """The client gets 408 where a body drips, and the server's connection is closed."""
    monkeypatch.setattr(client_limits, "BODY_S", 0.3)
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(method + b" " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n")
        dripping = asyncio.ensure_future(_drip(writer))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        dripping.cancel()
        writer.close()

        assert (b"408", []) == (answer.split(b" ")[1], server.requests)


async def test_all_bodies_together_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one request is in flight, a second that would go beyond the limit gets 503; after its end it is taken."""
    monkeypatch.setattr(client_limits, "MOST_BODIES", 1 << 16)
    body = {**BODY, "user": "x" * 40_000}

    async with listening(LiveServer(waits=True)) as server, proxied(tmp_path, server) as proxy:
        async with proxy.session.post(proxy.url + CHAT, json=body) as first:
            await first.content.readany()
            status, _, headers = await proxy.chat(body)
            small = asyncio.ensure_future(proxy.chat())
            server.go.set()
            await first.read()

        assert (503, "5") == (status, headers["Retry-After"])
        assert [200, 200] == [(await small)[0], (await proxy.chat(body))[0]]
        assert 3 == len(server.requests)


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_that_is_too_long_is_refused_however_it_is_framed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framing: str
) -> None:
    """Without a length in its head it is refused once it is too long, with the same status."""
    monkeypatch.setattr(client_limits, "MOST_BODY", 1 << 16)
    body = b'{"user": "' + b"x" * (1 << 17) + b'"}'
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = b"Content-Length: %d\r\n\r\n" % len(body) if framing == "length" else b"Transfer-Encoding: chunked\r\n\r\n"

    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(HEAD + head + (body if framing == "length" else chunked))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        writer.close()

        assert (b"413", []) == (answer.split(b" ")[1], server.requests)
        assert 200 == (await proxy.chat())[0]


async def test_connections_beyond_the_limit_are_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection too many gets 503 with Retry-After; when another one ends, the next is served."""
    monkeypatch.setattr(client_limits, "MOST_CLIENTS", 2)
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        place = ("127.0.0.1", proxy.port)
        connections = [await asyncio.open_connection(*place) for _ in range(2)]
        await asyncio.sleep(0.05)  # until the proxy has them
        reader, _ = await asyncio.open_connection(*place)
        answer = await asyncio.wait_for(reader.read(), 60)
        connections[0][1].close()
        await until_in_loop(lambda: _is_served(*place))

        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 5\r\n" in answer
        assert answer.endswith(b"\r\n\r\ntoo many connections.\n")


async def _is_served(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        return (await reader.read()).split(b" ")[1:2] == [b"200"]
    except ConnectionResetError:
        return False
    finally:
        writer.close()


def test_many_headers_of_the_connection_are_dropped_at_once() -> None:
    """18,000 lines in a head of 256 kB cost other streams no seconds."""
    lines = [("Connection", f"x{number}") for number in range(18_000)]
    began = time.process_time()

    forwarded = forwarded_headers(CIMultiDict([*lines, ("X17999", "dropped"), ("Y", "kept")]))

    assert [("Y", "kept")] == list(forwarded.items())
    assert time.process_time() - began < 0.5
