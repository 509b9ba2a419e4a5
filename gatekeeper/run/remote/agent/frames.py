"""The channel: frames in and out of the far side, and the two ways a conversation ends early.

A frame is two big-endian 32-bit lengths, then that many bytes of JSON, then that many bytes of content.
"""

import json
import select
import struct
from typing import Any, BinaryIO, Dict, Iterator, Tuple

CHUNK = 1 << 18
HEADER_MOST = 1 << 26
BEAT_S = 5.0
"""A stream with nothing to say says so this often, so that a lost reader is noticed by both sides."""
POLL_S = 0.1

Header = Dict[str, Any]
Items = Iterator[Tuple[Header, bytes]]


class Refusal(Exception):  # noqa: N818 (it is no error of the agent's)
    """What the agent will not or can not do; `kind` is one word the near side may rely on."""

    def __init__(self, kind: str, message: str, hint: str = "", **more: Any) -> None:
        super().__init__(message)
        self.kind, self.message, self.hint, self.more = kind, message, hint, more


class Gone(Exception):  # noqa: N818 (the usual end)
    """The near side went away."""


class Channel:
    """Frames in and out."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def receive(self) -> "Tuple[Header, bytes]":
        """Return the next frame; Gone at the end."""
        header_size, content_size = struct.unpack("!II", self._exactly(8))
        if header_size > HEADER_MOST or content_size > HEADER_MOST:
            raise Gone
        return json.loads(self._exactly(header_size).decode()), self._exactly(content_size)

    def _exactly(self, size: int) -> bytes:
        got = self._source.read(size)
        if len(got) != size:
            raise Gone
        return got

    def send(self, header: Header, content: bytes = b"") -> None:
        """Send one frame."""
        text = json.dumps(header).encode()
        try:
            self._sink.write(struct.pack("!II", len(text), len(content)) + text + content)
            self._sink.flush()
        except (OSError, ValueError):
            raise Gone from None

    def check(self, wait_s: float = 0.0) -> None:
        """Wait so long; Gone as soon as the near side has closed its end, for it says nothing during a reply."""
        if select.select([self._source], [], [], wait_s)[0]:
            raise Gone
