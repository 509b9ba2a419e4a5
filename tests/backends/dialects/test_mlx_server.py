"""The mlx-server backend: the real mlx_lm.server in both arms, and servers that fail as real ones do."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from gatekeeper.backends.dialect import Counters
from gatekeeper.backends.server_requests import Server
from gatekeeper.backends.workers import mlx_tap
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import setting
from tests.backends.conftest import DRAFTING, MODELS, PLAIN, SharedBackend, make_request
from tests.builders.conversations import held, resumed
from tests.builders.golden_words import says
from tests.builders.waiting import until

pytestmark = pytest.mark.mlx
WORKLOADS = ("json", "code", "list", "prose", "random", "tools")


@pytest.fixture(scope="module")
def shared(shared_backend: Callable[[str], SharedBackend]) -> SharedBackend:
    return shared_backend("mlx-server")


@pytest.mark.parametrize("draft_tokens", [pytest.param(1, marks=pytest.mark.nightly), 4])
def test_the_tap_counts_what_the_worker_counts(
    shared: SharedBackend, shared_backend: Callable[[str], SharedBackend], draft_tokens: int
) -> None:
    """For the same requests the server's tap and the worker count exactly the same rounds."""
    which = setting(draft="little-draft", num_draft_tokens=draft_tokens)
    worker, server = shared_backend("mlx").system(DRAFTING), shared.system(DRAFTING)

    counted, tapped = (
        [system.answer(make_request(name, which)).rounds for name in WORKLOADS] for system in (worker, server)
    )

    assert None not in counted
    assert [replace(rounds, proposals="", chosen="") for rounds in counted if rounds is not None] == tapped


def settled(system: Server) -> Counters:
    """Return the counters once they stand still: a request of the test before may still be counted."""
    counters = system.counters()
    while True:
        time.sleep(0.5)
        before, counters = counters, system.counters()
        if counters is not None and counters == before:
            return counters


def test_the_tap_sums_the_whole_traffic(shared: SharedBackend) -> None:
    """The server's counters grow by every answer's rounds, also without usage; plain answers have none."""
    system = shared.system(DRAFTING)
    assert isinstance(system, Server)
    before = settled(system)

    def gained(drafted: int) -> Counters:
        """Wait until so many draft tokens are counted: a request is, once its last byte was sent."""
        until(lambda: ((system.counters() or before).since(before).drafted or 0) >= drafted)
        now = system.counters()
        assert now is not None
        return now.since(before)

    rounds = system.answer(make_request("json", DRAFTING)).rounds
    assert rounds is not None
    counted = gained(rounds.drafted)
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8})
    client = HTTPConnection(system.root.removeprefix("http://"), timeout=60)
    client.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    client.getresponse().read()

    assert (rounds.rounds, rounds.drafted, rounds.accepted) == (counted.rounds, counted.drafted, counted.accepted)
    assert (gained(rounds.drafted + 1).drafted or 0) > rounds.drafted


def test_a_broken_model_is_an_input_error(tmp_path: Path) -> None:
    """A server that listens but cannot load its model is an error at start, with the end of its log."""
    broken = tmp_path / "broken"
    shutil.copytree(MODELS["little-target"], broken)
    os.truncate(broken / "model.safetensors", 100_000)
    backend = SharedBackend("mlx-server", tmp_path)
    backend.backend._models = {**MODELS, "little-target": broken}  # type: ignore[attr-defined]

    with pytest.raises(InputError) as caught:
        backend.backend.start(PLAIN)
    says("backends", "a broken model is an input error", caught.value.message)

    assert "last lines of" in caught.value.hint


def test_a_strange_mlx_lm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tap names every hook it misses and does not start."""
    server = __import__("mlx_lm.server").server
    monkeypatch.delattr(server.APIHandler, "completion_usage_response")
    monkeypatch.setattr(server, "stream_generate", lambda model: model)

    with pytest.raises(SystemExit) as caught:
        mlx_tap.install()

    assert "APIHandler.completion_usage_response" in str(caught.value)
    assert "stream_generate(draft_model)" in str(caught.value)


def test_a_plain_server_that_drafts_is_at_fault(tmp_path: Path) -> None:
    """A plain command that loads the draft drafts: the tap's counts show it, and the answer is no baseline."""
    tap = (
        sys.executable,
        "-P",
        "-m",
        "gatekeeper.backends.workers.mlx_tap",
        "--model",
        "{target}",
        "--port",
        "{port}",
    )
    command = [*tap, "--draft-model", str(MODELS["little-draft"])]
    backend = SharedBackend("mlx-server", tmp_path, command=command, plain_command=command).backend

    with backend.start(PLAIN) as system:
        answer = system.answer(make_request("json", PLAIN))

    assert (answer.fault or "").startswith("not plain: ")


def test_turns_of_a_conversation_resume_the_turn_before(shared: SharedBackend) -> None:
    """As deployed, each later turn of either arm finds the prompt of the turn before in the server's cache."""
    answers = held(shared.backend, DRAFTING)

    assert {None} == {answer.answer.fault for answer in answers}
    assert {"plain": [True] * 2, "candidate": [True] * 2} == resumed(answers)
