"""What is measured of an answer while its bytes pass: times, counts and a digest, without keeping the answer."""

import asyncio
import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gatekeeper.live.server_load import ServedRequest

TEXT = re.compile(rb'"(?:content|reasoning_content|reasoning|text|arguments|response)" ?: ?"((?:[^"\\]|\\.)+)"')
"""The texts of a streamed answer; what is inside stays as the server wrote it."""
USAGE = re.compile(rb'"usage" ?: ?\{')
REPORT = re.compile(rb'"(?:usage|timings|stats|mtplx_stats|metrics|sglext|generation_metadata|ddtree_stats)" ?: ?\{')
"""Where a server reports on an answer: its tokens, and what was drafted; a quote inside of a text has a backslash."""
DECODE_TIMES = (
    (re.compile(rb'"predicted_ms" ?: ?(\d{1,12}(?:\.\d{1,12})?)'), 1e-3),
    (re.compile(rb'"eval_duration" ?: ?(\d{1,18})'), 1e-9),
    (re.compile(rb'"decode_s" ?: ?(\d{1,12}(?:\.\d{1,12})?)'), 1.0),
)
"""The time that a server claims for decoding alone, and its unit in seconds."""
END = re.compile(rb'\[DONE\]|"finish_reason" ?: ?"')
"""What only the last lines of a completion's stream hold."""
MOST_LINE = 1 << 20
"""A longer line is no event of a stream, and its end alone is read."""
MOST_REPORTS = 8
"""Last lines of a stream with a report that are read: one has the usage, one what was drafted.

So many reports are tried in the end of a long document, too.
"""
MOST_USAGE = 1 << 16
"""Bytes of an end in which reports are read: all of a long answer would take seconds, in which other streams wait."""
MOST_KEPT = 16 << 20
"""Bytes of a stream that are kept until its end, for --keep-prompts."""
MOST_PARSED = 1 << 18
"""Bytes of a document that is parsed whole, for what its server says that it drafted; of a longer one its end is."""
MOST_WHOLE = 4 << 20
"""The same of an answer that is not streamed: its texts are counted at its end, while other streams wait."""


@dataclass(slots=True)
class AnswerMeter:
    """Measures one answer; times are monotonic nanoseconds."""

    begun_ns: int
    streamed: bool = True
    keeps: bool = False
    status: int | None = None
    """What the client was sent; None: nothing yet."""
    size: int = 0
    chars: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    compressed: bool = False
    """The server's doing, which was to send it as it is: nothing in it can be read."""
    served: ServedRequest | None = None
    """What it meets at its server; None where that is not counted."""
    _claimed_s: float | None = None
    _first_chars: int = 0
    _digest: Any = None
    """Made with the first bytes, which no longer wait for it."""
    _tail: bytearray = field(default_factory=bytearray)
    """The beginning of a line whose end has not come; of an answer that is not streamed its last bytes."""
    _last: bytes = b""
    _reports: deque[bytes] = field(default_factory=lambda: deque(maxlen=MOST_REPORTS))
    """The ends of the last lines that hold a report."""
    _kept: list[bytes] = field(default_factory=list)
    _waiting: list[tuple[bytes, int]] = field(default_factory=list)

    def feed_later(self, piece: bytes, now_ns: int) -> None:
        """Take bytes once those of all streams that arrived together are passed on: what is measured delays none."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.feed_waiting)
        self._waiting.append((piece, now_ns))

    def feed_waiting(self) -> None:
        """Take what waits."""
        waiting, self._waiting = self._waiting, []
        for piece, now_ns in waiting:
            self.feed(piece, now_ns)

    def feed(self, piece: bytes, now_ns: int) -> None:
        """Take the bytes that were just received."""
        if self._digest is None:
            self._digest = hashlib.sha256()
        self.size += len(piece)
        self._digest.update(piece)
        if self.keeps or not self.streamed:
            self._kept.append(piece)
            if self.size > (MOST_KEPT if self.streamed else MOST_WHOLE):
                self.keeps, self._kept = False, []
        if self.streamed:
            self._read_lines(piece, now_ns)
        else:
            self._tail += piece[-MOST_USAGE:]
            del self._tail[:-MOST_USAGE]

    def _read_lines(self, piece: bytes, now_ns: int) -> None:
        end = piece.rfind(b"\n") + 1
        lines = bytes(self._tail) + piece[:end] if end else b""
        if end:
            self._tail.clear()
        self._tail += piece[end:]
        if len(self._tail) >= MOST_LINE:
            del self._tail[:-MOST_USAGE]
        if not lines:
            return
        if len(lines) > 4:  # not the empty line after an event
            self._last = lines
        chars = sum(map(len, TEXT.findall(lines)))
        if chars:
            if self.first_ns is None:
                self.first_ns, self._first_chars = now_ns, chars
                if self.served is not None:
                    self.served.first_text()
            self.chars += chars
            self.last_ns = now_ns
        self._keep_reports(lines)

    def _keep_reports(self, lines: bytes) -> None:
        if REPORT.search(lines):
            ends = [line[-MOST_USAGE:] for line in lines.split(b"\n")]
            self._reports.extend(filter(REPORT.search, ends))

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the bytes so far."""
        return str((self._digest or hashlib.sha256()).hexdigest())

    @property
    def has_end(self) -> bool:
        """Return whether the last lines of a stream are those of a whole completion."""
        return END.search(self._last + self._tail) is not None

    @property
    def decode_s(self) -> float | None:
        """Return the seconds from the first text to the last; None where there are not two moments."""
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns:
            return None
        return (self.last_ns - self.first_ns) / 1e9

    @property
    def chars_per_s(self) -> float | None:
        """Return the speed of decoding; None where it is not known.

        Of a stream it is taken after the first text. Of another answer nothing shows when decoding began, so that only
        a server's own time counts: the whole duration holds the prompt, which may be cached in one arm alone.
        """
        seconds, later = self.decode_s, self.chars - self._first_chars
        if not self.streamed:
            seconds, later = self._claimed_s, self.chars
        return later / seconds if seconds and later else None

    def body(self) -> bytes:
        """Return the kept answer; empty where it was not kept, or too long."""
        return b"".join(self._kept)

    def finish(self) -> dict[str, Any]:
        """Return the server's usage at the end of the answer; count the texts of one that was not streamed."""
        if self.streamed:
            self._keep_reports(bytes(self._tail))  # a last line that has no end
            return _usage(b"".join(self._reports))
        body = self.body()
        self.chars = sum(map(len, TEXT.findall(body)))
        self._claimed_s = _claimed_seconds(body[-MOST_USAGE:])
        return _usage(body)

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yield the documents, of one answer that has ended, in which its server reports what it drafted."""
        if self.streamed:
            texts = [line.removeprefix(b"data:") for line in self._reports]
        else:
            texts = [self.body() if self.size <= MOST_PARSED else bytes(self._tail)]
        for text in texts:
            if (document := _object(text) or _last_members(text)) is not None:
                yield document


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _last_members(text: bytes) -> dict[str, Any] | None:
    """Return the members of a JSON object, of which *text* is the end, from the first report on; None without one.

    Only where the report is the object's own does one bracket end the rest of the text: what a client wrote, and a
    server repeats deeper inside, is none.
    """
    for report in islice(REPORT.finditer(text), MOST_REPORTS):
        if (members := _object(b"{" + text[report.start() :])) is not None:
            return members
    return None


def _claimed_seconds(text: bytes) -> float | None:
    """Return the decoding time that a server claims, in seconds; None where it claims none or 0."""
    for pattern, unit in DECODE_TIMES:
        if claims := deque(pattern.finditer(text), maxlen=1):
            return float(claims[0][1]) * unit or None
    return None


def _usage(text: bytes) -> dict[str, Any]:
    """Return the last usage in a text of JSON; empty where it has none that can be read."""
    last = deque(USAGE.finditer(text), maxlen=1)
    if not last:
        return {}
    start = last[0].end() - 1
    try:
        usage, _ = json.JSONDecoder().raw_decode(text[start : start + MOST_USAGE].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return usage if isinstance(usage, dict) else {}
