"""What is measured of an answer while its bytes pass: times, counts and a digest, without keeping the answer."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

TEXT = re.compile(rb'"(?:content|reasoning_content|reasoning|text|arguments|response)" ?: ?"((?:[^"\\]|\\.)+)"')
"""The texts of a streamed answer; what is inside stays as the server wrote it."""
USAGE = re.compile(rb'"usage" ?: ?\{')
END = re.compile(rb'\[DONE\]|"finish_reason" ?: ?"')
"""What only the last lines of a completion's stream hold."""
MOST_LINE = 1 << 20
"""A longer line is no event of a stream: it is passed on, and not measured."""
MOST_KEPT = 16 << 20
"""Bytes of an answer that are kept until its end: for --keep-prompts, and of one that is not streamed."""


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
    _first_chars: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)
    _tail: bytes = b""
    _last: bytes = b""
    _usage: bytes = b""
    _kept: list[bytes] = field(default_factory=list)

    def feed(self, piece: bytes, now_ns: int) -> None:
        """Take the bytes that were just received."""
        self.size += len(piece)
        self._digest.update(piece)
        if self.keeps or not self.streamed:
            self._kept.append(piece)
            if self.size > MOST_KEPT:
                self.keeps, self._kept = False, []
        if not self.streamed:
            return
        lines = self._tail + piece if self._tail else piece
        end = lines.rfind(b"\n") + 1
        if end < len(lines):
            self._tail = lines[end:] if len(lines) - end < MOST_LINE else b""
            lines = lines[:end]
        else:
            self._tail = b""
        if len(lines) > 4:  # not the empty line after an event
            self._last = lines
        found = sum(map(len, TEXT.findall(lines)))
        if found:
            if self.first_ns is None:
                self.first_ns, self._first_chars = now_ns, found
            self.chars += found
            self.last_ns = now_ns
        if USAGE.search(lines):
            self._usage = lines

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the bytes so far."""
        return str(self._digest.hexdigest())

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
        """Return the speed of a streamed answer after its first text; None where it has none."""
        seconds, later = self.decode_s, self.chars - self._first_chars
        return later / seconds if seconds and later else None

    def body(self) -> bytes:
        """Return the kept answer; empty where it was not kept, or too long."""
        return b"".join(self._kept)

    def finish(self) -> dict[str, Any]:
        """Return the server's usage at the end of the answer; count the texts of one that was not streamed."""
        if self.streamed:
            if not self._usage:
                return {}
            line = next(one for one in reversed(self._usage.split(b"\n")) if USAGE.search(one))
            return _usage(_parsed(line.removeprefix(b"data:")))
        document = _parsed(self.body())
        self.chars = sum(map(len, TEXT.findall(self.body())))
        return _usage(document)


def _usage(document: Any) -> dict[str, Any]:
    found = document.get("usage") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
