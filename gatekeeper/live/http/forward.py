"""Passing one request on to a server, and its answer back, byte by byte as it comes; and the headers of both."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import NoReturn

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from gatekeeper.backends.dialect import Dialect
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.policy import WORKLOAD_HEADER
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.text import one_line
from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.http.upstream import Exchange, Origin, Upstream, UpstreamError
from gatekeeper.live.live_request import ends_with_done
from gatekeeper.live.request_routes import RequestDecision

HOP_BY_HOP = frozenset({
    "connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""RFC 9110, section 7.6.1, what older clients send, and what this connection has answered already."""
OWN_SITES = frozenset({"same-origin", "same-site", "none"})
"""Values of `Sec-Fetch-Site` that are not of another site's page; whatever else it holds is refused."""
OURS = "x-gatekeeper-"
"""Headers that only the proxy sets; a server or client that sets one is not believed."""
MOST_OF_REASON = 200
"""Characters of a reason in a header; the log has all of it."""
FAILING = frozenset({500, 502, 503, 504})
"""What a server says when it failed, not the request."""
STREAMS = ("text/event-stream", "application/x-ndjson")


def forwarded_headers(
    headers: CIMultiDictProxy[str] | CIMultiDict[str], *, without: Collection[str] = ()
) -> CIMultiDict[str]:
    """Return the headers that are passed on, in their order, repeated ones included; *without* is in lower case."""
    dropped = HOP_BY_HOP
    if lines := headers.getall("Connection", ()):
        dropped = HOP_BY_HOP.union(name.strip().lower() for line in lines for name in line.split(","))
    pairs = []
    for name, value in headers.items():
        if (lower := name.lower()) not in dropped and lower not in without and not lower.startswith(OURS):
            pairs.append((name, value))
    return CIMultiDict(pairs)


def steer(headers: CIMultiDict[str], dialect: Dialect) -> None:
    """Remove a client's hints from a request's *headers*, and add those with which its server heeds the body."""
    for name in list(headers):
        if any(fnmatchcase(name.lower(), hint) for hint in dialect.client_hints):
            headers.popall(name, None)
    headers.update(dialect.headers)


def answer_headers(decision: RequestDecision, route: str) -> dict[str, str]:
    """Return what an answer says of its request: the workload, the rule, the server that answered, and why."""
    # A reason may quote what a person wrote; a header has one line of ASCII.
    because = one_line(decision.because)[:MOST_OF_REASON].encode("ascii", "backslashreplace").decode()
    return {
        WORKLOAD_HEADER: decision.workload,
        f"{OURS}rule": decision.rule,
        f"{OURS}route": route,
        f"{OURS}because": because,
    }


def is_from_foreign_page(headers: CIMultiDictProxy[str], names: HostNames) -> bool:
    """Return whether a browser sends this for a page of another site."""
    origins = headers.getall("Origin", ())
    if origins:
        return not all(map(names.has_origin, origins))
    return not OWN_SITES.issuperset(headers.getall("Sec-Fetch-Site", ()))


class ServerFailedError(Exception):
    """The server failed before anything was sent to the client."""


class BrokenAnswerError(Exception):
    """The server broke off in mid-answer; the connection to the client was closed."""


@dataclass(frozen=True, slots=True)
class Target:
    """One of the servers, as a request may go to it."""

    name: str
    """`speculative` or `plain`."""
    url: Address
    origin: Origin


def target_of(url: Address, raw_path: str) -> str:
    """Return what a request to a server names for a path and its query, which stay as they are."""
    path, _, query = raw_path.partition("?")
    base = "/" + url.at(path).partition("://")[2].partition("/")[2]
    return f"{base}{'&' if '?' in base else '?'}{query}" if query else base


async def forward(
    request: web.BaseRequest,
    upstream: Upstream,
    target: Target,
    content: bytes | AsyncIterator[bytes],
    meter: AnswerMeter,
    *,
    added: Mapping[str, str],
    dialect: Dialect | None,
    may_retry: bool,
) -> web.StreamResponse:
    """Pass a request on and its answer back; raise ServerFailedError where nothing was sent to the client yet.

    *added* are headers of the answer. A request that generates carries what the *dialect* of its server asks for. With
    *may_retry* another server can take the request, so that a status of failure is not passed on.
    """
    is_read = isinstance(content, bytes)
    headers = forwarded_headers(request.headers, without=("host", "content-length") if is_read else ("host",))
    if dialect is not None:
        steer(headers, dialect)
    if is_read and content:
        headers["Accept-Encoding"] = "identity"  # what is compressed cannot be measured
    if target.origin.has_key:
        headers.pop("Authorization", None)  # the address holds the server's own
    path = target_of(target.url, request.raw_path)
    try:
        exchange = await upstream.request(target.origin, request.method, path, headers, content)
    except UpstreamError as error:
        raise ServerFailedError(f"{target.name} server: {error}") from error
    try:
        if may_retry and exchange.status in FAILING:
            raise ServerFailedError(f"{target.name} server: status {exchange.status}")
        return await _pass_back(request, exchange, meter, added)
    finally:
        upstream.release(exchange)


class _Answer(web.StreamResponse):
    """An answer whose head waits for the first bytes: both are one segment, for which the client wakes once."""

    _send_headers_immediately = False


async def _pass_back(
    request: web.BaseRequest, exchange: Exchange, meter: AnswerMeter, added: Mapping[str, str]
) -> web.StreamResponse:
    media_type = exchange.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    meter.streamed = media_type in STREAMS
    meter.compressed = exchange.headers.get("Content-Encoding", "identity").strip().lower() != "identity"
    response = _Answer(status=exchange.status, reason=exchange.reason, headers=forwarded_headers(exchange.headers))
    response.headers.update(added)
    await response.prepare(request)
    meter.status = exchange.status
    take = _taker(request, response, meter)
    if not exchange.has_arrived:
        request.writer.send_headers()
        exchange.take = take
    write, drain, read, now = response.write, request.writer.drain, exchange.read, time.monotonic_ns
    try:
        while True:
            piece, at_ns = await read(), now()
            if exchange.is_read:
                break
            meter.feed_later(piece, at_ns)
            await write(piece)
            exchange.take = take
            await drain()
    except UpstreamError as error:
        _break_off(request, str(error))
    finally:
        exchange.take = None
        meter.feed_waiting()
    if piece:
        meter.feed(piece, at_ns)
    if _may_be_cut(request, exchange, media_type) and not meter.has_end:
        _break_off(request, "the stream has no end")
    await response.write_eof(piece)
    return response


def _taker(
    request: web.BaseRequest, response: web.StreamResponse, meter: AnswerMeter
) -> Callable[[bytes], bool] | None:
    """Return what passes a piece on at once, unless the client is gone or does not keep up; None without chunks."""
    transport, protocol = request.transport, request.protocol
    if transport is None or response.headers.get("Transfer-Encoding") != "chunked":
        return None

    def take(piece: bytes) -> bool:
        if protocol.writing_paused or transport.is_closing():
            return False
        at_ns = time.monotonic_ns()
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        meter.feed_later(piece, at_ns)
        return True

    return take


def _break_off(request: web.BaseRequest, reason: str) -> NoReturn:
    """Close the connection to the client, which must see that the answer is not whole."""
    request.writer.send_headers()  # of an answer that has no more: a client may repeat a request that has none
    if request.transport is not None:
        request.transport.close()
    raise BrokenAnswerError(reason)


def _may_be_cut(request: web.BaseRequest, exchange: Exchange, media_type: str) -> bool:
    """Return whether only the connection's end shows the end of a stream, as in mlx_lm.server: then it may be cut."""
    has_no_end = not exchange.is_framed and exchange.status == HTTPStatus.OK
    return has_no_end and media_type == STREAMS[0] and ends_with_done(request.path)
