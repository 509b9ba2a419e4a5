"""The proxy before two real servers of llama.cpp, one with the little draft and one without."""

import json
from pathlib import Path

import httpx2
import pytest

from gatekeeper.backends.server_backend import open_server
from gatekeeper.backends.server_requests import Server
from gatekeeper.core.records import setting
from gatekeeper.core.slo.subject_table import Subject
from tests.builders.deployment import CERTIFIED, Deployed
from tests.builders.proxy_process import Relay, proxy
from tests.builders.real_programs import llama_server
from tests.builders.waiting import until
from tools import write_gguf

pytestmark = [pytest.mark.timeout(240), pytest.mark.whole]


def drafted_tokens(url: str) -> int:
    """Return how many tokens a server has drafted for one more answer."""
    body = {"messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 16}
    timings = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["timings"]
    return int(timings.get("draft_n", 0))


def test_two_real_servers_of_llama_cpp_are_routed_as_the_guide_says(tmp_path: Path) -> None:
    """A certified request is drafted, one at another temperature is not, and the answers themselves say so."""
    program, models = llama_server(), tmp_path / "models"
    write_gguf.main([str(models)])
    subject = Subject(
        backend="llama-server", target="little-target", drafts=["little-draft"], program=[program],
        args=["--threads", "1", "--ctx-size", "2048", "--parallel", "1"],
    )  # fmt: skip
    files = {name: models / f"{name}.gguf" for name in ("little-target", "little-draft")}
    backend = open_server(subject, models=files, base=tmp_path, logs=tmp_path / "logs")
    conditions = {"backend": "llama-server", "target": "big", "prompt_cache": "off", "concurrency": 1, "max_tokens": 64}
    guards = [{"metric": "error_rate", "at_most": 0.5, "for": 60.0}]
    watch = {"interval": 0.2, "duty": 0.5, "missing_for": 36000.0, "canaries": 1}
    with (
        backend.start(setting(draft="little-draft", num_draft_tokens=4)) as server,
        backend.start(setting(draft=None)) as plain,
        # The run of this test froze no models: behind a relay none are seen that could differ from it.
        Relay(port_of(server)) as relay,
        Relay(port_of(plain)) as plain_relay,
    ):
        url, plain_url = (f"http://127.0.0.1:{each.port}" for each in (relay, plain_relay))
        assert drafted_tokens(url) > 0 == drafted_tokens(plain_url)
        deployed = Deployed.served(tmp_path, url, "llama-server", served_model_name="org/target")
        certified = CERTIFIED | {"conditions": conditions}
        deployed.policy(guards=guards, watch=watch, proxy={"default": "easy", "holdout": 0.01}, **certified)
        options = ("--url", url, "--plain-url", plain_url)
        with proxy(tmp_path / "policy.toml", tmp_path / "run", tmp_path / "slo.toml", *options) as (process, address):
            until(lambda: looks(tmp_path) >= 2 or process.poll() is not None)
            assert process.poll() is None, address
            routed = [ask(address, temperature=0, content=f"Say {number}.") for number in range(3)]
            warm = ask(address, temperature=0.7, content="Say it.")

    assert ("plain", 0) == warm
    assert any(route == "speculative" and drafted > 0 for route, drafted in routed)
    assert all((route == "speculative") == (drafted > 0) for route, drafted in routed)


def port_of(server: Server) -> int:
    return int(str(server.root).rpartition(":")[2])


def ask(url: str, *, temperature: float, content: str) -> tuple[str, int]:
    """Return the route of a request and how many tokens the server says it drafted for the answer."""
    body = {"messages": [{"role": "user", "content": content}], "temperature": temperature, "model": "org/target"}
    response = httpx2.post(f"{url}/v1/chat/completions", json={**body, "max_tokens": 16}, timeout=60)
    timings = response.json().get("timings", {})
    return response.headers["x-gatekeeper-route"], int(timings.get("draft_n", 0))


def looks(path: Path) -> int:
    """Return how many rounds the watch has finished."""
    log = path / "watch.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(json.loads(line)["kind"] == "look" for line in lines)
