# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""What passes between a client, the proxy and its servers, over real sockets."""

import asyncio
import hashlib
import json
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientPayloadError
from yarl import URL

from tests.builders.disk import largest_file
from tests.builders.live_server import (
    ASKED,
    CHAT,
    END,
    WORDS,
    LiveProxy,
    LiveServer,
    listening,
    live_policy,
    proxied,
    published,
)
from tests.builders.servers import PROTOCOLS
from tests.builders.tls import self_signed
from tests.builders.waiting import until_in_loop

pytestmark = pytest.mark.timeout(120)
WHOLE = b"".join((*WORDS, END))
PLAIN_REQUEST = {"generation_mode": "ar", "options": {"draft_num_predict": 0}, "return_spec_tokens_details": True}


def pieces_of(name: str) -> tuple[bytes, ...]:
    return tuple(PROTOCOLS[name].pieces({**PLAIN_REQUEST, "stream": name != "ddtree"}, False))


async def test_no_byte_of_any_protocol_is_changed(tmp_path: Path) -> None:
    """Every recorded protocol reaches the client byte by byte, and the record has digest and count."""
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        for name in PROTOCOLS:
            server.pieces = pieces_of(name)
            server.headers = {"Content-Type": "application/json" if name == "ddtree" else "text/event-stream"}
            text = b"".join(server.pieces)
            _, received, _ = await proxy.chat()
            record = proxy.records[-1]

            assert text == received, name
            assert (hashlib.sha256(text).hexdigest(), len(text)) == (record["digest"], record["bytes"])
            assert record["answer_chars"] > 0, name


async def test_a_request_is_passed_on_unchanged_where_the_server_takes_no_fields(tmp_path: Path) -> None:
    """Body, path and query arrive as they were sent; what belongs to the connection, or to the proxy, does not."""
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        body = b'{ "stream":true,  "messages": [] }'
        hop = {"Connection": "x-mine", "X-Mine": "1", "TE": "trailers", "Proxy-Authorization": "secret"}
        sent = {**hop, "Authorization": "Bearer k", "x-gatekeeper-workload": "easy", "X-Other": "kept"}
        async with proxy.session.post(
            URL(f"{proxy.url}{CHAT}?a=%2F&b", encoded=True), data=body, headers=sent
        ) as response:
            await response.read()
        path, headers, received = server.requests[0]

        assert (f"{CHAT}?a=%2F&b", body) == (path, received)
        assert ("Bearer k", "kept") == (headers["Authorization"], headers["X-Other"])
        assert server.url.removeprefix("http://") == headers["Host"]
        lowered = {name.lower() for name in headers}
        assert not lowered & {"x-mine", "te", "proxy-authorization", "x-gatekeeper-workload"}


async def test_a_long_request_is_read_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of a megabyte gets its fields, or is passed on as it is, and this process parses none of it."""
    messages = [{"role": "user", "content": "word " * 200_000}]
    long = {"messages": messages, "stream": True, "options": {"seed": 1}, "temperature": 0, "model": "t"}

    def parsed(text: bytes) -> Any:
        assert len(text) < 1000
        return json.JSONDecoder().decode(text.decode())

    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        rule = {"workload": "easy", "prompt_chars_at_least": 1_000_000}
        published(proxy.routes, of=live_policy(default=None, rule=[rule]))
        monkeypatch.setattr("gatekeeper.live.live_request.json.loads", parsed)
        await proxy.chat(long)
        published(proxy.routes, of=live_policy(default=None, rule=[rule]), fields={"options": {"n": 4}})
        await proxy.chat(long)
        monkeypatch.undo()

        assert [long, {**long, "options": {"seed": 1, "n": 4}}] == server.bodies
        records_seen = [(record["rule"], record["route"], record["prompt_chars"]) for record in proxy.records]
        assert [("rule 1", "speculative", 1_000_000)] * 2 == records_seen
        assert [] == proxy.said


async def test_a_piece_reaches_the_client_before_the_next_is_sent(tmp_path: Path) -> None:
    """Bytes are passed on as they come: the first word is there while the server still waits."""
    async with listening(LiveServer(waits=True)) as server, proxied(tmp_path, server) as proxy:
        async with proxy.session.post(proxy.url + CHAT, json={**ASKED, "stream": True}) as response:
            assert WORDS[0] == await response.content.readany()
            server.go.set()
            assert WHOLE == WORDS[0] + await response.read()


async def test_a_client_that_hangs_up_ends_the_request_at_the_server(tmp_path: Path) -> None:
    """The server sees the connection close in mid-answer, and the record says that the client left."""
    async with listening(LiveServer(waits=True)) as server, proxied(tmp_path, server) as proxy:
        response = await proxy.session.post(proxy.url + CHAT, json={**ASKED, "stream": True})
        await response.content.readany()
        response.close()
        await asyncio.wait_for(server.left.wait(), 30)
        await until_in_loop(lambda: bool(proxy.records))

        assert ("client left", 0) == (proxy.records[0]["fault"], proxy.routes.in_flight)


@pytest.mark.parametrize("holdout", [False, True])
async def test_a_failing_server_is_replaced_before_anything_was_sent(tmp_path: Path, holdout: bool) -> None:
    """A server that answers with 503, or not at all, is replaced by the other; the client sees one whole answer."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        draw = 0.0 if holdout else 1.0
        failing, used = (plain, "speculative") if holdout else (server, "plain")
        async with proxied(tmp_path, server, plain, draw=lambda: draw) as proxy:
            failing.status = 503
            status, body, headers = await proxy.chat()

        assert (200, WHOLE, used) == (status, body, headers["x-gatekeeper-route"])
        assert "status 503" in proxy.records[0]["because"]


@pytest.mark.parametrize(
    ("gone", "on", "failing", "status"),
    [("server", True, 200, 200), ("both", True, 200, 502), ("server", False, 503, 503)],
)
async def test_a_server_that_is_gone_is_replaced(
    tmp_path: Path, gone: str, *, on: bool, failing: int, status: int
) -> None:
    """The other server answers; where both are gone it is 502; a route that is off never speculates."""
    server, plain = LiveServer(), LiveServer(status=failing)
    async with listening(plain):
        async with listening(server):
            pass
        if gone == "server":
            async with proxied(tmp_path, server, plain) as proxy:
                published(proxy.routes, on=on)
                assert status == (await proxy.chat())[0]
    if gone == "both":
        async with proxied(tmp_path, server, plain) as proxy:
            assert status == (await proxy.chat())[0]
            assert "connection refused" in proxy.records[-1]["fault"]
    assert [] == server.requests


async def test_a_server_killed_in_mid_stream_is_no_whole_answer(tmp_path: Path) -> None:
    """The client's connection breaks too, nothing is repeated, and the record names the fault."""
    async with listening(LiveServer(breaks_after=2)) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            with pytest.raises(ClientError):
                await proxy.chat()
            await until_in_loop(lambda: bool(proxy.records))

            assert "broke off" in proxy.records[0]["fault"]
            assert [] == plain.requests


@pytest.mark.parametrize("complete", [True, False])
async def test_a_stream_that_only_the_connection_ends_is_whole_with_its_last_event(
    tmp_path: Path, complete: bool
) -> None:
    """mlx_lm.server speaks HTTP/1.0: a stream that ends without [DONE] was cut, and the client's connection breaks."""
    events = b"".join((*WORDS, END) if complete else WORDS)
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    live_server = LiveServer(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, proxied(tmp_path, live_server) as proxy:
        if complete:
            assert events == (await proxy.chat())[1]
        else:
            with pytest.raises(ClientPayloadError):  # after the head
                await proxy.chat()
        await until_in_loop(lambda: bool(proxy.records))

        assert complete == (proxy.records[0]["fault"] is None)


async def test_everything_else_is_passed_through(tmp_path: Path) -> None:
    """Other paths and methods reach the server with their bodies, and are not recorded."""
    async with listening(LiveServer(headers={"Content-Type": "text/plain", "X-Twice": "1"})) as server:
        async with proxied(tmp_path, server) as proxy:
            async with proxy.session.delete(proxy.url + "/v1/files/a%20b?x=1", data=b"\x00" * 70000) as response:
                assert (WHOLE, "1") == (await response.read(), response.headers["X-Twice"])

        assert ("/v1/files/a%20b?x=1", 70000) == (server.requests[0][0], len(server.requests[0][2]))
        assert [] == proxy.records


HEAD = b"Host: 127.0.0.1\r\n"
ATTACKS = {
    "both lengths": (
        HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
        b"400",
    ),
    "two lengths": (HEAD + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", b"400"),
    "hidden encoding": (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", b"400"),
    "space before colon": (HEAD + b"Content-Length : 4\r\n\r\nabcd", b"400"),
    "folded header": (HEAD + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n", b"400"),
    "header too large": (HEAD + b"X: " + b"a" * 20000 + b"\r\n\r\n", b"400"),
    "other host": (b"Host: evil.example\r\nContent-Length: 0\r\n\r\n", b"403"),
    "two hosts": (HEAD + b"Host: evil.example\r\nContent-Length: 0\r\n\r\n", b"400"),
    "no host": (b"Content-Length: 0\r\n\r\n", b"400"),
    "null byte": (HEAD + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n", b"400"),
    "bare line feed": (HEAD + b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
    "too long, by its head alone": (HEAD + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n", b"413"),
    "negative length": (HEAD + b"Content-Length: -1\r\n\r\n", b"400"),
    "chunk of no number": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n", b"400"),
    "rebound host": (b"Host: 127.0.0.1.evil.example:8089\r\nContent-Length: 0\r\n\r\n", b"403"),
    "host behind a user": (b"Host: localhost:80@evil.example\r\nContent-Length: 0\r\n\r\n", b"403"),
    "compressed transfer": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"501"),
    "compressed body": (HEAD + b"Content-Encoding: deflate\r\nContent-Length: 2\r\n\r\n{}", b"415"),
    "second coding": (
        HEAD + b"Content-Encoding: identity\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
        b"415",
    ),
    "other charset": (
        HEAD + b"Content-Type: application/json; charset=utf-7\r\nContent-Length: 2\r\n\r\n{}",
        b"415",
    ),
    "page of another site": (
        HEAD + b"Origin: https://evil.example\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
        b"403",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attackers_headers_never_reach_the_server(tmp_path: Path, attack: str) -> None:
    """Smuggled, oversized or foreign requests are refused by the proxy, and the server sees none of them."""
    headers, status = ATTACKS[attack]

    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        answer = await raw(proxy, b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + headers)

        assert [] == server.requests
        assert status == answer.split(b" ")[1]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", CHAT, {}, 200),
        ("POST", CHAT, {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, 200),
        ("POST", CHAT, {"Origin": "http://[::1]:3000"}, 200),
        ("POST", CHAT, {"Origin": "https://chat.example.org", "Sec-Fetch-Site": "cross-site"}, 200),
        ("POST", CHAT, {"Origin": "https://evil.example"}, 403),
        ("POST", CHAT, {"Origin": "https://chat.example.org.evil.example"}, 403),
        ("POST", CHAT, {"Origin": "https://evil.example/localhost"}, 403),
        ("POST", CHAT, {"Origin": "http://203.0.113.5"}, 403),
        ("POST", CHAT, {"Origin": "null"}, 403),
        ("POST", CHAT, {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", CHAT, {"Sec-Fetch-Site": "Cross-Site"}, 403),
        ("POST", CHAT, {"Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", "/", {"Origin": "null", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("OPTIONS", CHAT, {"Origin": "https://evil.example"}, 403),
        ("GET", "/metrics", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "/v1/models", {"Origin": "https://evil.example"}, 403),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ("GET", "/", {"Origin": "https://evil.example"}, 403),
    ],
)
async def test_a_page_of_another_site_cannot_use_the_proxy(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """Pages of this machine and of a named host may send requests, a link may lead to the page, no other may."""
    async with listening(LiveServer()) as server:
        async with proxied(tmp_path, server, hosts=("chat.example.org",)) as proxy:
            body = b'{"messages": []}' if method == "POST" else None
            async with proxy.session.request(method, proxy.url + path, data=body, headers=headers) as response:
                await response.read()

        assert status == response.status
        assert (status == 200 and path != "/") == bool(server.requests)


HUGE = b'data: {"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":%s}}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("count", [b"9" * 401, b"9" * 5000, b"-1", b"1e400", b"true", b"9007199254740992", b'"6"'])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_usage_that_cannot_be_switches_nothing_off(tmp_path: Path, count: bytes, *, streamed: bool) -> None:
    """The answers are evidence, recorded and counted as any others, with unknown tokens."""
    pieces: tuple[bytes, ...] = (*WORDS, HUGE % (count, count))
    kind = "text/event-stream"
    if not streamed:
        pieces, kind = (b'{"choices":[{"text":"word"}],"usage":{"completion_tokens":%s}}' % count,), "application/json"

    async with listening(LiveServer(pieces=pieces, headers={"Content-Type": kind})) as server:
        async with proxied(tmp_path, server) as proxy:
            for _ in range(20):
                assert b"".join(pieces) == (await proxy.chat())[1]
            async with proxy.session.get(proxy.url + "/metrics") as response:
                metrics = await response.text()
            benefit = proxy.routes.evidence.benefit("easy")

        assert benefit is not None
        assert 20 == benefit.answers["speculative"]
        assert [(200, None, None)] * 20 == [
            (record["status"], record["fault"], record["completion_tokens"]) for record in proxy.records
        ]
        assert 20 == ended(metrics)
        assert [] == proxy.said


@pytest.mark.parametrize(
    "failing",
    [
        "gatekeeper.live.live_evidence.LiveEvidence.add",
        "gatekeeper.live.exposition.Exposition.count_request",
        "gatekeeper.live.live_records.LiveRecords.write",
        "gatekeeper.live.proxy_page.LiveDay.add",
    ],
)
async def test_evidence_metrics_and_records_fail_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A bug in one of them, or in what the page counts, leaves the others and the answers, and is said once."""

    def broken(*_: Any, **__: Any) -> None:
        raise OverflowError("integer division result too large for a float")

    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        monkeypatch.setattr(failing, broken)
        for _ in range(3):
            assert WHOLE == (await proxy.chat())[1]
        async with proxy.session.get(proxy.url + "/metrics") as response:
            metrics = await response.text()
        benefit = proxy.routes.evidence.benefit("easy")
        monkeypatch.undo()
        assert benefit is not None
        assert ["OverflowError" in message for message in proxy.said] == [True]
        counts = [benefit.answers["speculative"], ended(metrics), len(proxy.records)]

    assert sorted(counts) == ([3, 3, 3] if "LiveDay" in failing else [0, 3, 3])


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 000 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 600 OK", b"HTTP/1.1 200 O\x01K", b"HTTP/1.1 200 \x7f"]
)
@pytest.mark.parametrize("has_plain", [True, False])
async def test_a_status_line_that_is_not_one_of_http_is_a_failed_answer(
    tmp_path: Path, line: bytes, *, has_plain: bool
) -> None:
    """It is replaced by the plain server's answer, as after any failure, or it is status 502, and counts as failed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.read(1)
        writer.write(line + b"\r\nContent-Length: 2\r\n\r\nOK")
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server = LiveServer(url=f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    async with listener, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain if has_plain else None) as proxy:
            if not has_plain:
                published(proxy.routes, plain={"mode": "ar"})
            status, _, headers = await proxy.chat()
            await until_in_loop(lambda: bool(proxy.records))
            benefit = proxy.routes.evidence.benefit("easy")

        assert benefit is not None
        assert benefit.error_share["speculative"][0] > 0
        assert (200 if has_plain else 502) == status
        assert "its answer is not HTTP" in proxy.records[0]["because" if has_plain else "fault"]
        assert ("plain" if has_plain else None) == headers.get("x-gatekeeper-route")


async def test_the_headers_of_the_proxy_are_its_own(tmp_path: Path) -> None:
    """A server that claims another route or workload in its answer is not believed, and neither is a client."""
    lies = {"X-Gatekeeper-Route": "speculative", "x-gatekeeper-workload": "other"}
    server = LiveServer(headers={"Content-Type": "text/event-stream", **lies})
    async with listening(server), proxied(tmp_path, server, draw=lambda: 0.0) as proxy:
        _, _, headers = await proxy.chat(None, **{"x-gatekeeper-route": "speculative"})

        assert ("plain", "easy") == (headers["x-gatekeeper-route"], headers["x-gatekeeper-workload"])
        assert "x-gatekeeper-route" not in {name.lower() for name in server.requests[0][1]}


@pytest.mark.parametrize("target", [b"http://elsewhere.example/v1/models", b"*", b"elsewhere.example:443"])
async def test_the_target_of_a_request_is_a_path(tmp_path: Path, target: bytes) -> None:
    """The proxy is no forward proxy: a target on another host is refused."""
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        method = b"CONNECT" if target.endswith(b":443") else b"OPTIONS"
        answer = await raw(proxy, method + b" " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")

        assert b"4" == answer.split(b" ")[1][:1]
        assert [] == server.requests


async def test_prompts_and_keys_are_recorded_nowhere(tmp_path: Path) -> None:
    """Without --keep-prompts no record, metric or page holds the prompt, the answer or the key."""
    async with listening(LiveServer()) as server, proxied(tmp_path, server) as proxy:
        await proxy.chat({"messages": [{"role": "user", "content": "my secret"}]}, Authorization="Bearer sk-1")
        texts = [(tmp_path / "live.jsonl").read_text(), *proxy.said]
        for path in ("/metrics", "/"):
            async with proxy.session.get(proxy.url + path) as response:
                texts.append(await response.text())

    assert [] == [secret for secret in ("my secret", "sk-1", "word1") if secret in "".join(texts)]


async def test_a_full_disk_ends_no_request_and_spoils_no_later_record(tmp_path: Path) -> None:
    """While nothing can be written, requests are answered; what is written later begins a line of its own."""
    prompts_file, records_file = tmp_path / "kept.jsonl", tmp_path / "live.jsonl"

    async with listening(LiveServer()) as server, proxied(tmp_path, server, prompts=prompts_file) as proxy:
        statuses = [(await proxy.chat())[0]]
        prompts_file.write_text("{}\n" * 2000)
        for file in (records_file, prompts_file):  # both, then the longer one alone
            with largest_file(file.stat().st_size + 10):
                statuses += [(await proxy.chat())[0] for _ in range(2)]
            statuses.append((await proxy.chat())[0])
        said = [line for line in proxy.said if "requests are still answered" in line]

    assert [200] * 7 == statuses
    assert [1, 2] == [sum(word in line for line in said) for word in ("live.jsonl", "prompts are not kept")]
    lines = [file.read_text().splitlines() for file in (records_file, prompts_file)]
    assert [5, 2002] == list(map(len, lines))
    assert all(json.loads(line) is not None for line in [*lines[0], *lines[1]])


async def test_kept_prompts_are_private_and_hold_both_sides(tmp_path: Path) -> None:
    """--keep-prompts writes the request and the answer, to a file that only its owner may read."""
    call = {"index": 0, "function": {"name": "get", "arguments": '{"a"'}}
    more = {"index": 0, "function": {"arguments": ": 1}"}}
    deltas: list[dict[str, Any]] = [{"content": "Sure"}, {"tool_calls": [call]}, {"tool_calls": [more]}]
    events = tuple(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n" for delta in deltas)
    prompts_file = tmp_path / "kept.jsonl"

    async with listening(LiveServer(pieces=events)) as server:
        async with proxied(tmp_path, server, prompts=prompts_file) as proxy:
            await proxy.chat({"messages": [], "stream": True}, **{"x-gatekeeper-workload": "listing"})

        assert "unknown" == proxy.records[0]["workload"]
    line = json.loads(prompts_file.read_text())

    assert 0o600 == prompts_file.stat().st_mode & 0o777
    assert "listing" == line["workload"], "a workload without a route keeps its name"
    assert {"messages": [], "stream": True, "temperature": 0, "model": "t"} == line["request"]
    assert ("Sure", [{"name": "get", "arguments": '{"a": 1}'}]) == (
        line["response"]["text"],
        line["response"]["tool_calls"],
    )


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_server_behind_tls_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trusted: bool
) -> None:
    """A server with a certificate of the trust store answers; one that is not trusted gets no request."""
    certificate = self_signed(tmp_path / "tls")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async with listening(LiveServer(), context) as server, proxied(tmp_path, server) as proxy:
        status, _, _ = await proxy.chat()

    assert (trusted, 200 if trusted else 502) == (bool(server.requests), status)


def ended(metrics: str) -> int:
    """Return how many requests have ended, by the metrics."""
    return sum(map(int, re.findall(r"(?m)^gatekeeper_proxy_requests_total\{.*\} (\d+)\.0$", metrics)))


async def raw(proxy: LiveProxy, request: bytes) -> bytes:
    """Send bytes as they are; return what comes back until the proxy closes the connection, or is silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    finally:
        writer.close()
