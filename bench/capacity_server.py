"""A server whose capacity is known: the gap between tokens rises in a straight line with the requests in flight.

python -m bench.capacity_server --base 0.04 --step 0.004 --spread 0.05

It prints its port. Each answer has a pace of its own, log-normal with the median 1, so the 95 % quantile of the time
per token with n requests in flight is (base + step * (n - 1)) * exp(1.645 * spread). Tokens are due at fixed times, so
a late one delays no other. GET /record returns when the first request came and the last answer ended.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

Q95 = 1.6448536
TOKENS = 12


@dataclass
class KnownServer:
    """The server, with what it has seen."""

    base: float
    step: float
    spread: float
    refuse_above: int | None = None
    random_numbers: random.Random = field(default_factory=lambda: random.Random(1))
    in_flight: int = 0
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    """Of each answer: when its request came, when it ended, and how many were in flight then."""

    def gap(self) -> float:
        """Return the median seconds between two tokens now."""
        return self.base + self.step * (self.in_flight - 1)

    async def tokens(self) -> AsyncIterator[str]:
        """Yield the tokens of one answer when they are due."""
        pace = self.random_numbers.lognormvariate(0.0, self.spread)
        due = time.monotonic()
        for number in range(TOKENS):
            due += pace * self.gap()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            yield f"{number} "

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split()
                length = 0
                while (header := (await reader.readline()).decode().strip()) != "":
                    name, _, value = header.partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                body = json.loads(await reader.readexactly(length)) if length else {}
                if method == "POST":
                    await self.answer(body, writer)
                else:
                    models = {"object": "list", "data": [{"id": "known", "object": "model", "owned_by": "bench"}]}
                    self.send(writer, "200 OK", {"spans": self.spans} if path == "/record" else models)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def send(self, writer: asyncio.StreamWriter, status: str, document: object) -> None:
        """Send a JSON document."""
        text = json.dumps(document).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)

    async def answer(self, body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        """Answer one request for a completion, streamed or whole."""
        begun = time.time()
        if self.refuse_above is not None and self.in_flight >= self.refuse_above:
            self.send(writer, "503 Service Unavailable", {"error": {"message": "too many requests"}})
            return
        self.in_flight += 1
        try:
            if body.get("stream"):
                await self.stream(writer)
            else:
                text = "".join([token async for token in self.tokens()])
                message = {"role": "assistant", "content": text}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                self.send(writer, "200 OK", {"id": "1", "model": "known", "choices": [choice], "usage": USAGE})
        finally:
            self.spans.append((begun, time.time(), self.in_flight))
            self.in_flight -= 1

    async def stream(self, writer: asyncio.StreamWriter) -> None:
        """Send an answer token by token, as server-sent events in chunks."""
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())

        async def event(document: object) -> None:
            text = f"data: {document if isinstance(document, str) else json.dumps(document)}\n\n".encode()
            writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
            await writer.drain()

        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "known"}
        async for token in self.tokens():
            await event(chunk | {"choices": [{"index": 0, "delta": {"content": token}, "finish_reason": None}]})
        await event(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await event(chunk | {"choices": [], "usage": USAGE})
        await event("[DONE]")
        writer.write(b"0\r\n\r\n")


USAGE = {"prompt_tokens": 8, "completion_tokens": TOKENS, "total_tokens": TOKENS + 8}


async def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=float, default=0.04)
    parser.add_argument("--step", type=float, default=0.004)
    parser.add_argument("--spread", type=float, default=0.05)
    parser.add_argument("--refuse-above", type=int)
    options = parser.parse_args()
    known = KnownServer(options.base, options.step, options.spread, options.refuse_above)
    server = await asyncio.start_server(known.connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
