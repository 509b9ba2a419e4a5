"""A measured stream: one HTTP response read from its socket, every read with its time, nothing parsed before its end.

The connection is open before the clock starts, the clock is read right after each read, and parsing waits until the
answer has ended. Redirects are not followed, certificates are verified, and requests are never retried.
"""

import contextlib
import functools
import gc
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from gatekeeper.core.errors import InputError
from gatekeeper.core.records import TIMEOUT

NO_CONNECTION, BROKEN = "no connection", "connection broken"
"""Kinds of faults: the request could not be sent; the connection failed under way."""

_BUFFER_BYTES = 1 << 17
_MAX_BYTES = 1 << 26
"""Bytes after which an answer is read no further: a quarter of a million chunks of the usual size."""
_OVERLAP = 16
"""Bytes of the previous read that are searched again, for an end marker that was cut in two."""
_DONE = re.compile(rb"\ndata: ?\[DONE\]")
_LAST_CHUNK = b"\r\n0\r\n\r\n"

_NO_CONTENT = re.compile(rb"(?:[0-9a-fA-F]*\r?\n|:[^\r\n]*\r?\n)*")
"""Comments and the frames of HTTP chunks: they show that the server lives, but are no content of an answer."""

_CONNECT_S = 5.0
_MIN_TIMEOUT_S = 1e-3
"""A socket's timeout of 0 would mean not to wait at all."""

_SWITCH_S = 2e-4
"""Python's switch interval while a stream is read: the default of 5 ms would show in the times of other streams."""

_SECRET_HEADER = re.compile(r"(?i).*(?:authorization|key|token|secret)")
_MIN_SECRET = 8
"""Shorter words are placeholders for a key, and may well occur in an answer."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """All bytes received over one connection, headers included, and when each read of them returned."""

    sent_ns: int
    ended_ns: int
    data: bytes = b""
    times: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    """How many bytes had been received after each read."""
    broken: str | None = None
    """Why reading stopped before the server ended it: a timeout, a reset, no connection."""


def post(url: str, body: bytes, *, headers: Mapping[str, str], timeout: float) -> RawResponse:
    """POST *body* and read until the answer ends; give up after *timeout* seconds without content.

    Every failure of the server is in the result. Where it echoes a key of the *headers*, the key is masked.
    """
    parts = urlsplit(url)
    request = _request(parts, headers, body)
    try:
        sock = _connect(parts, min(timeout, _CONNECT_S))
    except OSError as error:
        at = time.monotonic_ns()
        return RawResponse(at, at, broken=f"{NO_CONNECTION}: {error.strerror or error}")
    with contextlib.closing(sock), quiet:
        return _exchange(sock, request, timeout, tuple(_secrets(headers)))


def _connect(parts: SplitResult, timeout: float) -> socket.socket:
    host, secure = parts.hostname or "", parts.scheme == "https"
    sock = socket.create_connection((host, parts.port or (443 if secure else 80)), timeout)
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


def _request(parts: SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    """Write the request; `Connection: close` makes the end of the answer the end of the stream."""
    fixed = {
        "Host": parts.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/x-ndjson, application/json",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            # The value may be a key, so it is not quoted.
            hint = "remove line breaks and non-ASCII characters from its value"
            raise InputError(f"header {name} cannot be sent", hint=hint)
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**fixed, **headers}.items())
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body


def _exchange(sock: socket.socket, request: bytes, timeout: float, secrets: tuple[bytes, ...]) -> RawResponse:
    reads, left, broken = _Reads(), timeout, None
    sock.settimeout(timeout)
    sent = content = time.monotonic_ns()
    try:
        sock.sendall(request)
        while reads.read(sock):
            if reads.has_content():
                content = reads.at
            before, left = left, max(_MIN_TIMEOUT_S, timeout - (reads.at - content) / 1e9)
            if left != before:
                sock.settimeout(left)
        if reads.filled >= _MAX_BYTES:
            broken = f"endless: the answer exceeds {_MAX_BYTES >> 20} MiB"
    except TimeoutError:
        broken = f"{TIMEOUT}: nothing of an answer for {timeout:g} s"
    except OSError as error:
        broken = f"{BROKEN}: {error.strerror or error}"
    ended = time.monotonic_ns() if broken else reads.at
    raw = bytes(reads.buffer[: reads.filled])
    for secret in secrets:
        raw = raw.replace(secret, b"*" * len(secret))
    return RawResponse(sent, ended, raw, tuple(reads.times), tuple(reads.ends), broken)


class _Reads:
    """The bytes of one answer and when each read of them returned; only the end of the answer is recognised."""

    def __init__(self) -> None:
        self.buffer = bytearray(_BUFFER_BYTES)
        self.filled = self._before = self.at = 0
        self.times: list[int] = []
        self.ends: list[int] = []
        self._framed: Frame | None = None

    def read(self, sock: socket.socket) -> bool:
        """Read once, and tell whether there is more to come."""
        with memoryview(self.buffer) as room:
            received = sock.recv_into(room[self.filled :])
        self.at = time.monotonic_ns()
        if not received:
            return False
        self._before, self.filled = self.filled, self.filled + received
        self.times.append(self.at)
        self.ends.append(self.filled)
        if self.filled == len(self.buffer):
            self.buffer.extend(bytes(self.filled))
        return self.filled < _MAX_BYTES and not self._is_over()

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
    """How the server marks the end of its answer."""

    start: int
    """Where the body begins."""
    chunked: bool
    stop: int | None
    """Where the body ends, as its Content-Length says."""


_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEAD_MOST = 1 << 16
_LENGTH = re.compile(r"\d{1,15}")


def frame(raw: bytes | bytearray, filled: int) -> Frame | None:
    """Return how the answer is framed; None until its head is complete."""
    end = _HEAD_END.search(raw, 0, min(filled, _HEAD_MOST))
    if end is None:
        return None
    head, start = bytes(raw[: end.start()]), end.end()
    chunked = "chunked" in (header(head, "Transfer-Encoding") or "").lower()
    length = header(head, "Content-Length") or ""
    known = _LENGTH.fullmatch(length) is not None and not chunked
    return Frame(start, chunked, start + int(length) if known else None)


def header(head: bytes, name: str) -> str | None:
    """Return the value of a header; None where it was not sent."""
    found = re.search(rb"(?im)^" + name.encode() + rb":[ \t]*([^\r\n]*)", head)
    return found.group(1).decode("latin-1").strip() if found else None


def _secrets(headers: Mapping[str, str]) -> Iterator[bytes]:
    for name, value in headers.items():
        if _SECRET_HEADER.fullmatch(name):
            secret = value.split()[-1] if value.split() else ""
            if len(secret) >= _MIN_SECRET:
                yield secret.encode()


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
