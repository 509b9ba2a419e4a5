# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""What the proxy calls plain is plain: on servers that switch drafting with a field of each request."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from gatekeeper.proxy.request_routes import RequestRoutes
from tests.builders.live_server import CHAT, LiveProxy, LiveServer, listening, live_policy, proxied, published

pytestmark = pytest.mark.timeout(240)
PLAIN = {"mode": "ar"}
MANY = "9" * 401
HELLO = '"messages": [{"role": "user", "content": "hello"}]'


def bodies(padding: int) -> dict[str, bytes]:
    """Return requests that are hard to read, each with as many bytes more."""
    pad = f'"pad": "{"x" * padding}"'
    texts: dict[str, str | bytes] = {
        "a limit of 401 digits": f'{{{pad}, {HELLO}, "max_tokens": {MANY}}}',
        "a temperature of 401 digits": f'{{{pad}, {HELLO}, "temperature": {MANY}}}',
        "a number of answers of 401 digits": f'{{{pad}, {HELLO}, "n": {MANY}}}',
        "a number of 5,000 digits": f'{{{pad}, {HELLO}, "seed": {"9" * 5000}}}',
        "a number beyond floats": f'{{{pad}, {HELLO}, "temperature": 1e999, "top_p": NaN}}',
        "a role that is a list": f'{{{pad}, "messages": [{{"role": ["user"], "content": "a"}}]}}',
        "a role that is a table": f'{{{pad}, "messages": [{{"role": {{"a": 1}}, "content": "a"}}]}}',
        "a message that is a number": f'{{{pad}, "messages": [5, null, []], "prompt": {{}}, "model": []}}',
        "a field nested 900 deep": f'{{{pad}, {HELLO}, "deep": {"[" * 900}{"]" * 900}}}',
        "a field nested 2,000 deep": f'{{{pad}, {HELLO}, "deep": {"[" * 2000}{"]" * 2000}}}',
        "a field nested 100,000 deep": f'{{{pad}, {HELLO}, "deep": {"[" * 100_000}{"]" * 100_000}}}',
        "a lone surrogate": f'{{{pad}, "messages": [{{"role": "system", "content": "\\ud800"}}]}}',
        "a byte that is not UTF-8": f'{{{pad}, "messages": [{{"role": "user", "content": "'.encode() + b'\xff"}]}',
        "a control character": f'{{{pad}, "messages": [{{"role": "user", "content": "a\x01"}}]}}',
        "a trailing comma": f"{{{pad}, {HELLO},}}",
        "a trailing null byte": f"{{{pad}, {HELLO}}}\x00",
        "a comment": f"{{{pad}, {HELLO}}} // plain",
        "two documents": f"{{{pad}, {HELLO}}}{{{HELLO}}}",
        "a name twice": f'{{{pad}, {HELLO}, "mode": "mtp", "mode": "mtp"}}',
        "the field in its other meaning": f'{{{pad}, {HELLO}, "mode": "mtp", "MODE": "mtp"}}',
        "a list": f"[{{{pad}, {HELLO}}}]",
        "a string": f'"{"x" * padding}"',
        "an open string": f'{{{pad}, "messages": "',
        "UTF-16": f"{{{pad}, {HELLO}}}".encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf" + f"{{{pad}, {HELLO}}}".encode(),
        "compressed": gzip.compress(f"{{{pad}, {HELLO}}}".encode()),
        "nothing": " " * padding,
    }
    return {name: text if isinstance(text, bytes) else text.encode() for name, text in texts.items()}


async def post(proxy: LiveProxy, content: bytes, path: str = CHAT, method: str = "POST") -> int:
    """Send bytes as a request's body; return the status."""
    headers = {"Content-Encoding": "gzip"} if content[:2] == b"\x1f\x8b" else {}
    url = URL(proxy.url + path, encoded=True)
    async with proxy.session.request(method, url, data=content, headers=headers) as response:
        await response.read()
    await proxy.recorded()
    return response.status


@pytest.mark.parametrize("padding", [0, 300_000])
@pytest.mark.parametrize("state", ["off", "undecided"])
def test_no_body_reaches_a_server_that_switches_without_the_field_of_plain_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, padding: int
) -> None:
    """
    Where the route is off, or the decision fails, each body gets the field or status 400, and only what was sent with
    the field is recorded as plain; long bodies, read in another process, too.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, proxied(tmp_path, server, publish=False) as proxy:
            published(proxy.routes, on=False, plain=PLAIN)
            if state == "undecided":
                monkeypatch.setattr(RequestRoutes, "decide", lambda *_: int("no number"))
            statuses = {name: await post(proxy, content) for name, content in bodies(padding).items()}

            assert {200, 400} == set(statuses.values()), statuses
            assert all(body["mode"] == "ar" and "MODE" not in body for body in server.bodies)
            assert list(statuses.values()).count(200) == len(server.requests)
            routes = [(record["status"], record["route"]) for record in proxy.records]
            assert {(200, "plain"), (400, "none")} == set(routes)
            assert len(statuses) == len(routes)
            assert all(status == 200 for name, status in statuses.items() if "digits" in name and "5,000" not in name)

    asyncio.run(main())


def test_what_cannot_be_read_is_not_plain_where_plain_is_a_missing_field(tmp_path: Path) -> None:
    """
    LM Studio decodes plainly without `draft_model`: a body in which the proxy cannot see that it is missing is refused.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, proxied(tmp_path, server, publish=False) as proxy:
            published(proxy.routes, on=False)
            status = await post(proxy, b'{"messages": [], "draft_model": "x", "content": "\xff"}')

            assert (400, []) == (status, server.requests)

    asyncio.run(main())


UNREADABLE = {
    "a name twice": f'{{{HELLO}, "draft_model": "x", "seed": 1, "seed": 1}}'.encode(),
    "a name twice, deep inside": f'{{{HELLO}, "draft_model": "x", "metadata": {{"u": 1, "u": 1}}}}'.encode(),
    "a number of 5,000 digits": f'{{{HELLO}, "draft_model": "x", "seed": {"9" * 5000}}}'.encode(),
    "a byte that is not UTF-8": b'{"prompt": "\xff", "draft_model": "x"}',
    "a list": b'[{"prompt": "a", "draft_model": "x"}]',
    "a form": b"prompt=a&draft_model=x",
    "nothing": b"",
}


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_reaches_no_server(tmp_path: Path, content: bytes, *, on: bool) -> None:
    """
    A generating request whose body is no JSON object without ambiguity gets 400, with a plain server of its own, too:
    it could name a draft that a plain server would load.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
            async with proxied(tmp_path, server, plain, publish=False) as proxy:
                published(proxy.routes, on=on, fields={"num_draft_tokens": 4} if on else None)
                statuses = [await post(proxy, content + b" " * padding) for padding in (0, 300_000)]

                assert ([400, 400], [], []) == (statuses, server.requests, plain.requests)
                assert ["none", "none"] == [record["route"] for record in proxy.records]

    asyncio.run(main())


@pytest.mark.parametrize("on", [False, True])
def test_a_client_cannot_choose_a_draft(tmp_path: Path, *, on: bool) -> None:
    """
    A request's own fields of drafting reach neither server; those of the route do.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
            async with proxied(tmp_path, server, plain, publish=False) as proxy:
                published(proxy.routes, on=on, fields={"num_draft_tokens": 4} if on else None)
                blocks = {"mtp_depth": 8, "draft_block_size": 8, "gemma_draft_block_size": 8}
                chosen = {"draft_model": "x", "num_draft_tokens": 9, "Draft_Model": "y", **blocks}
                await proxy.chat({"messages": [], **chosen})

                expected = {"messages": [], "num_draft_tokens": 4} if on else {"messages": []}
                assert [expected] == (server if on else plain).bodies
                assert [] == (plain if on else server).bodies

    asyncio.run(main())


def test_before_the_first_round_nothing_is_passed_to_a_server_that_switches(tmp_path: Path) -> None:
    """
    Nothing says yet how it decodes plainly, so a request is to come again later: 503 with Retry-After.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, proxied(tmp_path, server, publish=False) as proxy:
            status, body, headers = await proxy.chat()

            assert (503, "5", []) == (status, headers["Retry-After"], server.requests)
            assert "first check" in json.loads(body)["error"]["message"]
            published(proxy.routes, on=False, plain=PLAIN)
            assert 200 == (await proxy.chat())[0]

    asyncio.run(main())


def test_before_the_first_round_requests_go_to_the_plain_server(tmp_path: Path) -> None:
    """
    A server without a draft needs no check.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
            async with proxied(tmp_path, server, plain, publish=False) as proxy:
                status = (await proxy.chat())[0]

            assert (200, 1, 0) == (status, len(plain.requests), len(server.requests))

    asyncio.run(main())


PATHS = (
    "/completion",
    "/completions",
    "/infill",
    "/generate",
    "/generate_stream",
    "/inference/v1/generate",
    "/invocations",
    "/v1/chat/completions/.",
    "/v1/chat/completions/",
    "/v1/chat/completions;x",
    "/v1/chat/Completions",
    "//v1//chat//completions",
    "/v1/chat%2Fcompletions",
    "/v1/tokenize/../chat/completions",
    "/v1/chat/completions;/tokenize",
    "/completion?x=/tokenize",
)


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_no_path_leads_past_a_route_that_is_off(tmp_path: Path, method: str) -> None:
    """
    However a path is spelled, its request goes to the plain server alone, and is recorded; embeddings pass.
    """

    async def main() -> None:
        async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
            async with proxied(tmp_path, server, plain, publish=False) as proxy:
                published(proxy.routes, on=False)
                for path in PATHS:
                    assert 200 == await post(proxy, b'{"prompt": "a"}', path, method)
                passed = await post(proxy, b'{"input": "a"}', "/v1/embeddings", method)

                assert list(PATHS) == [path for path, _, _ in plain.requests]
                assert (200, ["/v1/embeddings"]) == (passed, [path for path, _, _ in server.requests])
                assert ["plain"] * len(PATHS) == [record["route"] for record in proxy.records]

    asyncio.run(main())


def test_answers_at_once_are_in_flight_for_every_request(tmp_path: Path) -> None:
    """
    While one request has four answers in flight, another is the fifth, where four are certified.
    """

    async def main() -> None:
        async with listening(LiveServer(waits=True)) as server, listening(LiveServer()) as plain:
            async with proxied(tmp_path, server, plain, publish=False) as proxy:
                published(proxy.routes, of=live_policy(concurrency=4))
                wide: dict[str, Any] = {"messages": [], "n": 4, "stream": True}
                async with proxy.session.post(proxy.url + CHAT, json=wide) as first:
                    await first.content.readany()
                    _, _, headers = await proxy.chat()
                    in_flight = proxy.routes.in_flight
                    server.go.set()
                    await first.read()

                assert ("plain", 4) == (headers["x-gatekeeper-route"], in_flight)
                assert 0 == proxy.routes.in_flight

    asyncio.run(main())
