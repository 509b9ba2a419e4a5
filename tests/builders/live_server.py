"""A server and a proxy in one event loop, for tests of what passes between a client, the proxy and its servers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.policy import WORKLOAD_HEADER, CertifiedRequest, Policy
from gatekeeper.live.live_records import LiveRecords
from gatekeeper.live.live_request import LiveRequest, read_request
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.proxy_server import ProxyServer
from gatekeeper.live.request_routes import RequestRoutes
from tests.builders.watch import policy

CHAT = "/v1/chat/completions"
NEVER = 10**20
LONGEST_PROMPT = 10**9
"""Tokens of the longest certified prompt: of most tests every prompt is shorter."""
ASKED = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "model": "t"}
"""A request as it was certified."""
WORDS = tuple(b'data: {"choices":[{"delta":{"content":"word%d "}}]}\n\n' % number for number in range(6))
END = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}\n\ndata: [DONE]\n\n'


@dataclass
class LiveServer:
    """Streams words; each part of its behaviour can be set, and what it received is kept."""

    pieces: tuple[bytes, ...] = (*WORDS, END)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    breaks_after: int | None = None
    """Pieces after which it closes the connection."""
    waits: bool = False
    """Waits before its second piece until `go` is set."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its client hangs up."""
    requests: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.raw_path, dict(request.headers), await request.read()))
        response = web.StreamResponse(status=self.status, headers=self.headers)
        try:
            await response.prepare(request)
            for number, piece in enumerate(self.pieces):
                if number == self.breaks_after and request.transport is not None:
                    request.transport.close()
                if number == 1 and self.waits:
                    await self.go.wait()
                await response.write(piece)
                self.sent += len(piece)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left.set()
            raise
        return response

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]


@asynccontextmanager
async def listening(server: LiveServer, ssl: Any = None) -> AsyncIterator[LiveServer]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl).start()
    server.url = f"http{'s' if ssl else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.go.set()
        await runner.cleanup()


def published(
    routes: RequestRoutes,
    *,
    on: bool = True,
    fields: Mapping[str, Any] | None = None,
    plain: Mapping[str, Any] | None = None,
    until_ns: int = NEVER,
    of: Policy | None = None,
    names: Sequence[str] = ("easy",),
    backend: str = "openai",
    target: Path | None = None,
) -> None:
    """Publish routes as a watch does."""
    setting = (("draft", "heavy"), ("num_draft_tokens", 4)) if on else ()
    because = "as certified" if on else "a guard was violated"
    overlay_routes = [OverlayRoute(name, on, because, setting, fields or {}) for name in names]
    plain_fields = {name: plain or {} for name in names}
    routes.publish(of or live_policy(), overlay_routes, plain_fields, until_ns, dialect_of(backend), target)


def live_request(body: Mapping[str, Any] | None = None, workload: str | None = None) -> LiveRequest:
    """Return a request as it was certified, but for what *body* says."""
    headers = {} if workload is None else {WORKLOAD_HEADER: workload}
    return read_request(CHAT, headers, json.dumps({**ASKED, **(body or {})}).encode())


def live_policy(concurrency: int = 64, cache: str = "off", **proxy: Any) -> Policy:
    certified = {"backend": "openai", "target": "t", "prompt_cache": cache, "concurrency": concurrency, "max_tokens": 9}
    certified_policy = policy(conditions=certified, proxy={"default": "easy", **proxy})
    certified_for = {"longest_prompt": LONGEST_PROMPT, "models": ("t",), "request": (CertifiedRequest(),)}
    routes = tuple(route.model_copy(update=certified_for) for route in certified_policy.route)
    return certified_policy.model_copy(update={"route": routes})


@dataclass
class LiveProxy:
    """A proxy that listens, a client for it, and what it recorded."""

    routes: RequestRoutes
    session: ClientSession
    port: int
    path: Path
    said: list[str]
    recorded: Callable[[], Awaitable[None]]
    """Waits until what has ended is recorded."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def records(self) -> list[dict[str, Any]]:
        entries = map(json.loads, (self.path / "live.jsonl").read_text().splitlines())
        return [entry for entry in entries if entry["kind"] == "request"]

    async def chat(self, body: Any = None, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
        request_body = {**ASKED, **body} if body is not None else {**ASKED, "stream": True}
        async with self.session.post(self.url + CHAT, json=request_body, headers=headers) as response:
            content = await response.read()
        await self.recorded()
        return response.status, content, response.headers


@asynccontextmanager
async def proxied(
    path: Path,
    server: LiveServer,
    plain: LiveServer | None = None,
    *,
    draw: Callable[[], float] = lambda: 1.0,
    publish: bool = True,
    prompts: Path | None = None,
    hosts: Sequence[str] = (),
) -> AsyncIterator[LiveProxy]:
    """Run a proxy before one or two servers; its requests speculate, if not *publish* is False."""
    messages: list[str] = []
    routes = RequestRoutes(draw)
    if publish:
        published(routes)
    records = LiveRecords(path / "live.jsonl", prompts, messages.append)
    addresses = Address(server.url), Address(plain.url) if plain is not None else None
    proxy = ProxyServer(routes, records, url=addresses[0], plain_url=addresses[1], hosts=hosts, say=messages.append)
    port = await proxy.start("127.0.0.1", 0, drain_s=1.0)
    try:
        async with ClientSession() as session:
            yield LiveProxy(routes, session, port, path, messages, proxy.wait_until_recorded)
    finally:
        await proxy.stop()
        records.close()
