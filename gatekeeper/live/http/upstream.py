"""Connections to the servers, each kept for the next request once its answer was read (HTTP/1.1, RFC 9112).

httptools parses the answers: a client for general use takes longer to pass on a first token, and every other stream
waits meanwhile.
"""

import asyncio
import base64
import os
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import httptools
from multidict import CIMultiDict

from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.system.own_limits import check_own_limit, own_limit

MOST_AT_ONCE = 1 << 16
"""Bytes of an answer that are parsed in one turn of the event loop: in chunks of one byte they take milliseconds.

An event loop may hand over some megabytes in a turn, which would take seconds while all other streams wait.
"""
MOST_BUFFERED = 1 << 16
"""Bytes of an answer that wait for a slow client; then the server is not read from."""
MOST_HEAD = 1 << 18
"""Bytes of an answer in which none is of its body: headers, interim answers, chunk sizes and trailers."""
PORTS = {"http": 80, "https": 443}
INTERIM = range(100, 200)
STATUSES = range(100, 600)
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
ERRNO = re.compile(r"\[Errno (\d+)\]")
CLOSED = "it closed the connection"
CONNECT_S = 5.0
"""Longest wait for a connection; an answer itself may take as long as it likes."""
KEPT_S = 15.0
"""An idle connection is used again for as long; servers close theirs after some time, too."""
MOST_IDLE = 64


class UpstreamError(Exception):
    """The server cannot be reached, has broken off, or does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One server, as requests to it are addressed."""

    host: str
    port: int
    tls: bool
    head: bytes
    """The header lines that each request to it has: `Host`, and the key of an address that has one."""
    has_key: bool


def origin_of(url: Address) -> Origin:
    """Return the server of an address."""
    parts = urlsplit(url.at(""))
    host, usual = parts.hostname or "", PORTS.get(parts.scheme, 80)
    name, port = f"[{host}]" if ":" in host else host, parts.port or usual
    lines = [f"Host: {name}" if port == usual else f"Host: {name}:{port}"]
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        lines.append(f"Authorization: Basic {base64.b64encode(user.encode()).decode()}")
    head = "".join(f"{line}\r\n" for line in lines).encode()
    return Origin(host, port, parts.scheme == "https", head, has_key=len(lines) > 1)


@dataclass(eq=False, slots=True)
class Exchange(asyncio.Protocol):
    """One connection, with one request at a time and the answer to it."""

    origin: Origin
    idle_since: float = 0.0
    status: int = 0
    reason: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    is_open: bool = False
    take: Callable[[bytes], bool] | None = None
    """Passes on what arrives of a body in the same moment, its end excepted; returns whether it could.

    What waits for `read` instead comes a turn of the loop later, after all else that has arrived.
    """
    _transport: asyncio.Transport = field(init=False)
    _parser: Any = None
    _arrived: bytes = b""
    """What is not parsed yet."""
    _is_paused: bool = False
    """The server is not read from."""
    _is_parsing: bool = False
    """The next part will be parsed in the next turn of the loop."""
    _pieces: list[bytes] = field(default_factory=list)
    _buffered: int = 0
    _unread: int = 0
    """Bytes since the last piece of the body."""
    _has_head: bool = False
    _is_whole: bool = False
    _has_no_body: bool = False
    _stays: bool = False
    """The head says that the server keeps the connection."""
    _error: str = ""
    _waiter: "asyncio.Future[None] | None" = None
    _writable: asyncio.Event | None = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport, self.is_open = cast("asyncio.Transport", transport), True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: it is whole if the server says so, or if only the connection's end ends it."""
        while self._arrived and not self._error:  # it came before the end, which nothing else follows
            self._parse_part()
        self.is_open = False
        if exc is None and self._has_head and not self.is_framed:
            self._is_whole = True
        elif not self._is_whole:
            self._error = self._error or (system_words(exc) if exc is not None else CLOSED)
        if self._writable is not None:
            self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        """Wait with what is left of the request: the server does not read."""
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        """Go on."""
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, a part in each turn of the loop."""
        if self._parser is None:  # no request was sent
            self.close()
            return
        self._arrived += data
        self._parse_part()
        self._go_on()

    def _parse_part(self) -> None:
        part, self._arrived = self._arrived[:MOST_AT_ONCE], self._arrived[MOST_AT_ONCE:]
        try:
            self._unread += len(part)  # whole headers would be too late: the parser collects one without an end
            self._parser.feed_data(part)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError) as error:
            self._error = self._error or f"its answer is not HTTP ({type(error).__name__})"
            self.close()
        if self._unread > MOST_HEAD and not self._error:
            self._error = "its answer is not HTTP (headers, trailers or interim answers without an end)"
            self.close()
        if self._pieces and self.take is not None and not self._is_whole and self.take(b"".join(self._pieces)):
            self._pieces, self._buffered = [], 0
            return
        self._wake()

    def _go_on(self) -> None:
        """Parse the next part in the next turn, then read on; neither while what is parsed waits for a slow client."""
        if not self.is_open:
            return
        waits_for_client = self._buffered > MOST_BUFFERED
        if self._arrived and not waits_for_client and not self._is_parsing:
            self._is_parsing = True
            asyncio.get_running_loop().call_soon(self._parse_next)
        must_pause = bool(self._arrived) or waits_for_client
        if must_pause != self._is_paused:
            self._is_paused = must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _parse_next(self) -> None:
        self._is_parsing = False
        if self.is_open and self._arrived:
            self._parse_part()
            self._go_on()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Refuse a second answer: it belongs to no request."""
        if self._is_whole:
            raise ValueError("more than one answer")

    def on_status(self, status: bytes) -> None:
        """Take a part of the reason phrase; refuse characters that would end or hide a line."""
        if CONTROL.search(status):
            raise ValueError("control characters in the reason")
        self.reason += status.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header, or one trailer, which is dropped."""
        if not self._has_head:
            self.headers.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        """Note the head, unless it is that of an interim answer."""
        self.status = self._parser.get_status_code()
        if self.status not in STATUSES:
            raise ValueError("no status of HTTP")
        self._has_head, self._stays = self.status not in INTERIM, self._parser.should_keep_alive()
        if self._has_head and self._has_no_body:
            self._is_whole = True

    def on_body(self, piece: bytes) -> None:
        """Keep a piece until it is read."""
        if self._has_no_body:
            raise ValueError("an answer to HEAD has no body")
        self._unread = 0
        self._pieces.append(piece)
        self._buffered += len(piece)

    def on_message_complete(self) -> None:
        """End the answer, or forget an interim one."""
        if self._has_head:
            self._is_whole = True
        else:
            self._forget()

    # What a request does.

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | AsyncIterator[bytes]
    ) -> None:
        """Send a request and wait for the head of its answer."""
        self._forget()
        self._parser, self._pieces, self._buffered = httptools.HttpResponseParser(self), [], 0
        self.take = None
        self._is_whole, self._has_no_body, self._unread = False, method == "HEAD", 0
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        is_chunked = not isinstance(content, bytes) and "Content-Length" not in headers
        if isinstance(content, bytes):
            lines += f"Content-Length: {len(content)}\r\n" if content or method in {"POST", "PUT", "PATCH"} else ""
        elif is_chunked:
            lines += "Transfer-Encoding: chunked\r\n"
        head = f"{method} {target} HTTP/1.1\r\n".encode("utf-8", "surrogateescape") + self.origin.head
        head += lines.encode("utf-8", "surrogateescape") + b"\r\n"
        if isinstance(content, bytes):
            if len(content) > MOST_BUFFERED:  # a copy of it would cost as much memory again
                self._transport.writelines((head, content))
            else:
                self._transport.write(head + content)
        else:
            self._transport.write(head)
            await self._upload(content, is_chunked=is_chunked)
        while not self._has_head:
            await self._wait_for_bytes()

    async def _upload(self, content: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        async for piece in content:
            if self._has_head or not self.is_open:  # it has answered without the rest, or is gone
                self._stays = False  # it would take the next request for the rest of this one
                return
            self._transport.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
            if self._writable is not None:
                await self._writable.wait()
        if is_chunked:
            self._transport.write(b"0\r\n\r\n")

    async def read(self) -> bytes:
        """Return what has arrived of the answer, empty at its end; raise UpstreamError where it breaks off."""
        while not self._pieces:
            if self._is_whole:
                return b""
            await self._wait_for_bytes()
        pieces, self._pieces, self._buffered = self._pieces, [], 0
        if self._is_paused:
            self._go_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def has_arrived(self) -> bool:
        """Return whether a part of the answer's body, or its end, can be read without a wait."""
        return self._is_whole or bool(self._pieces)

    @property
    def is_read(self) -> bool:
        """Return whether the answer was read to its end."""
        return self._is_whole and not self._pieces

    async def _wait_for_bytes(self) -> None:
        if self._error or not self.is_open:
            raise UpstreamError(self._error or CLOSED)
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if (waiter := self._waiter) is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self) -> None:
        self.status, self.reason, self.headers, self._has_head = 0, "", CIMultiDict(), False

    @property
    def is_framed(self) -> bool:
        """Return whether the answer's head says where it ends, so that a broken connection shows."""
        return "Content-Length" in self.headers or "Transfer-Encoding" in self.headers

    @property
    def is_reusable(self) -> bool:
        """Return whether the connection may take another request."""
        stays = self.is_open and self._stays and not self._error
        return stays and self.is_read and not self._arrived and not self._has_no_body

    def close(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        self._transport.abort()


def system_words(error: Exception) -> str:
    """Return what a system's error says: `connection refused`."""
    if isinstance(error, ssl.SSLError):
        words = getattr(error, "verify_message", "") or error.reason
    elif (number := ERRNO.search(str(error))) is not None:  # the first, where several addresses were tried
        words = os.strerror(int(number[1]))
    else:
        words = getattr(error, "strerror", None)
    return (words or type(error).__name__).lower()


class Upstream:
    """Opens connections to servers and keeps them for the next request."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[Exchange]] = {}
        self._tls: ssl.SSLContext | None = None

    async def request(
        self,
        origin: Origin,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | AsyncIterator[bytes],
    ) -> Exchange:
        """Send a request and wait for the head of its answer; raise UpstreamError where there is none.

        Raise OwnLimitError where this process or machine can open no connection: the server is not to blame.
        A *content* of unknown length is sent in chunks, unless *headers* state its length.
        """
        exchange = self._take_idle(origin) or await self._open(origin)
        try:
            await exchange.send(method, target, headers, content)
        except BaseException:
            exchange.close()
            raise
        return exchange

    def _take_idle(self, origin: Origin) -> Exchange | None:
        idle, now = self._idle.get(origin), time.monotonic()
        while idle:
            exchange = idle.pop()
            if exchange.is_open and now - exchange.idle_since < KEPT_S:
                return exchange
            exchange.close()
        return None

    async def _open(self, origin: Origin) -> Exchange:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, exchange = await asyncio.get_running_loop().create_connection(
                    lambda: Exchange(origin), origin.host, origin.port, ssl=self._tls if origin.tls else None
                )
        except (OSError, TimeoutError) as error:
            _check_own_limits(error)
            reason = f"no connection within {CONNECT_S:g} s" if isinstance(error, TimeoutError) else system_words(error)
            raise UpstreamError(reason) from error
        return exchange

    def release(self, exchange: Exchange) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        idle = self._idle.setdefault(exchange.origin, deque())
        if not exchange.is_reusable or len(idle) >= MOST_IDLE:
            exchange.close()
            return
        exchange.idle_since = time.monotonic()
        idle.append(exchange)
        while idle[0].idle_since < exchange.idle_since - KEPT_S:
            idle.popleft().close()

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


def _check_own_limits(error: OSError) -> None:
    """Raise OwnLimitError where *error* comes from a limit of ours at each address that was tried.

    At one of several it may only mean that this machine has no IPv6.
    """
    numbers = map(int, ERRNO.findall(str(error)))
    errors = [OSError(number, os.strerror(number)) for number in numbers] or [error]
    if all(map(own_limit, errors)):
        check_own_limit(errors[0])
