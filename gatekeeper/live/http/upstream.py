"""Connections to the servers, each kept for the next request once its answer was read."""

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping

from gatekeeper.core.system.own_limits import check_own_limit, own_limit
from gatekeeper.live.http.exchange import ERRNO, Exchange, Origin, UpstreamError, system_words

CONNECT_S = 5.0
"""Longest wait for a connection; an answer itself may take as long as it likes."""
KEPT_S = 15.0
"""An idle connection is used again for as long; servers close theirs after some time, too."""
MOST_IDLE = 64


class Upstream:
    """Opens connections to servers and keeps them for the next request."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[Exchange]] = {}
        self._tls: ssl.SSLContext | None = None

    async def request(
        self,
        origin: Origin,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | AsyncIterator[bytes],
    ) -> Exchange:
        """Send a request and wait for the head of its answer; raise UpstreamError where there is none.

        Raise OwnLimitError where this process or machine can open no connection: the server is not to blame.
        A *content* of unknown length is sent in chunks, unless *headers* state its length.
        """
        exchange = self._take_idle(origin) or await self._open(origin)
        try:
            await exchange.send(method, target, headers, content)
        except BaseException:
            exchange.close()
            raise
        return exchange

    def _take_idle(self, origin: Origin) -> Exchange | None:
        idle, now = self._idle.get(origin), time.monotonic()
        while idle:
            exchange = idle.pop()
            if exchange.is_open and now - exchange.idle_since < KEPT_S:
                return exchange
            exchange.close()
        return None

    async def _open(self, origin: Origin) -> Exchange:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, exchange = await asyncio.get_running_loop().create_connection(
                    lambda: Exchange(origin), origin.host, origin.port, ssl=self._tls if origin.tls else None
                )
        except (OSError, TimeoutError) as error:
            _check_own_limits(error)
            reason = f"no connection within {CONNECT_S:g} s" if isinstance(error, TimeoutError) else system_words(error)
            raise UpstreamError(reason) from error
        return exchange

    def release(self, exchange: Exchange) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        idle = self._idle.setdefault(exchange.origin, deque())
        if not exchange.is_reusable or len(idle) >= MOST_IDLE:
            exchange.close()
            return
        exchange.idle_since = time.monotonic()
        idle.append(exchange)
        while idle[0].idle_since < exchange.idle_since - KEPT_S:
            idle.popleft().close()

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


def _check_own_limits(error: OSError) -> None:
    """Raise OwnLimitError where *error* comes from a limit of ours at each address that was tried.

    At one of several it may only mean that this machine has no IPv6.
    """
    numbers = map(int, ERRNO.findall(str(error)))
    errors = [OSError(number, os.strerror(number)) for number in numbers] or [error]
    if all(map(own_limit, errors)):
        check_own_limit(errors[0])
