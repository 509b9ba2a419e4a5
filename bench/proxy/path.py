# ruff: noqa: SLF001 (the sockets of a proxy are replaced)
"""What the proxy does from bytes in to bytes out, without sockets: `python -m bench.proxy.path [ROUNDS]`.

Requests come alone and 32 at once, each after a pause in which other programs take the caches, as at a few dozen
requests a second; so do the tokens of their answers. Printed are medians and fastest tenths in microseconds: other work
on the machine moves the first a little, the second hardly.
"""

import asyncio
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from bench.proxy.known_times import DONE, EVENT, HEAD
from gatekeeper.core.hidden_keys import Address
from gatekeeper.live.http.upstream import Exchange, origin_of
from gatekeeper.live.live_records import LiveRecords
from gatekeeper.live.proxy_server import ProxyServer
from gatekeeper.live.request_routes import RequestRoutes
from tests.builders.live_server import CHAT, published

SERVER = Address("http://127.0.0.1:9")
BODY = (
    b'{"model": "t", "stream": true, "max_tokens": 50, "temperature": 0, '
    b'"messages": [{"role": "user", "content": "a calm stoat"}]}'
)
REQUEST = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
TOKENS, PAUSE_S = 20, 0.03


class Wire(asyncio.Transport):
    """Notes when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.last_ns, self.writes = b"", 0, 0

    def write(self, data: Any) -> None:
        """Take bytes."""
        self.last, self.last_ns, self.writes = data, time.perf_counter_ns(), self.writes + 1

    def is_closing(self) -> bool:
        """Return that it is open."""
        return False

    def close(self) -> None:
        """Stay open."""

    abort = pause_reading = resume_reading = close


async def written(wires: list[Wire], part: bytes, begun_ns: int) -> list[float]:
    """Wait until the last bytes on all wires hold *part*; return the microseconds since then."""
    while not all(part in wire.last for wire in wires):  # noqa: ASYNC110 (each turn of the loop counts)
        await asyncio.sleep(0)
    return [(wire.last_ns - begun_ns) / 1e3 for wire in wires]


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text), text)


async def measure(proxy: ProxyServer, server: Any, count: int) -> tuple[list[float], list[float], list[float], int]:
    """Let *count* requests come at once; return the times to the server, of first bytes and of tokens, and writes."""
    exchanges, to_server, clients = (
        [Exchange(origin_of(SERVER)) for _ in range(count)],
        [],
        [Wire() for _ in range(count)],
    )
    for exchange in exchanges:
        exchange.connection_made(wire := Wire())
        exchange.idle_since = time.monotonic()
        to_server.append(wire)
    proxy._upstream._idle[exchanges[0].origin] = deque(exchanges)
    request = REQUEST % (CHAT.encode(), len(BODY), BODY)
    begun_ns = time.perf_counter_ns()
    protocols = [server() for _ in clients]
    for protocol, client in zip(protocols, clients, strict=True):
        protocol.connection_made(client)
        protocol.data_received(request)
    sent = await written(to_server, b"stoat", begun_ns)
    first: list[float] = []
    tokens: list[float] = []
    for number in range(TOKENS):
        event = (b"" if number else HEAD) + chunk(EVENT % (1000 + number))
        begun_ns = time.perf_counter_ns()
        for exchange in exchanges:
            exchange.data_received(event)
        (tokens if number else first).extend(await written(clients, b'"%d"' % (1000 + number), begun_ns))
        await asyncio.sleep(0.001)
    for exchange in exchanges:
        exchange.data_received(chunk(DONE) + b"0\r\n\r\n")
    await written(clients, b"[DONE]", 0)
    for protocol in protocols:
        protocol.connection_lost(None)
    return sent, first, tokens, sum(client.writes for client in clients)


async def main(rounds: int) -> None:
    """Print a row for requests alone, and for 32 at once."""
    routes = RequestRoutes()
    published(routes)
    with tempfile.TemporaryDirectory() as folder:
        records = LiveRecords(Path(folder) / "live.jsonl", None, print)
        proxy = ProxyServer(routes, records, url=SERVER, plain_url=SERVER)
        await proxy.start("127.0.0.1", 0, drain_s=0.1)
        assert proxy._runner is not None
        print("| median (fastest tenth), us | to the server | first bytes | each token | writes |")
        print("|---" * 5 + "|")
        for count in (1, 32):
            columns: list[list[float]] = [[], [], []]
            writes = 0
            for _ in range(max(2, rounds // count)):
                await asyncio.sleep(PAUSE_S)
                *times, wrote = await measure(proxy, proxy._runner.server, count)
                await proxy.wait_until_recorded()
                writes += wrote
                for column, found in zip(columns, times, strict=True):
                    column.extend(found)
            cells = [f"{np.median(column):.0f} ({np.percentile(column, 10):.0f})" for column in columns]
            print(f"| {count} at once", *cells, f"{writes / len(columns[0]):.1f} |", sep=" | ")
        await proxy.stop()
        records.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
