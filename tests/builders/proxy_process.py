"""`gatekeeper proxy` as a process, and the little pair on two real servers behind it."""

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import SHUT_WR, create_connection, socket
from typing import Any

import httpx2

from gatekeeper.backends.listening_process import free_port
from tests.builders import watched_server
from tests.builders.project_folder import ROOT
from tests.builders.real_pair import END_OF_ANSWER
from tests.builders.waiting import until

CHAT = "/v1/chat/completions"
ASKED = {
    "messages": [{"role": "user", "content": "tell a story of a calm stoat and a orchard."}],
    "temperature": 0,
}
"""As the pair was certified."""


@contextmanager
def proxy(
    policy: Path, run: Path, slo: Path, *options: str, descriptors: tuple[int, int] | None = None
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start `gatekeeper proxy` and yield its process with its address, or what it said where it ended.

    *descriptors* are the soft and the hard limit of its files and connections.
    """
    command = [sys.executable, "-m", "gatekeeper", "proxy", str(policy), "--run", str(run), "--slo", str(slo)]
    if descriptors is not None:
        soft, hard = descriptors
        command = ["sh", "-c", f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$@"', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *options], stderr=subprocess.PIPE, env=environment, text=True
    )
    assert process.stderr is not None
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if address := re.search(r"listening on (\S+)", line):
                break
        else:
            yield process, "".join(lines)
            return
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield process, address[1]
    finally:
        process.kill()
        process.wait()


class Relay(socketserver.ThreadingTCPServer):
    """Passes connections on to a port of this machine, which may change: who connects sees no server behind it."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.to, self.port = port, int(self.server_address[1])
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def finish_request(self, request: Any, *_: object) -> None:
        """Copy the bytes of one connection both ways."""
        with suppress(OSError), create_connection(("127.0.0.1", self.to)) as server:
            back = threading.Thread(target=_copy, args=(server, request), daemon=True)
            back.start()
            _copy(request, server)
            back.join()


def _copy(source: socket, to: socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            to.sendall(piece)
    with suppress(OSError):
        to.shutdown(SHUT_WR)


@dataclass
class ProxiedPair:
    """The little pair on two real servers, and a proxy before them."""

    run: Path
    url: str = ""
    process: "subprocess.Popen[str] | None" = None
    ports: dict[str, int] = field(default_factory=dict)
    servers: dict[str, ExitStack] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    client: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=120))

    def serve(self, arm: str, draft: str | None) -> None:
        """Start the server of an arm on its port, in place of the one before."""
        if arm in self.servers:
            self.servers[arm].close()
        port = self.ports.setdefault(arm, free_port())
        stack = self.servers[arm] = ExitStack()
        server = stack.enter_context(watched_server.served(draft, port))
        self.pids[arm] = server.pid
        until(lambda: self._answers(port), f"the {arm} server answers")

    def server(self, arm: str) -> str:
        """Return the address of an arm's server."""
        return f"http://127.0.0.1:{self.ports[arm]}"

    def close(self) -> None:
        """End every server."""
        self.client.close()
        for server in self.servers.values():
            server.close()

    def _answers(self, port: int) -> bool:
        with suppress(httpx2.HTTPError):
            return httpx2.post(f"http://127.0.0.1:{port}{CHAT}", json={**ASKED, "max_tokens": 1}, timeout=60).is_success
        return False

    def ask(self, body: Mapping[str, Any] | None = None, path: str = CHAT, **headers: str) -> httpx2.Response:
        """Send one request through the proxy and wait for its whole answer."""
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(self.url + path, json={**ASKED, **(body or {})}, headers=header_fields)

    def stream(self, tokens: int) -> httpx2.Response:
        """Send a request through the proxy whose answer has as many tokens; it is read with `iter_raw`."""
        body = {**ASKED, "stream": True, "max_tokens": tokens, "logit_bias": {END_OF_ANSWER: -100.0}}
        return self.client.send(self.client.build_request("POST", self.url + CHAT, json=body), stream=True)

    @property
    def records(self) -> list[dict[str, Any]]:
        lines = (self.run / "live.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["kind"] == "request"]

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait for *count* records: one is written after its answer's last byte."""
        until(lambda: len(self.records) >= count, f"{count} records")
        return self.records

    @property
    def overlay(self) -> dict[str, Any]:
        return tomllib.loads((self.run / "policy.live.toml").read_text())

    @property
    def log(self) -> list[dict[str, Any]]:
        return watched_server.entries(self.run)


@contextmanager
def served_pair(run: Path) -> Iterator[ProxiedPair]:
    """Serve the little pair twice, with its draft and without."""
    pair = ProxiedPair(run)
    try:
        pair.serve("speculative", "little-draft")
        pair.serve("plain", None)
        yield pair
    finally:
        pair.close()


@contextmanager
def proxied(pair: ProxiedPair, *options: str, slo: Path = watched_server.SLO) -> Iterator[ProxiedPair]:
    """Run a proxy before both servers, from the end of its first round on."""
    addresses = ("--url", pair.server("speculative"), "--plain-url", pair.server("plain"))
    with proxy(pair.run / "policy.toml", pair.run, slo, *addresses, *options) as (pair.process, pair.url):
        assert pair.process.poll() is None, pair.url
        until(lambda: any(entry["kind"] == "look" for entry in pair.log), "the first round of the watch")
        yield pair


@contextmanager
def proxied_pair(run: Path, *options: str) -> Iterator[ProxiedPair]:
    """Serve the little pair twice, and run a proxy before it."""
    with served_pair(run) as pair, proxied(pair, *options):
        yield pair
