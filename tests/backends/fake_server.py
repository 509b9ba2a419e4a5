"""A fake server: it reads one request per connection and then speaks scripted bytes, however wrong they are."""

import socket
import struct
import threading
from collections.abc import Sequence
from enum import Enum
from typing import Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Act(Enum):
    """What it can do beside speaking."""

    RESET = "reset"
    """Tear the connection down without an end."""
    HANG = "hang"
    """Say no more until it is closed."""


class FakeServer:
    """Listens on a port of its own and says the same to whoever asks."""

    def __init__(self, script: Sequence[bytes | Act]) -> None:
        """Speak *script*, piece by piece."""
        self._script = script
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/chat/completions"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.requests.append(_request(connection))
                self._speak(connection)

    def _speak(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in self._script:
            if piece is Act.HANG:
                self._over.wait()
            elif piece is Act.RESET:
                # Lingering for no time at all turns the close into a reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                assert isinstance(piece, bytes)
                connection.sendall(piece)


def _request(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body
