"""The worked example of the README: the real mlx_lm.server, the little pair, and what goes wrong with them."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import tomli_w

from gatekeeper.backends.launch_line import shown_environment
from gatekeeper.backends.listening_process import free_port
from gatekeeper.core.hidden_keys import Address
from gatekeeper.live.running.deployed_server import check_server
from tests.builders import watched_server
from tests.builders.deployment import seal
from tests.builders.real_pair import promoted_run

pytestmark = [pytest.mark.mlx, pytest.mark.alone]

ROOT = Path(__file__).parents[2]
GUARDS = [
    {"metric": "acceptance_rate", "at_least": 0.5, "for": 2.0, "why": "wrong every other time is the wrong draft"},
    {"metric": "decode_throughput", "at_least": 1.0, "for": 2.0, "why": "slower than a person reads"},
    {"metric": "error_rate", "at_most": 0.5, "for": 2.0},
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return promoted_run(tmp_path / "run", guards=GUARDS)


@pytest.mark.nightly
@pytest.mark.timeout(600)  # servers that start, and a watch that judges: each has minutes of its own
@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        ("draft", "was started with .*little-draft-bad, which was not certified"),
        ("slow", "decode_throughput: .* tok/s"),
    ],
)
def test_speculation_is_turned_off_while_it_is_watched(tmp_path: Path, run: Path, case: str, pattern: str) -> None:
    """A real server's draft is swapped, or it becomes slow: speculation is off, with the reason in the log."""
    folder = tmp_path / "watch"
    folder.mkdir()

    because = watched_server.spoil(case, folder, run)

    assert re.search(pattern, because), because


CONDITIONS = {
    "backend": "mlx-server",
    "target": "../models/little-target",
    "prompt_cache": "off",
    "concurrency": 1,
    "longest_prompt": 43,
    "max_tokens": 40,
}
LAUNCH = (
    "python -P -m gatekeeper.backends.workers.mlx_tap --model ../models/little-target --host 127.0.0.1 --port {port}"
)
LAUNCH += " --draft-model ../models/little-draft --prompt-cache-size 0"


def of_server(run: Path, *options: str, tapped: bool = True) -> dict[str, tuple[str, str]]:
    """Return what `admit --url` sees of a real mlx_lm.server with the little pair and these options."""
    policy = tomllib.loads((run / "policy.toml").read_text())
    policy |= {"conditions": CONDITIONS}
    policy |= {"launch": [{"workloads": ["json"], "speculation": True, "command": LAUNCH.split()}]}
    (run / "policy.toml").write_text(tomli_w.dumps(policy))
    seal(run)
    port = free_port()
    with watched_server.served("little-draft", port, options, tapped=tapped):
        server = check_server(run, watched_server.SLO, Address(f"http://127.0.0.1:{port}"))
    return {part.part: (part.outcome, part.detail) for part in server}


@pytest.mark.timeout(600)
def test_the_certified_server_is_as_certified(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real mlx_lm.server, launched as the policy says, contradicts nothing; what it does not tell is listed."""
    for name in shown_environment(os.environ):  # such as the LLAMA_SERVER of other tests: the policy has none
        monkeypatch.delenv(name)

    parts = of_server(run, "--prompt-cache-size", "0")

    as_certified = {part for part, (outcome, _) in parts.items() if outcome == "as certified"}
    assert {"models", "launch line", "environment", "prompt cache", "drafted tokens"} == as_certified
    assert {"sampling", "load", "context", "versions"} == {*parts} - as_certified
    outcome, detail = parts["context"]
    assert ("not checked", True) == (outcome, "83 tokens" in detail)


@pytest.mark.timeout(600)
def test_a_stock_server_with_its_cache_on_is_found(run: Path) -> None:
    """mlx_lm.server with a draft and its prompt cache on gives wrong answers: its process and its own count show it."""
    parts = of_server(run, tapped=False)

    for part in ("launch line", "prompt cache"):
        outcome, detail = parts[part]
        assert ("differs", True) == (outcome, "--prompt-cache-size 0" in detail)
    assert re.search(r"\d+ of \d+ prompt tokens", parts["prompt cache"][1])
