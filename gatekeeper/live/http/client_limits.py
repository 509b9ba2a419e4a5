"""Limits on what clients hold: connections, the time for a request's head and body, and bodies in memory."""

import asyncio
import resource
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

HEAD_S = 30.0
"""A connection on which no head of a request has arrived whole for as long is closed, also between two requests."""
BODY_S = 300.0
"""Longest time for a request's body to arrive: 64 MB at 220 kB a second."""
MOST_BODY = 64 << 20
"""Longest request that is read before it is routed, in bytes; a longer one gets status 413."""
MOST_BODIES = 256 << 20
"""Bytes of all requests in memory at once; one that would go beyond gets status 503."""
MOST_CLIENTS = 4096
OWN_DESCRIPTORS = 64
"""Descriptors of the files, locks and connections of the proxy and its watch."""
DESCRIPTORS_PER_CLIENT = 3
"""Its connection, the one to a server, and an idle one to the other server."""
RETRY_AFTER_S = 5
"""What a 503 tells its client to wait."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 22\r\n\r\ntoo many connections.\n"
) % RETRY_AFTER_S


def most_clients() -> int:
    """Return how many client connections this process can serve, each with its connections to the servers."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CLIENTS
    return max(1, min(MOST_CLIENTS, (descriptors - OWN_DESCRIPTORS) // DESCRIPTORS_PER_CLIENT))


class ClientServer(web.Server):
    """aiohttp's server, with a limit on connections: one beyond it gets status 503 and is closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, keepalive_timeout=HEAD_S, **options)
        self._most, self._open = most_clients(), 0

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection; refuse it where there are too many."""
        super().connection_made(handler, transport)
        self._open += 1
        if self._open > self._most:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Let another connection in."""
        super().connection_lost(handler, exc)
        self._open -= 1


class RefusedBodyError(Exception):
    """A body that is too long, too slow, or one too many; holds the status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def pieces(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """Yield a body that is passed on piece by piece; raise RefusedBodyError where it takes too long."""
    until = asyncio.get_running_loop().time() + BODY_S
    while True:
        try:
            async with asyncio.timeout_at(until):  # of the wait alone: a slow server may take its time
                piece = await request.content.readany()
        except TimeoutError as error:
            raise _too_slow() from error
        if not piece:
            return
        yield piece


def _too_slow() -> RefusedBodyError:
    return RefusedBodyError(408, f"the body did not arrive within {BODY_S:g} s")


class RequestBodies:
    """Reads bodies, within the limit of all that are in memory."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes in memory."""

    async def read(self, request: web.BaseRequest) -> bytes:
        """Return a request's body, which counts until it is released; raise RefusedBodyError beyond a limit."""
        pieces: list[bytes] = []
        size, content = 0, request.content
        try:
            if content.is_eof():  # most bodies come whole with their head
                size = len(body := content.read_nowait())
                self.size += size
                self._check(size)
                return body
            async with asyncio.timeout(BODY_S):
                while piece := await content.readany():
                    size += len(piece)
                    self.size += len(piece)
                    self._check(size)
                    pieces.append(piece)
        except TimeoutError as error:
            self.size -= size
            raise _too_slow() from error
        except BaseException:
            self.size -= size
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check(self, size: int) -> None:
        if size > MOST_BODY:
            raise RefusedBodyError(413, f"a request has at most {MOST_BODY >> 20} MB")
        if self.size > MOST_BODIES:
            raise RefusedBodyError(503, f"all requests together have over {MOST_BODIES >> 20} MB")

    def release(self, body: bytes) -> None:
        """Count a body no more."""
        self.size -= len(body)
