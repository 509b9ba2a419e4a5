"""The whole command, as a process between real servers: its start, two on one policy, its end."""

import json
import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest

from tests.builders.deployment import CERTIFIED, Answering, Deployed
from tests.builders.proxy_process import proxy
from tests.builders.waiting import until

pytestmark = [pytest.mark.timeout(240), pytest.mark.whole]
GUARD = {"metric": "error_rate", "at_most": 0.5, "for": 60.0}
ONCE = {"interval": 3600.0, "missing_for": 36000.0, "canaries": 1}


def start(deployed: Deployed, *options: str) -> AbstractContextManager[tuple["subprocess.Popen[str]", str]]:
    return proxy(deployed.path / "policy.toml", deployed.path / "run", deployed.path / "slo.toml", *options)


def chat(url: str, content: str = "x", **headers: str) -> tuple[bytes, str]:
    body = {"messages": [{"role": "user", "content": content}], "stream": True, "temperature": 0, "model": "org/target"}
    response = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    return response.content, response.headers["x-gatekeeper-route"]


def test_one_command_watches_and_routes_and_ends_cleanly(tmp_path: Path) -> None:
    """It routes by policy and overlay; a second proxy and a taken port are refused; SIGTERM ends with code 0."""
    with Answering() as server, Answering() as plain:
        plain.drafted = plain.accepted = 0
        deployed = Deployed.served(tmp_path, server.url)
        deployed.policy(guards=[GUARD], watch=ONCE, proxy={"default": "easy", "holdout": 0.01}, **CERTIFIED)
        options = ("--url", server.url, "--plain-url", plain.url)
        with start(deployed, *options) as (process, url):
            until(lambda: (tmp_path / "policy.live.toml").exists() or process.poll() is not None)
            assert process.poll() is None
            # The holdout draws whole conversations: each request begins another one.
            routes = {chat(url, content)[1] for content in ("x", "y", "z")}
            off = chat(url, **{"x-gatekeeper-workload": "other"})[1]
            metrics = httpx2.get(f"{url}/metrics", timeout=60).text
            own_files = (*options, "--overlay", str(tmp_path / "own.toml"), "--log", str(tmp_path / "own.jsonl"))
            with start(deployed, *own_files) as (second, printed_second):
                code = second.wait(60)
            records = ("--records", str(tmp_path / "records.jsonl"))
            with start(deployed, *own_files, *records, "--listen", url.removeprefix("http://")) as (third, refused):
                code_of_third = third.wait(60)
            process.send_signal(signal.SIGTERM)

            assert 0 == process.wait(60)

    assert ("plain", 3, 2) == (off, code, code_of_third)
    assert 'gatekeeper_watch_speculation{slo="deployed",workload="easy"} 1.0\n' in metrics
    assert "\ngatekeeper_proxy_in_flight " in metrics
    assert f"process {process.pid}" in printed_second
    assert f"{url.removeprefix('http://')}: Address already in use" in refused
    assert "Unclosed" not in refused
    assert "speculative" in routes
    assert "ended" in deployed.overlay
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert ["begun", "request", "request", "request", "request"] == [kind for kind in kinds if kind != "holdout"][:5]
    assert "ended" == kinds[-1] or "holdout" == kinds[-1]


def log(path: Path) -> list[str]:
    """Return the kinds of the entries of the watch's log."""
    if not (path / "watch.jsonl").exists():
        return []
    return [json.loads(line)["kind"] for line in (path / "watch.jsonl").read_text().splitlines()]


@pytest.mark.nightly
def test_a_server_that_cannot_decode_plainly_needs_a_second_one(tmp_path: Path) -> None:
    """Without a field that switches drafting and without --plain-url nothing is served: exit code 2."""
    with Answering() as server:
        deployed = Deployed.served(tmp_path, server.url)
        with start(deployed, "--url", server.url) as (process, output):
            assert 2 == process.wait(60)

    assert "--plain-url" in output
    assert not os.path.lexists(tmp_path / "policy.live.toml")
