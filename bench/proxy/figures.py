"""What the proxy costs, beside other proxies: `python -m bench.proxy.figures [latency|load|memory|stacks]`.

One server sends tokens whose send times they carry (`known_times.py`). Every arm takes its turn in each round, direct
connections included, so that other work on the machine disturbs all arms alike. Added times are the differences of an
arm's quantile and the direct one's in the same round, the median over the rounds. Capacity is tokens per second of the
proxy's own processor time, which other work does not take.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import uvloop

from bench.proxy.known_times import requests
from gatekeeper.core.subject import Address
from gatekeeper.proxy.live_evidence import LiveEvidence
from gatekeeper.proxy.live_records import LiveRecords
from gatekeeper.proxy.proxy_server import ProxyServer
from gatekeeper.proxy.request_routes import RequestRoutes
from tests.builders.live_server import published

CHAT = "/v1/chat/completions"
STREAMS = 32
ROUNDS = 7
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
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s 127.0.0.1:{upstream}
"""


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


async def _serve_proxy(port: int, upstream: int, folder: Path) -> None:
    """Run our proxy with one route that speculates, as `gatekeeper proxy` does after the first round of its watch."""
    routes = RequestRoutes(LiveEvidence())
    published(routes)
    records = LiveRecords(folder / "live.jsonl", None, lambda: datetime.now(UTC), print)
    url = Address(f"http://127.0.0.1:{upstream}")
    await ProxyServer(routes, records, url=url, plain_url=url).start("127.0.0.1", port, drain_s=1.0)
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
        if (program := shutil.which("litellm")) is None:
            return None
        model = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
        config = folder / "litellm.yaml"
        config.write_text(json.dumps({"model_list": [{"model_name": "m", "litellm_params": model}]}))
        return [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    return [sys.executable, "-m", "bench.proxy.stacks", name, str(port), f"http://127.0.0.1:{upstream}"]


@contextmanager
def arms(names: list[str]) -> Iterator[dict[str, tuple[int, psutil.Process | None]]]:
    """Start the server and every arm that is installed; yield port and process by name, `direct` included."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = free_port()

        def start(command: list[str], port: int, patience: float = 120.0) -> psutil.Process:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
        found: dict[str, tuple[int, psutil.Process | None]] = {"direct": (upstream, None)}
        for name in names:
            port = free_port()
            if (command := command_of(name, port, upstream, folder)) is None:
                print(f"{name}: not installed")
                continue
            found[name] = port, start(command, port)
        yield found


def latency(names: list[str], rounds: int = ROUNDS) -> None:
    """Print the added time to first token and the added jitter of each arm, at 32 streams of 50 tokens a second."""
    with arms(names) as found:
        seen: dict[str, list[tuple[float, ...]]] = {name: [] for name in found}
        for _ in range(rounds):
            for name, (port, _process) in found.items():
                received = uvloop.run(requests(port, CHAT, streams=STREAMS, each=3, tokens=50, interval=0.02))
                seen[name].append(
                    (*(np.percentile(received.ttft, [50, 99]) * 1e3), *(np.percentile(received.jitter, [50, 99]) * 1e3))
                )
        for name, values in seen.items():
            own = [median(column) for column in zip(*values, strict=True)]
            added = [
                median(mine - theirs for mine, theirs in zip(column, base, strict=True))
                for column, base in zip(zip(*values, strict=True), zip(*seen["direct"], strict=True), strict=True)
            ]
            words = ("TTFT median", "TTFT p99", "jitter median", "jitter p99")
            shown = ", ".join(
                f"{word} {one:.2f} (+{more:.2f})" for word, one, more in zip(words, own, added, strict=True)
            )
            print(f"{name}: {shown} ms")


def _processor_s(process: psutil.Process) -> float:
    everyone = [process, *process.children(recursive=True)]
    return float(sum(sum(one.cpu_times()[:2]) for one in everyone))


def load(names: list[str]) -> None:
    """Print tokens per second of processor time, with the tokens sent as fast as they are taken, and paced."""
    with arms(names) as found:
        for name, (port, process) in found.items():
            if process is None:
                continue
            parts = []
            for what, each, tokens, interval in (("saturated", 2, 3000, 0.0), ("paced", 1, 400, 0.005)):
                before = _processor_s(process)
                received = uvloop.run(
                    requests(port, CHAT, streams=STREAMS, each=each, tokens=tokens, interval=interval)
                )
                spent = max(1e-9, _processor_s(process) - before)
                parts.append(f"{what} {received.tokens / spent:,.0f} tokens/s of processor time")
            print(f"{name}: {', '.join(parts)}")


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
        candidates = ["aiohttp", "aiohttp-uvloop", "httpx-uvloop", "httpx2-uvloop"]
        latency(candidates, 3)
        load(candidates)
    if what in {"latency", "all"}:
        latency(words[1:] or others)
    if what in {"load", "all"}:
        load(words[1:] or others)
    if what in {"memory", "all"}:
        memory(int(words[1]) if words[1:] else 100_000)


if __name__ == "__main__":
    main(sys.argv[1:])
