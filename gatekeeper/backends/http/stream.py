"""A measured stream: one HTTP response read from its socket, every read with its time, nothing parsed before its end.

The connection is open before the clock starts, the clock is read right after each read, and parsing waits until the
answer has ended. Where the kernel says when it received what was read, that time counts. Redirects are not followed,
certificates are verified, and requests are never retried. Whatever the server does, reading ends at a limit of time or
of bytes.
"""

import contextlib
import functools
import gc
import math
import re
import socket
import ssl
import sys
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from gatekeeper.backends.http.echoed_keys import Keys, user_of
from gatekeeper.backends.http.receive_times import ReceiveTimes
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import NO_CONNECTION, TIMEOUT
from gatekeeper.core.system.own_limits import check_own_limit

BROKEN, ENDLESS = "connection broken", "endless"
"""Kinds of faults: the request could not be sent; the connection failed under way; the answer exceeds its limit."""

_BUFFER_BYTES = 1 << 17
MOST_BYTES = 1 << 26
"""Bytes after which any answer is read no further: a quarter of a million chunks of the usual size."""
_KEPT_BYTES = 1 << 16
"""Bytes that are kept of an answer that exceeds its limit: it is a fault, so only its beginning is of interest."""
_OVERLAP = 16
"""Bytes of the previous read that are searched again, for an end marker that was cut in two."""
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_LAST_CHUNK = b"\r\n0\r\n\r\n"

_NO_CONTENT = re.compile(rb"(?:[0-9a-fA-F]*\r?\n|:[^\r\n]*\r?\n)*")
"""Comments and the frames of HTTP chunks: they show that the server lives, but are no content of an answer."""

_CONNECT_S = 5.0
_NO_WAIT_S = 2.0
"""Seconds beyond a socket's timeout that a busy machine may take to wake us; a stopped process takes longer."""
_MIN_TIMEOUT_S = 1e-3
"""A socket's timeout of 0 would mean not to wait at all."""

_SWITCH_S = 2e-5
"""Python's switch interval while a stream is read: a thread that parses holds up each read of the others by as much."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """All bytes received over one connection, headers included, and when each read of them was received."""

    sent_ns: int
    ended_ns: int
    data: bytes = b""
    times: Sequence[int] = ()
    ends: Sequence[int] = ()
    """How many bytes had been received after each read."""
    broken: str | None = None
    """Why reading stopped before the server ended it: a timeout, a reset, no connection."""
    read_delay_ns: int | None = None
    """The longest time from the kernel's receiving to our reading; None: *times* are those at which reads returned."""


def post(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    timeout: float,
    deadline: float = math.inf,
    most_bytes: int = MOST_BYTES,
) -> RawResponse:
    """POST *body* and read until the answer ends.

    Give up after *timeout* seconds without content, *deadline* seconds in all, or more than *most_bytes*. Every failure
    of the server is in the result; raise GatekeeperError where this process reached a limit of its own. Where the
    server echoes a key of the *headers* or of the *url*, the key is masked.
    """
    return _request("POST", url, body, headers, _Limits(timeout, deadline, most_bytes))


def get(url: str, *, headers: Mapping[str, str], deadline: float, most_bytes: int) -> RawResponse:
    """GET *url* within *deadline* seconds in all, reading at most *most_bytes*; otherwise as `post`."""
    return _request("GET", url, b"", headers, _Limits(deadline, deadline, most_bytes))


@dataclass(frozen=True, slots=True)
class _Limits:
    silence: float
    """Seconds without content."""
    deadline: float
    """Seconds in all, from the first byte of the request."""
    most_bytes: int


def _request(method: str, url: str, body: bytes, headers: Mapping[str, str], limits: _Limits) -> RawResponse:
    parts = _parts(url)
    request = _head(method, parts, headers, len(body)) + body
    try:
        sock = _connect(parts, min(limits.silence, limits.deadline, _CONNECT_S))
    except OSError as error:
        check_own_limit(error)
        now = time.monotonic_ns()
        return RawResponse(now, now, broken=f"{NO_CONNECTION}: {error.strerror or error}")
    with contextlib.closing(sock), quiet:
        return _exchange(sock, request, limits, Keys(url, headers))


def _connect(parts: SplitResult, timeout: float) -> socket.socket:
    host, secure = parts.hostname or "", parts.scheme == "https"
    try:
        sock = socket.create_connection((host, parts.port or (443 if secure else 80)), timeout, all_errors=True)
    except ExceptionGroup as group:
        # The last address tried: "localhost" begins with the one of IPv6, which this machine may not have.
        raise group.exceptions[-1] from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _trust().wrap_socket(sock, server_hostname=host) if secure else sock
    except BaseException:
        sock.close()
        raise


@functools.cache
def _trust() -> ssl.SSLContext:
    """Return the certificates this machine trusts; reading them takes long enough to show in another stream's times."""
    return ssl.create_default_context()


def _parts(url: str) -> SplitResult:
    """Return the parts of *url*; raise InputError where it cannot be requested. It may hold a key: it is not quoted."""
    try:
        parts = urlsplit(url)
        usable = parts.port != 0 and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        usable = False
    if not usable:
        hint = "write it as http://HOST:PORT, with other characters escaped as a browser does"
        raise InputError("the url of a server (--url, or in [subject]) is not valid", hint=hint)
    return parts


def _head(method: str, parts: SplitResult, headers: Mapping[str, str], length: int) -> bytes:
    """Write the head of the request; `Connection: close` makes the end of the answer the end of the stream."""
    fixed = {
        "Host": parts.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/x-ndjson, application/json",
        "Accept-Encoding": "identity",
        "Content-Length": str(length),
        "Connection": "close",
    }
    if method == "GET":
        # Counters are text, and a server may refuse a request that does not accept it.
        fixed |= {"Accept": "*/*"}
        del fixed["Content-Type"], fixed["Content-Length"]
    if (user := user_of(parts)) is not None:
        fixed |= {"Authorization": f"Basic {user}"}  # a header of the dialect or of api_key_env comes later and wins
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            # The value may be a key, so it is not quoted.
            hint = "remove line breaks and non-ASCII characters from its value"
            raise InputError(f"header {name} cannot be sent", hint=hint)
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**fixed, **headers}.items())
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("ascii")


def _exchange(sock: socket.socket, request: bytes, limits: _Limits, keys: Keys) -> RawResponse:
    reads, broken = _Reads(sock, limits.most_bytes), None
    patience = min(limits.silence, limits.deadline)
    sock.settimeout(patience)
    sent = begun = content = last = time.monotonic_ns()
    try:
        sock.sendall(request)
        while reads.read():
            waited = reads.at - last
            if waited > (patience + _NO_WAIT_S) * 1e9:
                # No wait is that long: this process was stopped, which is no fault of the server.
                begun, content = begun + waited, content + waited
            last = reads.at
            if reads.has_content():
                content = reads.at
            before = patience
            patience = min(limits.silence - (reads.at - content) / 1e9, limits.deadline - (reads.at - begun) / 1e9)
            if patience <= 0:
                raise TimeoutError  # noqa: TRY301 (a server that never pauses does not let the socket time out)
            if patience != before:
                sock.settimeout(max(_MIN_TIMEOUT_S, patience))
        broken = reads.excess()
    except TimeoutError:
        if time.monotonic_ns() - begun >= limits.deadline * 1e9:
            broken = f"{TIMEOUT}: the answer was not complete after {limits.deadline:.4g} s"
        else:
            broken = f"{TIMEOUT}: nothing of an answer for {limits.silence:g} s"
    except OSError as error:
        check_own_limit(error)
        broken = f"{BROKEN}: {error.strerror or error}"
    times, delay = reads.receive_times.of_reads(reads.times, sent)
    with_last = bool(times) and reads.at == reads.times[-1]
    ended = time.monotonic_ns() if broken else times[-1] if with_last else reads.at
    most = _KEPT_BYTES if reads.excess() else reads.filled
    raw = keys.mask_bytes(bytes(reads.buffer[: min(most, reads.filled)]))
    return RawResponse(sent, ended, raw, times, reads.ends, broken, delay)


class _Reads:
    """The bytes of one answer and when each read of them returned; only the end of the answer is recognised."""

    def __init__(self, sock: socket.socket, most_bytes: int) -> None:
        self.receive_times = ReceiveTimes(sock)
        self.buffer = bytearray(min(_BUFFER_BYTES, most_bytes + 1))
        self.filled = self._before = self.at = 0
        # Eight bytes each: a server may send its answer in single bytes.
        self.times = array("q")
        self.ends = array("q")
        self._most = most_bytes
        self._framed: Frame | None = None

    def read(self) -> bool:
        """Read once, and tell whether there is more to come."""
        with memoryview(self.buffer) as room:
            received = self.receive_times.receive_into(room[self.filled :])
        self.at = time.monotonic_ns()
        if not received:
            return False
        self._before, self.filled = self.filled, self.filled + received
        self.times.append(self.at)
        self.ends.append(self.filled)
        if self._is_over() or self.excess():
            return False
        if self.filled == len(self.buffer):
            self.buffer.extend(bytes(self.filled))
        return True

    def excess(self) -> str | None:
        """Return which limit of bytes the answer exceeds, None while there is none."""
        if self.filled > self._most:
            return f"{ENDLESS}: the answer exceeds {self._most / (1 << 20):.3g} MiB"
        if self._framed is None and self.filled > _HEAD_MOST:
            return f"{ENDLESS}: its headers exceed {_HEAD_MOST >> 10} KiB"
        return None

    def has_content(self) -> bool:
        """Tell whether the last read held content of the answer."""
        new = self._before, self.filled
        return self.buffer.find(b"{", *new) >= 0 or not _NO_CONTENT.fullmatch(self.buffer, *new)

    def _is_over(self) -> bool:
        """Tell whether the answer has ended, also where the server keeps the connection open."""
        self._framed = framed = self._framed or frame(self.buffer, self.filled)
        if framed is None:
            return False
        since = max(framed.start - 1, self._before - _OVERLAP)
        if self.buffer.find(b"[DONE]", since, self.filled) >= 0 and _DONE.search(self.buffer, since, self.filled):
            return True
        if framed.chunked:
            return self.buffer.endswith(_LAST_CHUNK, framed.start - 2, self.filled)
        return framed.stop is not None and self.filled >= framed.stop


@dataclass(frozen=True, slots=True)
class Frame:
    """The head of an answer, and how the server marks its end."""

    status: int | None
    """The HTTP status; None where the head is not one of HTTP."""
    head: bytes
    start: int
    """Where the body begins."""
    chunked: bool
    stop: int | None
    """Where the body ends, as its Content-Length says."""


_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEAD_MOST = 1 << 16
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})")
_INTERIM = range(100, 200)
"""Statuses of heads that only announce the answer, such as 100 Continue and 103 Early Hints."""
_BODILESS = frozenset({204, 304})
_LENGTH = re.compile(r"[0-9]{1,15}")


def frame(raw: bytes | bytearray, filled: int) -> Frame | None:
    """Return how the answer is framed; None until its head is complete, those before it left out."""
    begin, most = 0, min(filled, _HEAD_MOST)
    while (end := _HEAD_END.search(raw, begin, most)) is not None:
        head, start = bytes(raw[begin : end.start()]), end.end()
        matched = _STATUS.match(head)
        status = None if matched is None else int(matched.group(1))
        if status not in _INTERIM:
            chunked = "chunked" in (header(head, "Transfer-Encoding") or "").lower()
            length = header(head, "Content-Length") or ""
            if status in _BODILESS:
                return Frame(status, head, start, chunked=False, stop=start)
            has_length = _LENGTH.fullmatch(length) is not None and not chunked
            return Frame(status, head, start, chunked, start + int(length) if has_length else None)
        begin = start
    return None


def header(head: bytes, name: str) -> str | None:
    """Return the value of a header; None where it was not sent."""
    match = re.search(rb"(?im)^" + name.encode() + rb":[ \t]*([^\r\n]*)", head)
    return match.group(1).decode("latin-1").strip() if match else None


class _Quiet:
    """Keeps this process quiet while a stream is read: a short switch interval, and no garbage collection.

    The collector would pause all streams, longer with more records; answers create no cycles.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before = (sys.getswitchinterval(), gc.isenabled())

    def __enter__(self) -> None:
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                self._before = (sys.getswitchinterval(), gc.isenabled())
                sys.setswitchinterval(_SWITCH_S)
                gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                interval, collecting = self._before
                sys.setswitchinterval(interval)
                if collecting:
                    gc.enable()


quiet = _Quiet()
