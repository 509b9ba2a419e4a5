"""A server whose tokens carry their send times, and the client that reads them: two ends of a proxy under test."""

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import cast

EVENT = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n'
SENT = re.compile(rb'"content":"(\d{10,})"')
DONE = b"data: [DONE]\n\n"
LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"
)
BURST = 64
"""Tokens written before other streams get their turn, where no interval is kept."""


class TimedServer(asyncio.Protocol):
    """Answers each POST with `max_tokens` events, one each as many seconds as its message says; 0: as fast as taken."""

    def __init__(self) -> None:
        self._given, self._open = b"", asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._open.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End with the connection."""
        del exc
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Wait: the other end does not read."""
        self._open.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._open.set()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        self._given += data
        head, end, rest = self._given.partition(b"\r\n\r\n")
        if not end:
            return
        length = LENGTH.search(head)
        wanted = int(length[1]) if length else 0
        if head.startswith(b"GET"):
            self._given = rest
            body = b'{"data":[{"id":"m"}]}'
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
        elif len(rest) >= wanted:
            asked, self._given = json.loads(rest[:wanted]), rest[wanted:]
            self._task = asyncio.ensure_future(
                self._answer(asked["max_tokens"], float(asked["messages"][0]["content"]))
            )

    async def _answer(self, tokens: int, interval: float) -> None:
        write, begun = self._transport.write, time.monotonic()
        for number in range(tokens):
            if interval:
                await asyncio.sleep(max(0.0, begun + number * interval - time.monotonic()))
            elif number and number % BURST == 0:
                await asyncio.sleep(0)
            await self._open.wait()
            event = EVENT % time.monotonic_ns()
            write((HEAD if number == 0 else b"") + b"%x\r\n%s\r\n" % (len(event), event))
        write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DONE), DONE))


@dataclass
class Received:
    """What one stream's client measured, in seconds."""

    ttft: list[float] = field(default_factory=list)
    jitter: list[float] = field(default_factory=list)
    tokens: int = 0


class TimedClient(asyncio.Protocol):
    """Sends one request and compares when each token came with when it was sent."""

    def __init__(self, path: bytes, body: bytes, received: Received, done: "asyncio.Future[None]") -> None:
        self._request = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" % path
        self._request += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        self._received, self._done, self._tail = received, done, b""
        self._last: tuple[int, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self.again()

    def again(self) -> None:
        """Send the request."""
        self._last, self._tail, self._begun = None, b"", time.monotonic_ns()
        self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        """End with the connection."""
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed early"))

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        now, text = time.monotonic_ns(), self._tail + data
        end = 0
        for found in SENT.finditer(text):
            sent, end = int(found[1]), found.end()
            if self._last is None:
                self._received.ttft.append((now - self._begun) / 1e9)
            else:
                self._received.jitter.append(abs((now - self._last[0]) - (sent - self._last[1])) / 1e9)
            self._last = now, sent
            self._received.tokens += 1
        self._tail = text[max(end, len(text) - 200) :]
        if b"0\r\n\r\n" in self._tail and b"[DONE]" in self._tail and not self._done.done():
            self._done.set_result(None)


async def requests(port: int, path: str, *, streams: int, each: int, tokens: int, interval: float) -> Received:
    """Send *each* requests on each of *streams* connections; return what all of them measured."""
    body = json.dumps(
        {
            "model": "m",
            "stream": True,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": str(interval)}],  # any proxy passes it on
        }
    ).encode()
    received, loop = Received(), asyncio.get_running_loop()

    async def one(number: int) -> None:
        await asyncio.sleep(number * (tokens * interval or 0.001) / streams)  # streams begin one after another
        for _ in range(each):
            done = loop.create_future()
            transport, _ = await loop.create_connection(
                partial(TimedClient, path.encode(), body, received, done), "127.0.0.1", port
            )
            try:
                await done
            finally:
                transport.close()

    await asyncio.gather(*(one(number) for number in range(streams)))
    return received


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(TimedServer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
