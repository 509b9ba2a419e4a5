"""The mlx-server backend: the real mlx_lm.server in both arms, and servers that fail in the ways real ones do."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.backends.workers import mlx_server_tap
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import setting
from tests.backends.conftest import DRAFTING, MODELS, PLAIN, Arena, ask

pytestmark = pytest.mark.mlx
WORKLOADS = ("json", "code", "list", "prose", "random", "tools")


@pytest.fixture(scope="module")
def shared(arena: Callable[[str], Arena]) -> Arena:
    return arena("mlx-server")


@pytest.mark.parametrize("draft_tokens", [1, 4])
def test_the_tap_counts_what_the_worker_counts(shared: Arena, arena: Callable[[str], Arena], draft_tokens: int) -> None:
    """
    For the same asks the server's tap and the in-process worker count exactly the same rounds.
    """
    which = setting(draft="little-draft", num_draft_tokens=draft_tokens)
    worker, server = arena("mlx").subject(DRAFTING), shared.subject(DRAFTING)

    counted = [[one.answer(ask(name, which)).rounds for name in WORKLOADS] for one in (worker, server)]

    assert None not in counted[0]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("which", [PLAIN, DRAFTING])
def test_many_threads_may_ask(shared: Arena, which: Any) -> None:
    """
    Concurrent asks each get their own answer and, when drafting, their own rounds.
    """
    subject = shared.subject(which)
    asks = [ask(name, which) for name in WORKLOADS]
    alone = [subject.answer(one) for one in asks]

    with ThreadPoolExecutor(len(asks)) as pool:
        together = list(pool.map(subject.answer, asks))

    def told(answers: Any) -> Any:
        return [(one.fault, one.text, one.output_tokens, one.rounds) for one in answers]

    assert told(alone) == told(together)


def test_the_prompt_cache_is_off(shared: Arena) -> None:
    """
    A repeated prompt finds nothing in the cache, unless the server was started as it would be deployed.
    """
    backend = shared.backend
    assert isinstance(backend, ServerBackend)
    cold = [shared.subject(PLAIN).answer(ask("json", PLAIN)).claims.cached_tokens for _ in range(2)]
    with backend.start(PLAIN, cache=True) as deployed:
        warm = [deployed.answer(ask("json", PLAIN)).claims.cached_tokens for _ in range(2)]

    nothing = [0, 0]
    assert nothing == cold
    assert (warm[1] or 0) > 0


def test_torn_while_many_wait(tmp_path: Path) -> None:
    """
    A server that is killed leaves a fault, with the signal, on each answer in flight.
    """
    backend = Arena("mlx-server", tmp_path).backend
    with backend.start(PLAIN) as subject, ThreadPoolExecutor(3) as pool:
        os.kill(subject.pids()[0], signal.SIGSTOP)
        killer = threading.Timer(0.3, os.kill, [subject.pids()[0], signal.SIGKILL])
        killer.start()
        faults = [one.fault for one in pool.map(subject.answer, [ask("prose", PLAIN)] * 3)]

        assert all(fault and fault.startswith("server died: signal 9") for fault in faults)
        assert not subject.alive()


def test_a_hung_server_is_a_timeout(tmp_path: Path) -> None:
    """
    A server that stops in its tracks costs one time limit and is closed all the same.
    """
    backend = Arena("mlx-server", tmp_path, timeout=0.5).backend
    with backend.start(PLAIN) as subject:
        os.kill(subject.pids()[0], signal.SIGSTOP)

        answer = subject.answer(ask("prose", PLAIN))

        assert answer.fault is not None
        assert answer.fault.startswith("timeout")
    assert not subject.alive()


def test_a_broken_model_is_an_input_error(tmp_path: Path) -> None:
    """
    A server that listens but cannot load its model is found out at start, with the tail of its log.
    """
    broken = tmp_path / "broken"
    shutil.copytree(MODELS["little-target"], broken)
    os.truncate(broken / "model.safetensors", 100_000)
    here = Arena("mlx-server", tmp_path)
    here.backend._models = {**MODELS, "little-target": broken}  # type: ignore[attr-defined]

    with pytest.raises(InputError, match="cannot serve little-target") as caught:
        here.backend.start(PLAIN)

    assert "last lines of" in caught.value.hint


def test_arguments_reach_the_server(tmp_path: Path) -> None:
    """
    What the SLO adds to the command reaches the server; one it does not know ends it at start, in its own words.
    """
    with pytest.raises(InputError, match="exit code 2") as caught:
        Arena("mlx-server", tmp_path, args=["--no-such-flag"]).backend.start(DRAFTING)

    assert "--no-such-flag" in caught.value.hint


def test_a_named_command_is_used_as_it_stands(tmp_path: Path) -> None:
    """
    A command of the SLO is filled in and run without the tap, so rounds are not forecast.
    """
    command = ["python3", "server.py", "--model", "{target}", "--draft-model", "{draft}", "--port", "{port}"]
    backend = Arena("mlx-server", tmp_path, command=command, args=["--log-level", "ERROR"]).backend
    assert isinstance(backend, ServerBackend)

    drafting = backend.command(DRAFTING, 8123, cache=False)
    plain = backend.command(PLAIN, 8123, cache=False)

    models = (str(MODELS["little-target"]), str(MODELS["little-draft"]))
    server = ("python3", "server.py", "--model", models[0])
    expected = (*server, "--draft-model", models[1], "--port", "8123", "--log-level", "ERROR")
    assert expected == drafting
    assert Sight.ROUNDS not in backend.sight
    assert str(sys.executable) == plain[0]
    assert "--draft-model" not in plain


def test_a_strange_mlx_lm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The tap names every hook it misses and does not start.
    """
    server = __import__("mlx_lm.server").server
    monkeypatch.delattr(server.APIHandler, "completion_usage_response")
    monkeypatch.setattr(server, "stream_generate", lambda model: model)

    with pytest.raises(SystemExit) as caught:
        mlx_server_tap.install()

    assert "APIHandler.completion_usage_response" in str(caught.value)
    assert "stream_generate(draft_model)" in str(caught.value)
