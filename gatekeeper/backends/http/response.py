"""An HTTP response parsed: its status, its headers, and its JSON texts with their arrival times."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from gatekeeper.backends.http.stream import Frame, RawResponse, frame, header
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.text import QUOTED, one_line, quote

_LINE = re.compile(rb"[^\r\n]+")
_JSON = re.compile(rb"\s*[{\[]")


class JsonText(NamedTuple):
    """One JSON text: the data of a server-sent event, a line of NDJSON, or a whole document."""

    at_ns: int
    """When its last byte arrived."""
    data: bytes


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response, parsed."""

    status: int | None
    """None: not even the head of the response came."""
    events: tuple[JsonText, ...] = ()
    done: bool = False
    """The stream ended with `[DONE]`."""
    complete: bool = False
    """As much of the body came as the server announced, or it announced nothing."""
    body: bytes = b""
    retry_after: str | None = None
    location: str | None = None


def parse_response(raw: RawResponse) -> HttpResponse:
    """Return status, body and JSON texts; however the bytes were cut into pieces, the result is the same.

    The bytes decide what kind of body it is: servers are careless with their content types.
    """
    framed = frame(raw.data, len(raw.data))
    if framed is None or framed.status is None:
        return HttpResponse(None, body=raw.data)
    spans, complete = _spans(raw.data, framed)
    body = b"".join(raw.data[begin:stop] for begin, stop in spans)
    times = _ArrivalTimes(raw, spans)
    events = tuple(JsonText(times.at(stop - 1), data) for stop, data in _texts(body))
    done = bool(events) and events[-1].data.strip() == b"[DONE]"
    return HttpResponse(
        framed.status,
        events[:-1] if done else events,
        done,
        complete,
        body,
        retry_after=header(framed.head, "Retry-After"),
        location=header(framed.head, "Location"),
    )


def excerpt(body: bytes) -> str:
    """Return the beginning of a body, for a fault."""
    text = body[: 4 * QUOTED].decode("utf-8", "replace")
    return quote(text) + ("…" if len(one_line(text)) > QUOTED else "")


def _spans(raw: bytes, framed: Frame) -> tuple[list[tuple[int, int]], bool]:
    """Return where in *raw* the body lies, and whether all of it came."""
    if framed.chunked:
        return _chunks(raw, framed.start)
    stop = len(raw) if framed.stop is None else framed.stop
    return [(framed.start, min(stop, len(raw)))], stop <= len(raw)


def _chunks(raw: bytes, start: int) -> tuple[list[tuple[int, int]], bool]:
    """Return the spans of an HTTP/1.1 chunked body, a torn last chunk as far as it came."""
    spans: list[tuple[int, int]] = []
    while (line := raw.find(b"\r\n", start)) >= 0:
        try:
            size = int(raw[start:line].split(b";")[0], 16)
        except ValueError:
            return spans, False
        if size <= 0:
            return spans, size == 0
        begin = line + 2
        spans.append((begin, min(begin + size, len(raw))))
        start = begin + size + 2
    return spans, False


class _ArrivalTimes:
    def __init__(self, raw: RawResponse, spans: list[tuple[int, int]]) -> None:
        self._times, self._ends = raw.times, raw.ends
        self._starts = list(accumulate((stop - begin for begin, stop in spans), initial=0))[:-1]
        self._shifts = [begin - start for (begin, _), start in zip(spans, self._starts, strict=True)]

    def at(self, position: int) -> int:
        shift = self._shifts[bisect_right(self._starts, position) - 1]
        return self._times[bisect_right(self._ends, position + shift)]


def _texts(body: bytes) -> Iterable[tuple[int, bytes]]:
    """Return each JSON text and where in *body* it stops."""
    if not _JSON.match(body):
        return _events(body)
    lines = [(line.end(), line.group()) for line in _LINE.finditer(body) if not line.group().isspace()]
    if len(lines) > 1 and not _is_json(lines[0][1]):
        return [(len(body.rstrip()), body)]
    return lines


def _is_json(text: bytes) -> bool:
    try:
        json_value(text, from_server=True)
    except ParseError:
        return False
    return True


_LONE_CR = re.compile(rb"\r(?!\n)")


def _events(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the data of each server-sent event; comments and other fields are passed over."""
    if b"\r" in body:
        # A line may end in CR alone; one in a JSON text would have been escaped.
        body = _LONE_CR.sub(b"\n", body)
    gathered: list[bytes] = []
    begin = stop = 0
    while begin < len(body):
        end = body.find(b"\n", begin)
        line = body[begin:end] if end >= 0 else body[begin:]
        if line.startswith(b"data:"):
            gathered.append(line[5:])
            stop = begin + len(line) - line.endswith(b"\r")  # of CR LF neither is data
        elif gathered and not line.strip():
            yield stop, b"\n".join(gathered)
            gathered = []
        begin += len(line) + 1
    if gathered:
        yield stop, b"\n".join(gathered)
