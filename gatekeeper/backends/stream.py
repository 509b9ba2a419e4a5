"""A measured stream: one HTTP answer read off its socket, every piece with its time, nothing understood until its end.

The connection is open before the clock starts, the clock is read right after each `recv`, and parsing waits until the
answer has ended, so that one stream's parsing never delays another's times.
"""

import bisect
import contextlib
import http.client
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple
from urllib.parse import urlsplit

_RECV = 1 << 16
_DONE = re.compile(rb"\ndata: ?\[DONE\]")
_DONE_REACH = 16
"""As many bytes of the piece before are searched again, for an end that was cut in two."""

_NO_PIECE = re.compile(rb"(?:[0-9a-fA-F]*\r?\n|:[^\r\n]*\r?\n)*")
"""Comments and the frames of HTTP chunks: signs of life, but no piece of an answer."""

_CONNECT_S = 5.0
_LEAST_S = 1e-3
"""A socket's timeout of 0 would mean not to wait at all."""
_EXCERPT = 200


class Event(NamedTuple):
    """One server-sent event."""

    at_ns: int
    """When its last byte arrived."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Heard:
    """All that came over one connection."""

    sent_ns: int
    ended_ns: int
    pieces: tuple[tuple[int, bytes], ...] = ()
    """Raw bytes as `recv` gave them, status line and headers included, each with its time."""
    broken: str | None = None
    """Why listening ended before the server ended it: a timeout, a reset, no connection."""


def hear(url: str, body: bytes, *, headers: Mapping[str, str], timeout: float) -> Heard:
    """POST *body* and listen until the stream ends; give up after *timeout* seconds without a piece of an answer."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=min(timeout, _CONNECT_S))
    request = _request(parts.path, parts.netloc, headers, body)
    now = time.monotonic_ns
    try:
        connection.connect()
    except OSError as error:
        at = now()
        return Heard(at, at, broken=f"no connection: {error.strerror or error}")
    sock = connection.sock
    pieces: list[tuple[int, bytes]] = []
    broken, before = None, b""
    sent = last = now()
    try:
        sock.settimeout(timeout)
        sock.sendall(request)
        while True:
            received = sock.recv(_RECV)
            at = now()
            if not received:
                break
            pieces.append((at, received))
            before += received
            if _DONE.search(before):
                break
            before = before[-_DONE_REACH:]
            if not _NO_PIECE.fullmatch(received):
                last = at
            sock.settimeout(max(_LEAST_S, timeout - (at - last) / 1e9))
    except TimeoutError:
        broken, at = f"timeout: no piece of an answer within {timeout:g} s", now()
    except OSError as error:
        broken, at = f"connection broken: {error.strerror or error}", now()
    finally:
        with contextlib.suppress(OSError):
            connection.close()
    return Heard(sent, at, tuple(pieces), broken)


def _request(path: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Write the request; `Connection: close` makes the end of the answer the end of the stream."""
    fixed = {
        "Host": host,
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**fixed, **headers}.items())
    return f"POST {path or '/'} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


@dataclass(frozen=True, slots=True)
class Received:
    """What was heard, taken apart into HTTP and events."""

    status: int | None
    """None: not even a status line came."""
    events: tuple[Event, ...]
    done: bool
    """The stream said `[DONE]`."""
    body: bytes


def take_apart(heard: Heard) -> Received:
    """Return the status, the body and its events; however the bytes were cut into pieces, the result is the same."""
    raw = b"".join(piece for _, piece in heard.pieces)
    head, separator, _ = raw.partition(b"\r\n\r\n")
    match = re.match(rb"HTTP/\d\.\d (\d{3})", head)
    if not separator or match is None:
        return Received(None, (), done=False, body=raw)
    start = len(head) + len(separator)
    chunked = re.search(rb"(?im)^transfer-encoding:[^\r\n]*chunked", head) is not None
    spans = list(_chunks(raw, start)) if chunked else [(start, len(raw))]
    body = b"".join(raw[begin:stop] for begin, stop in spans)
    moments = _Moments(heard, spans)
    events = tuple(Event(moments.at(stop - 1), data) for stop, data in _events(body))
    last = events[-1].data if events else b""
    done = last == b"[DONE]"
    return Received(int(match.group(1)), events[:-1] if done else events, done, body)


def excerpt(body: bytes) -> str:
    """Return the beginning of a body, for a fault."""
    text = " ".join(body[: 4 * _EXCERPT].decode("utf-8", "replace").split())
    return text[:_EXCERPT] + ("…" if len(text) > _EXCERPT else "")


def _chunks(raw: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of an HTTP/1.1 chunked body in *raw*; a torn last chunk is yielded as far as it came."""
    while (line := raw.find(b"\r\n", start)) >= 0:
        try:
            size = int(raw[start:line].split(b";")[0], 16)
        except ValueError:
            return
        if size == 0:
            return
        begin = line + 2
        yield begin, min(begin + size, len(raw))
        start = begin + size + 2


class _Moments:
    """When each byte of a body arrived."""

    def __init__(self, heard: Heard, spans: list[tuple[int, int]]) -> None:
        self._times = [at for at, _ in heard.pieces]
        self._ends = list(accumulate(len(piece) for _, piece in heard.pieces))
        starts = list(accumulate((stop - begin for begin, stop in spans), initial=0))[:-1]
        self._starts = starts
        self._shifts = [begin - start for (begin, _), start in zip(spans, starts, strict=True)]

    def at(self, position: int) -> int:
        """Return when the byte at *position* of the body arrived."""
        shift = self._shifts[bisect.bisect_right(self._starts, position) - 1]
        return self._times[bisect.bisect_right(self._ends, position + shift)]


def _events(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each event's data and where in *body* it stops; comments and other fields are passed over."""
    gathered: list[bytes] = []
    stop = 0
    for line in re.finditer(rb"([^\r\n]*)(\r\n|\r|\n|\Z)", body):
        text = line.group(1)
        if text.startswith(b"data:"):
            gathered.append(text[5:].removeprefix(b" "))
            stop = line.end(1)
        elif not text and gathered:
            yield stop, b"\n".join(gathered)
            gathered = []
