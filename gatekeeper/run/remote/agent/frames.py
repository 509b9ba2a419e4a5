"""Frames on stdin and stdout: two big-endian 32-bit lengths, then that much JSON, then that much content."""

import json
import select
import struct
from typing import Any, BinaryIO, Dict, Iterator, Tuple

CHUNK = 1 << 18
FRAME_MOST = 1 << 26
HEARTBEAT_S = 5.0
"""A stream without news sends an empty item this often, so that both ends notice a lost connection."""
POLL_S = 0.1

Header = Dict[str, Any]
Items = Iterator[Tuple[Header, bytes]]


class Refusal(Exception):  # noqa: N818 (the agent works as intended)
    """A request the agent denies; `kind` is one word that the client may rely on."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.kind, self.message, self.more = kind, message, more


class Disconnected(Exception):  # noqa: N818 (the usual end)
    """The client closed the connection."""


class Channel:
    """Sends and receives frames."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def receive(self) -> "Tuple[Header, bytes]":
        """Return the next frame; Disconnected at the end."""
        header_size, content_size = struct.unpack("!II", self._exactly(8))
        if max(header_size, content_size) > FRAME_MOST:
            raise Disconnected
        return json.loads(self._exactly(header_size).decode()), self._exactly(content_size)

    def _exactly(self, size: int) -> bytes:
        content = self._source.read(size)
        if len(content) != size:
            raise Disconnected
        return content

    def send(self, header: Header, content: bytes = b"") -> None:
        """Send one frame."""
        text = json.dumps(header).encode()
        try:
            self._sink.write(struct.pack("!II", len(text), len(content)) + text + content)
            self._sink.flush()
        except (OSError, ValueError):
            raise Disconnected from None

    def check(self, wait_s: float = 0.0) -> None:
        """Wait so long; Disconnected as soon as the client closes its end: it sends nothing during a response."""
        if select.select([self._source], [], [], wait_s)[0]:
            raise Disconnected
