"""A fake server: it reads one request per connection, then sends scripted bytes, valid or not."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Act(Enum):
    """What it can do instead of sending bytes."""

    RESET = "reset"
    """Reset the connection."""
    HANG = "hang"
    """Send nothing more until it is closed."""
    DIE = "die"
    """Reset the connection and stop listening."""


class Forever(NamedTuple):
    """Send *piece* again and again, *pause* seconds apart, until the connection or the server is closed."""

    piece: bytes
    pause: float = 0.0


Script = Sequence[bytes | float | Act | Forever]
"""Bytes to send, seconds to wait, and what else it can do."""


class FakeServer:
    """Listens on a port of its own; each request gets the next script, later ones the last."""

    def __init__(self, *scripts: Script, secure: ssl.SSLContext | None = None) -> None:
        """Send the *scripts*, piece by piece, over TLS where a context is given."""
        self._scripts, self._secure = scripts, secure
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if secure is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/v1/chat/completions"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._close()
        self._thread.join()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), self._wrapped(connection) as wrapped:
                self.requests.append(_request(wrapped))
                self._speak(wrapped, self._scripts[min(len(self.requests), len(self._scripts)) - 1])

    def _wrapped(self, connection: socket.socket) -> socket.socket:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection if self._secure is None else self._secure.wrap_socket(connection, server_side=True)

    def _speak(self, connection: socket.socket, script: Script) -> None:
        for piece in script:
            if isinstance(piece, Forever):
                while not self._over.wait(piece.pause):
                    connection.sendall(piece.piece)
            elif isinstance(piece, float):
                self._over.wait(piece)
            elif piece is Act.HANG:
                self._over.wait()
            elif isinstance(piece, Act):
                if piece is Act.DIE:
                    self._close()
                # Lingering for no time at all turns the close into a reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                connection.sendall(piece)


def _request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += _some(connection)
    return head + b"\r\n\r\n" + body


def _some(connection: socket.socket) -> bytes:
    chunk = connection.recv(1 << 16)
    if not chunk:
        raise ConnectionError("the client left before the end of its request")
    return chunk
