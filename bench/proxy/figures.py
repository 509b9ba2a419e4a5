"""What the proxy costs, beside other proxies: `python -m bench.proxy.figures [latency|load|memory|stacks]`.

One server sends tokens whose send times they carry (`known_times.py`). Every arm takes its turn in each round, direct
connections included, so that other work on the machine disturbs all arms alike. Added times are the differences of an
arm's quantile and the direct one's in the same round, the median over the rounds.

Where the system can pin processes (Linux), a proxy has one processor to itself, and the clients and the server share
another: else the scheduler may let a client wait for the very proxy that woke it, though a processor is idle.
`--unpinned` leaves it to the system. Capacity is tokens per second of the proxy's own processor time, which other work
does not take: as fast as they come, at 50,000 a second, and at 6,400.

nginx and haproxy are Debian's packages. LiteLLM is its proxy, in a virtual environment of its own whose program the
variable LITELLM names: `python -m venv V && V/bin/pip install 'litellm[proxy]' && export LITELLM=V/bin/litellm`.
"""

import asyncio
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import uvloop

from bench.proxy.known_times import requests
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
HAPROXY = """global
  nbthread 1
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s 127.0.0.1:{upstream}
"""


Arms = dict[str, tuple[int, psutil.Process | None]]


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


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
        return [sys.executable, "-m", "bench.proxy.figures", "serve", str(port), str(upstream), str(folder)]
    if name in {"nginx", "haproxy"}:
        if (program := shutil.which(name) or shutil.which(f"/usr/sbin/{name}")) is None:
            return None
        config = folder / f"{name}.conf"
        config.write_text((NGINX if name == "nginx" else HAPROXY).format(folder=folder, port=port, upstream=upstream))
        return [program, "-c" if name == "nginx" else "-f", str(config)]
    if name == "litellm":
        if (program := shutil.which(os.environ.get("LITELLM", "litellm"))) is None:
            return None
        model = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
        config = folder / "litellm.yaml"
        listed = [{"model_name": "m", "litellm_params": model}]
        without_keys = {"dangerously_permit_weak_or_unset_master_key": True}  # it listens on 127.0.0.1 alone
        config.write_text(json.dumps({"model_list": listed, "general_settings": without_keys}))
        return [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    return _stack(name, port, upstream)


def _stack(name: str, port: int, upstream: int) -> list[str] | None:
    library = name.removesuffix("-uvloop")
    needs = ("starlette", "uvicorn", library) if library.startswith("httpx") else ()
    if any(find_spec(one) is None for one in needs):
        return None
    return [sys.executable, "-m", "bench.proxy.stacks", name, str(port), f"http://127.0.0.1:{upstream}"]


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

        start([sys.executable, "-m", "bench.proxy.known_times", str(upstream)], upstream)
        found: Arms = {"direct": (upstream, None)}
        for name in names:
            port = free_port()
            if (command := command_of(name, port, upstream, folder)) is None:
                print(f"{name}: not installed")
                continue
            found[name] = port, start(command, port)
        yield found


def latency(names: list[str], rounds: int = ROUNDS, *, pinned: bool = True) -> None:
    """Print what each arm adds at 32 streams of 50 tokens a second, and its capacity, as the table of docs/proxy.md."""
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


def load(names: list[str]) -> None:
    """Print the capacity of each arm alone."""
    with arms(names) as found:
        _print_capacity(_capacity(found))


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
    """Run what is named, or everything but the stacks."""
    if words[:1] == ["serve"]:
        uvloop.run(_serve_proxy(int(words[1]), int(words[2]), Path(words[3])))
        return
    others = ["gatekeeper", "nginx", "haproxy", "litellm"]
    what = words[0] if words else "all"
    if what == "stacks":
        candidates = ["aiohttp", "aiohttp-uvloop", "httptools-uvloop", "httpx-uvloop", "httpx2-uvloop"]
        latency(candidates, 3)
        load(candidates)
    if what in {"latency", "all"}:
        pinned = "--unpinned" not in words
        latency([one for one in words[1:] if one != "--unpinned"] or others, pinned=pinned)
    if what == "load":
        load(words[1:] or others)
    if what in {"memory", "all"}:
        memory(int(words[1]) if words[1:] else 100_000)


if __name__ == "__main__":
    main(sys.argv[1:])
