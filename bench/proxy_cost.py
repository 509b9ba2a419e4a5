"""What the proxy costs, beside other proxies.

    python -m bench.proxy_cost latency [--unpinned] [gatekeeper nginx litellm]
    python -m bench.proxy_cost memory 1000000

One server sends tokens whose send times they carry. Every arm takes its turn in each round, direct connections
included, so that other work on the machine disturbs all arms alike. Added times are the differences of an arm's
quantile and the direct one's in the same round, the median over the rounds.

Where the system can pin processes (Linux), a proxy has one processor to itself, and the clients and the server share
another: else the scheduler may let a client wait for the very proxy that woke it, though a processor is idle.
`--unpinned` leaves it to the system. Capacity is tokens per second of the proxy's own processor time, which other work
does not take: as fast as they come, at 50,000 a second, and at 6,400.

nginx is Debian's package. LiteLLM is its proxy, in a virtual environment of its own whose program the variable LITELLM
names: `python -m venv V && V/bin/pip install 'litellm[proxy]' && export LITELLM=V/bin/litellm`.
"""

import asyncio
import gc
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import cast

import numpy as np
import psutil
import uvloop

from gatekeeper.backends.listening_process import free_port
from gatekeeper.core.hidden_keys import Address
from gatekeeper.live.live_records import LiveRecords
from gatekeeper.live.proxy_server import ProxyServer
from gatekeeper.live.request_routes import RequestRoutes
from tests.builders.live_server import published

CHAT = "/v1/chat/completions"
STREAMS = 32
ROUNDS = 5
LATENCY_TARGETS = (1.0, 3.0, None, 0.5)
"""Milliseconds that the proxy may add: TTFT in the median and at p99, jitter in the median and at p99."""
RATES = {"as fast as they come": (1000, 0.0), "at 50,000 a second": (2000, STREAMS / 50_000), "at 6,400": (400, 0.005)}
"""Tokens of each stream, and the seconds between them."""
RATE_TARGET = 50_000
SLOW = {"litellm": 20}
"""Arms that get as many times fewer tokens: they take seconds for what others do in a hundredth."""
NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; proxy_temp_path {folder}/p; client_body_temp_path {folder}/c; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1;
proxy_buffering off; }} }} }}
"""

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

Arms = dict[str, tuple[int, psutil.Process | None]]


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


async def _serve_tokens(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(TimedServer, "127.0.0.1", port)
    await server.serve_forever()


async def _serve_proxy(port: int, upstream: int, folder: Path) -> None:
    """Run our proxy with one route that speculates, as `gatekeeper proxy` does after the first round of its watch."""
    routes = RequestRoutes()
    published(routes)
    records = LiveRecords(folder / "live.jsonl", None, print)
    url = Address(f"http://127.0.0.1:{upstream}")
    await ProxyServer(routes, records, url=url, plain_url=url).start("127.0.0.1", port, drain_s=1.0)
    gc.collect()
    gc.freeze()  # as `gatekeeper proxy` does: else a full collection stops all streams for 0.1 s
    await asyncio.Event().wait()


def command_of(name: str, port: int, upstream: int, folder: Path) -> list[str] | None:
    """Return how an arm is started; None where its program is missing."""
    if name == "gatekeeper":
        return [sys.executable, "-m", "bench.proxy_cost", "proxy", str(port), str(upstream), str(folder)]
    if name == "nginx":
        if (program := shutil.which(name) or shutil.which(f"/usr/sbin/{name}")) is None:
            return None
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port, upstream=upstream))
        return [program, "-c", str(config)]
    if name == "litellm":
        if (program := shutil.which(os.environ.get("LITELLM", "litellm"))) is None:
            return None
        model = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
        config = folder / "litellm.yaml"
        listed = [{"model_name": "m", "litellm_params": model}]
        without_keys = {"dangerously_permit_weak_or_unset_master_key": True}  # it listens on 127.0.0.1 alone
        config.write_text(json.dumps({"model_list": listed, "general_settings": without_keys}))
        return [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    raise ValueError(f"no proxy is called {name}")


def _processors() -> list[int]:
    """Return two processors, for the proxy and for the rest; none where processes cannot be pinned."""
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    return found[:2] if len(found) > 1 else []


@contextmanager
def arms(names: list[str], *, pinned: bool = True) -> Iterator[Arms]:
    """Start the server and every arm that is installed; yield port and process by name, `direct` included."""
    processors = _processors() if pinned else []
    with ExitStack() as stack:
        if processors:
            everywhere = os.sched_getaffinity(0)
            stack.callback(os.sched_setaffinity, 0, everywhere)
            os.sched_setaffinity(0, {processors[1]})
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = free_port()

        def start(command: list[str], port: int, patience: float = 120.0) -> psutil.Process:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if processors:
                os.sched_setaffinity(process.pid, {processors[port == upstream]})
            stack.callback(process.wait)
            stack.callback(process.kill)
            until = time.monotonic() + patience
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    return psutil.Process(process.pid)
                except OSError:
                    if time.monotonic() > until or process.poll() is not None:
                        raise
                    time.sleep(0.1)

        start([sys.executable, "-m", "bench.proxy_cost", "tokens", str(upstream)], upstream)
        found: Arms = {"direct": (upstream, None)}
        for name in names:
            port = free_port()
            if (command := command_of(name, port, upstream, folder)) is None:
                print(f"{name}: not installed")
                continue
            found[name] = port, start(command, port)
        yield found


def latency(names: list[str], rounds: int = ROUNDS, *, pinned: bool = True) -> None:
    """Print what each arm adds at 32 streams of 50 tokens a second, and its capacity, as a table."""
    with arms(names, pinned=pinned) as found:
        seen: dict[str, list[tuple[float, ...]]] = {name: [] for name in found}
        for _ in range(rounds):
            for name, (port, _process) in found.items():
                each = 1 if name in SLOW else 3
                received = uvloop.run(requests(port, CHAT, streams=STREAMS, each=each, tokens=50, interval=0.02))
                seen[name].append(
                    (*(np.percentile(received.ttft, [50, 99]) * 1e3), *(np.percentile(received.jitter, [50, 99]) * 1e3))
                )
        capacity = _capacity(found)
    print("| added, ms: median (least to most of the rounds) | TTFT median | TTFT p99 | jitter median | jitter p99 |")
    print("|---" * 5 + "|")
    for name, values in seen.items():
        if name == "direct":
            own = [median(column) for column in zip(*values, strict=True)]
            print("| direct, itself", *(f"{one:.2f}" for one in own), sep=" | ", end=" |\n")
            continue
        added = [
            sorted(mine - theirs for mine, theirs in zip(column, base, strict=True))
            for column, base in zip(zip(*values, strict=True), zip(*seen["direct"], strict=True), strict=True)
        ]
        cells = [f"{median(one):+.2f} ({one[0]:+.2f} to {one[-1]:+.2f})" for one in added]
        print(f"| {name}", *cells, sep=" | ", end=" |\n")
        if name == "gatekeeper":
            verdicts = [
                "" if most is None else f"{'met' if median(one) <= most else 'MISSED'}: at most +{most:g}"
                for one, most in zip(added, LATENCY_TARGETS, strict=True)
            ]
            print("| target", *verdicts, sep=" | ", end=" |\n")
    _print_capacity(capacity)


def _processor_s(process: psutil.Process) -> float:
    everyone = [process, *process.children(recursive=True)]
    return float(sum(sum(one.cpu_times()[:2]) for one in everyone))


def _capacity(found: Arms) -> dict[str, dict[str, float]]:
    """Return the tokens per second of processor time, by arm and rate."""
    per_second: dict[str, dict[str, float]] = {}
    for name, (port, process) in found.items():
        for rate, (tokens, interval) in RATES.items() if process is not None else ():
            assert process is not None
            before = _processor_s(process)
            count = max(20, tokens // SLOW.get(name, 1))
            received = uvloop.run(requests(port, CHAT, streams=STREAMS, each=1, tokens=count, interval=interval))
            per_second.setdefault(name, {})[rate] = received.tokens / max(1e-9, _processor_s(process) - before)
    return per_second


def _print_capacity(per_second: dict[str, dict[str, float]]) -> None:
    print("\n| tokens per second of processor time", *RATES, sep=" | ", end=" |\n")
    print("|---" * (1 + len(RATES)) + "|")
    for name, found in per_second.items():
        print(f"| {name}", *(f"{one:,.0f}" for one in found.values()), sep=" | ", end=" |\n")
    if "gatekeeper" in per_second:
        own = per_second["gatekeeper"]["at 50,000 a second"]
        print(f"target, 50,000 tokens/s on one core at that rate: {'met' if own >= RATE_TARGET else 'MISSED'}")


def memory(count: int) -> None:
    """Print the proxy's resident memory over *count* requests."""
    with arms(["gatekeeper"]) as found:
        port, process = found["gatekeeper"]
        assert process is not None
        for part in range(11):
            each = count // 10 // STREAMS if part else 20
            uvloop.run(requests(port, CHAT, streams=STREAMS, each=each, tokens=8, interval=0.0))
            print(f"after {part * count // 10:,} requests: {process.memory_info().rss / 1e6:.1f} MB", flush=True)


def main(words: list[str]) -> None:
    """Run what is named: as a process of the bench, or one of the commands above."""
    match words:
        case ["proxy", port, upstream, folder]:
            uvloop.run(_serve_proxy(int(port), int(upstream), Path(folder)))
        case ["tokens", port]:
            uvloop.run(_serve_tokens(int(port)))
        case ["memory", *counts]:
            memory(int(counts[0]) if counts else 100_000)
        case _:
            names = [word for word in words[1:] if word != "--unpinned"]
            latency(names or ["gatekeeper", "nginx", "litellm"], pinned="--unpinned" not in words)


if __name__ == "__main__":
    main(sys.argv[1:])
