# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""What the proxy calls plain is plain: on servers that switch drafting with a field of each request."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.live.live_request import merge_patches
from gatekeeper.live.request_routes import RequestRoutes
from tests.builders.live_server import ASKED, CHAT, LiveProxy, LiveServer, listening, live_policy, proxied, published

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
    url = URL(proxy.url + path, encoded=True)
    async with proxy.session.request(method, url, data=content) as response:
        await response.read()
    await proxy.recorded()
    return response.status


@pytest.mark.parametrize("padding", [0, 300_000])
@pytest.mark.parametrize("state", ["off", "undecided"])
async def test_no_body_reaches_a_server_that_switches_without_the_field_of_plain_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, padding: int
) -> None:
    """Where the route is off, or the decision fails, each body gets the field or status 400, long ones too."""
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
async def test_what_cannot_be_read_reaches_no_server(tmp_path: Path, *, on: bool) -> None:
    """A body that is no JSON object without ambiguity gets 400: it could name a draft for a plain server to load."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain, publish=False) as proxy:
            published(proxy.routes, on=on, fields={"num_draft_tokens": 4} if on else None)

            for name, content in UNREADABLE.items():
                statuses = [await post(proxy, content + b" " * padding) for padding in (0, 300_000)]
                assert [400, 400] == statuses, name
            assert ([], []) == (server.requests, plain.requests)
            assert {"none"} == {record["route"] for record in proxy.records}


@pytest.mark.parametrize("on", [False, True])
async def test_a_client_cannot_choose_a_draft(tmp_path: Path, *, on: bool) -> None:
    """A request's own fields of drafting reach neither server; those of the route do."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain, publish=False) as proxy:
            published(proxy.routes, on=on, fields={"num_draft_tokens": 4} if on else None)
            blocks = {"mtp_depth": 8, "draft_block_size": 8, "gemma_draft_block_size": 8}
            chosen = {"draft_model": "x", "num_draft_tokens": 9, "Draft_Model": "y", **blocks}
            await proxy.chat({"messages": [], **chosen})

            expected = {"temperature": 0, "messages": [], "model": "t"}
            assert [expected | {"num_draft_tokens": 4} if on else expected] == (server if on else plain).bodies
            assert [] == (plain if on else server).bodies


async def test_before_the_watch_has_begun_nothing_is_passed_on(tmp_path: Path) -> None:
    """Nothing says yet how a server decodes plainly, so a request is to come again later: 503 with Retry-After."""
    async with listening(LiveServer()) as server, proxied(tmp_path, server, publish=False) as proxy:
        status, body, headers = await proxy.chat()

        assert (503, "5", []) == (status, headers["Retry-After"], server.requests)
        assert "has not begun" in json.loads(body)["error"]["message"]
        published(proxy.routes, on=False, plain=PLAIN)
        assert 200 == (await proxy.chat())[0]


async def test_before_the_first_round_requests_are_decoded_plainly(tmp_path: Path) -> None:
    """Once the watch has begun, requests go to the plain server, with what makes it plain, and the record says why."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain, publish=False) as proxy:
            published(proxy.routes, plain=PLAIN, until_ns=0)
            status = (await proxy.chat())[0]

        assert (200, ["ar"], 0) == (status, [body["mode"] for body in plain.bodies], len(server.requests))
        assert "first round" in proxy.records[0]["because"]


AR, MTP = {"generation_mode": "ar"}, {"generation_mode": "mtp", "depth": 4}
OFF, FOUR = {"options": {"draft_num_predict": 0}}, {"options": {"draft_num_predict": 4}}
MTPLX = [CHAT, "/v1/completions"]
OLLAMA = ["/api/chat", "/api/generate"]
LM_STUDIO = ["/api/v0/chat/completions", CHAT]
OTHERS = ["/v1/responses", "/v1/messages", "/v1/completions", CHAT, "/api/chat", "/api/generate", "//api/chat"]


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("has_plain_server", [False, True])
@pytest.mark.parametrize(
    ("backend", "paths", "plain_fields", "fields"),
    [
        ("mtplx", MTPLX, AR, MTP),
        ("ollama", OLLAMA, OFF, FOUR),
        ("lmstudio", LM_STUDIO, {}, {"draft_model": "heavy"}),
        ("mlx-server", [CHAT, "/chat/completions", "/v1/completions"], {}, {"num_draft_tokens": 4}),
        ("mlx-omni", [CHAT, "/chat/completions"], {}, {"draft_model": "heavy"}),
        ("ddtree", [CHAT], {}, {"tree_budget": 4}),
    ],
)
async def test_each_path_is_plain_or_speculates_or_is_refused(
    tmp_path: Path,
    backend: str,
    paths: list[str],
    plain_fields: dict[str, Any],
    fields: dict[str, Any],
    *,
    has_plain_server: bool,
    on: bool,
) -> None:
    """A server gets its fields where it reads them; elsewhere a plain server answers, or the request gets 501."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain if has_plain_server else None, publish=False) as proxy:
            published(proxy.routes, on=on, fields=fields if on else {}, plain=plain_fields, backend=backend)
            sampling = {"options": {"temperature": 0}} if backend == "ollama" else {"temperature": 0}
            body = {"model": "t", "messages": [], **sampling}
            statuses = {path: await post(proxy, json.dumps(body).encode(), path) for path in {*paths, *OTHERS}}

            whole = json.loads(merge_patches(body, fields if on else plain_fields))
            told = server if on or not has_plain_server else plain
            assert {(path, json.dumps(whole)) for path in paths} == {
                (path, body.decode()) for path, _, body in told.requests if path in paths
            }
            elsewhere = {*OTHERS} - {*paths}
            goes_on = has_plain_server and not plain_fields
            assert {200 if goes_on else 501} == {statuses[path] for path in elsewhere}
            assert (elsewhere if goes_on else set()) == {path for path, _, _ in plain.requests} - {*paths}
            assert {200} == {statuses[path] for path in paths}
            assert {*paths} >= {path for path, _, _ in server.requests}
            refused = [record["route"] for record in proxy.records if record["status"] == 501]
            assert all(route == "none" for route in refused)


@pytest.mark.parametrize("on", [False, True])
async def test_no_name_of_a_client_makes_a_server_ignore_the_fields(tmp_path: Path, *, on: bool) -> None:
    """MTPLX ignores the mode of clients that it knows by name: what names one is removed."""
    names = {"x-mtplx-client": "pi", "X-Client-Name": "Hermes", "X-OpenWebUI-Chat-Id": "7", "User-Agent": "opencode/1"}
    body = {"messages": [], "metadata": {"client": "opencode", "client_label": "pi", "session": "s"}}

    async with listening(LiveServer()) as server, proxied(tmp_path, server, publish=False) as proxy:
        published(proxy.routes, on=on, fields=MTP if on else {}, plain=AR, backend="mtplx")
        await proxy.chat(body, **names, **{"X-MTPLX-Allow-Client-Controls": "0", "X-Other": "kept"})

        _, headers, _ = server.requests[0]
        lowered = {name.lower(): value for name, value in headers.items()}
        whole = {"temperature": 0, "model": "t", "messages": [], "metadata": {"session": "s"}} | (MTP if on else AR)
        assert whole == server.bodies[0]
        assert not lowered.keys() & {name.lower() for name in names}
        assert ("1", "kept") == (lowered["x-mtplx-allow-client-controls"], lowered["x-other"])


def test_certify_sends_its_requests_where_they_are_heeded() -> None:
    """The path and the headers of a canary are those of a request that the proxy passes on."""
    for backend in SERVERS:
        dialect = dialect_of(backend)
        assert dialect.steers(dialect.path), backend


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
async def test_no_path_leads_past_a_route_that_is_off(tmp_path: Path, method: str) -> None:
    """However a path is spelled, its request goes to the plain server alone, and is recorded; embeddings pass."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain, publish=False) as proxy:
            published(proxy.routes, on=False)
            for path in PATHS:
                assert 200 == await post(proxy, b'{"prompt": "a"}', path, method)
            passed = await post(proxy, b'{"input": "a"}', "/v1/embeddings", method)

            assert list(PATHS) == [path for path, _, _ in plain.requests]
            assert (200, ["/v1/embeddings"]) == (passed, [path for path, _, _ in server.requests])
            assert ["plain"] * len(PATHS) == [record["route"] for record in proxy.records]


async def test_answers_at_once_are_in_flight_for_every_request(tmp_path: Path) -> None:
    """While one request has four answers in flight, another is the fifth, where four are certified."""
    async with listening(LiveServer()) as server, listening(LiveServer(waits=True)) as plain:
        async with proxied(tmp_path, server, plain, publish=False) as proxy:
            published(proxy.routes, of=live_policy(concurrency=4))
            wide: dict[str, Any] = {"messages": [], "n": 4, "stream": True, "temperature": 0, "model": "t"}
            async with proxy.session.post(proxy.url + CHAT, json=wide) as first:
                await first.content.readany()
                one = {**ASKED, "stream": True}
                async with proxy.session.post(proxy.url + CHAT, json=one) as second:
                    in_flight, because = proxy.routes.in_flight, second.headers["x-gatekeeper-because"]
                    plain.go.set()
                    await second.read()
                await first.read()
                await proxy.recorded()

            assert (5, "5 requests in flight, certified up to 4") == (in_flight, because)
            assert 0 == proxy.routes.in_flight
