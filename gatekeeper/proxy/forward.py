"""Passing one request on to a server, and its answer back, byte by byte as it comes."""

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import (
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    web,
)
from yarl import URL

from gatekeeper.core.subject import Address
from gatekeeper.proxy.answer_meter import AnswerMeter
from gatekeeper.proxy.headers import passed_on
from gatekeeper.proxy.live_request import ends_with_done

CONNECT_S = 5.0
"""Longest wait for a connection; an answer itself may take as long as it likes."""
FAILING = frozenset({500, 502, 503, 504})
"""What a server says when it failed, not the request."""
OWN_AGENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that aiohttp would add: only what the client sent is passed on."""
STREAMS = ("text/event-stream", "application/x-ndjson")


class ServerFailedError(Exception):
    """The server failed before anything was sent to the client."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes, and what is changed of its body."""

    name: str
    """`speculative` or `plain`."""
    url: Address
    fields: Mapping[str, Any]


def open_session() -> ClientSession:
    """Open the connections to the servers: no cookies are kept, nothing is decompressed, no redirect is followed."""
    return ClientSession(
        connector=TCPConnector(limit=0, keepalive_timeout=15.0, ssl=ssl.create_default_context()),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=OWN_AGENT,
    )


def address(url: Address, raw_path: str) -> URL:
    """Return the address of a path and its query on a server, unchanged."""
    path, _, query = raw_path.partition("?")
    base = url.at(path)
    joined = f"{base}{'&' if '?' in base else '?'}{query}" if query else base
    return URL(joined, encoded=True)


async def forward(
    request: web.Request,
    session: ClientSession,
    target: Target,
    content: bytes | AsyncIterator[bytes] | None,
    meter: AnswerMeter,
    *,
    added: Mapping[str, str],
    again: bool,
) -> web.StreamResponse:
    """Pass a request on and its answer back; raise ServerFailedError where nothing was sent to the client yet.

    With *again* another server can take the request, so that a status of failure is not passed on.
    """
    whole = content is None or isinstance(content, bytes)
    headers = passed_on(request.headers, without=("Host", "Content-Length") if whole else ("Host",))
    if isinstance(content, bytes):
        headers["Accept-Encoding"] = "identity"  # what is compressed cannot be measured
    if "@" in target.url.given:
        headers.pop("Authorization", None)  # the address holds the server's own
    try:
        got = await session.request(
            request.method,
            address(target.url, request.raw_path),
            headers=headers,
            data=content,
            allow_redirects=False,
        )
    except (ClientError, TimeoutError, OSError) as error:
        raise ServerFailedError(f"{target.name} server: {type(error).__name__}") from error
    try:
        if again and got.status in FAILING:
            raise ServerFailedError(f"{target.name} server: status {got.status}")
        return await _back(request, got, meter, added)
    finally:
        got.close() if not got.content.at_eof() else got.release()


async def _back(
    request: web.Request, got: ClientResponse, meter: AnswerMeter, added: Mapping[str, str]
) -> web.StreamResponse:
    meter.streamed = got.content_type in STREAMS
    headers = passed_on(got.headers)
    response = web.StreamResponse(status=got.status, reason=got.reason, headers=headers)
    response.headers.update(added)
    await response.prepare(request)
    meter.status = got.status
    write, feed, now = response.write, meter.feed, time.monotonic_ns
    try:
        async for piece in got.content.iter_any():
            feed(piece, now())
            await write(piece)
        if _may_be_cut(request, got) and not meter.has_end:
            raise ClientPayloadError("the stream has no end")
    except (ClientError, TimeoutError) as error:
        if request.transport is not None:  # the client must see that the answer is not whole
            request.transport.close()
        raise BrokenAnswerError(f"{type(error).__name__} {error}".strip()) from error
    await response.write_eof()
    return response


def _may_be_cut(request: web.Request, got: ClientResponse) -> bool:
    """Return whether only the connection's end shows the end of a stream, as in mlx_lm.server: then it may be cut."""
    framed = "Content-Length" in got.headers or "Transfer-Encoding" in got.headers
    return (
        not framed and got.status == HTTPStatus.OK and got.content_type == STREAMS[0] and ends_with_done(request.path)
    )


class BrokenAnswerError(Exception):
    """The server broke off in mid-answer; the connection to the client was closed."""
