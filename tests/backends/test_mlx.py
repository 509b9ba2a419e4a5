"""The mlx backend: a real worker that dies, hangs or never starts, its logit gaps and its memory."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Answer
from tests.backends.conftest import DRAFTING, MODELS, PLAIN, ROOT, SharedBackend, make_request

pytestmark = pytest.mark.mlx

ENDLESS: dict[str, Any] = {"temperature": 50.0, "max_tokens": 800}
"""Nearly uniform draws: the stop token is as rare as any other."""


@pytest.fixture(scope="module")
def shared(shared_backend: Callable[[str], SharedBackend]) -> SharedBackend:
    return shared_backend("mlx")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(**more: Any) -> Worker:
        system = SharedBackend("mlx", tmp_path, **more).backend.start(DRAFTING)
        assert isinstance(system, Worker)
        started.append(system)
        return system

    yield start
    for worker in started:
        worker.close()


def after_some_tokens(system: Worker, number: signal.Signals) -> threading.Thread:
    """Send *number* to the worker as soon as it has given some tokens of an answer."""

    def watch() -> None:
        while system.alive() and int.from_bytes(system.heartbeat(), sys.byteorder) < 3:
            time.sleep(0.001)
        os.kill(system.pids()[0], number)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_the_greeting_is_what_is_known_of_it(
    shared: SharedBackend, shared_backend: Callable[[str], SharedBackend]
) -> None:
    """The greeting that the backend assumes is the one that the worker sends."""
    expected, greeted = shared.backend, shared_backend("worker").backend

    assert expected.sight == greeted.sight
    assert (expected.knobs, expected.shares_process) == (greeted.knobs, greeted.shares_process)
    assert expected.uncached == greeted.uncached


def test_killed_amid_an_answer(fresh: Callable[..., Worker]) -> None:
    """A worker that is killed between two tokens leaves a fault with the signal, and nothing hangs."""
    system = fresh()
    killer = after_some_tokens(system, signal.SIGKILL)

    answer = system.answer(make_request("prose", PLAIN, **ENDLESS))

    killer.join()
    died = "worker died: signal 9"
    assert died == answer.fault
    assert answer.sent_ns < answer.ended_ns
    assert not system.alive()


def test_hung_amid_an_answer(fresh: Callable[..., Worker]) -> None:
    """A worker without a token for the time limit is ended, and the fault is a timeout."""
    system = fresh(timeout=0.8)
    stopper = after_some_tokens(system, signal.SIGSTOP)

    answer = system.answer(make_request("prose", PLAIN, **ENDLESS))

    stopper.join()
    assert answer.fault is not None
    assert answer.fault.startswith("timeout")
    assert not psutil.pid_exists(system.pids()[0])


@pytest.mark.parametrize("which", ["little-target", "little-draft"])
def test_a_broken_model_is_named(tmp_path: Path, which: str) -> None:
    """A folder that cannot be loaded is an input error that names it and what to do, for target and draft."""
    broken = tmp_path / which
    shutil.copytree(MODELS[which], broken)
    os.truncate(broken / "model.safetensors", 100_000)
    backend = SharedBackend("mlx", tmp_path, {**MODELS, which: broken}).backend

    with pytest.raises(InputError) as caught:
        backend.start(DRAFTING)

    assert f"{broken}: " in caught.value.message
    assert "Download the model again" in caught.value.hint
    assert caught.value.exit_code == 2


def test_the_worker_follows_its_parent(tmp_path: Path) -> None:
    """When gatekeeper is killed the worker exits at the end of its pipe, also during an answer."""
    program = (
        "from pathlib import Path\n"
        "from tests.backends.conftest import DRAFTING, PLAIN, SharedBackend, make_request\n"
        f"system = SharedBackend('mlx', Path({str(tmp_path)!r})).backend.start(DRAFTING)\n"
        "print(system.pids()[0], flush=True)\n"
        "while True:\n"
        "    system.answer(make_request('prose', PLAIN, temperature=50.0, max_tokens=1500))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert gone(worker)


def gone(process: psutil.Process) -> bool:
    """Wait until it has ended; a zombie counts as ended."""
    for _ in range(1000):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
            process.wait(0.02)
        except psutil.TimeoutExpired:
            continue
        except psutil.NoSuchProcess:
            return True
        return True
    return False


def test_seeds_decide_what_is_drawn(shared: SharedBackend) -> None:
    """Above temperature 0 the same seed draws the same tokens, another seed others."""
    system = shared.system(DRAFTING)

    def drawn(seed: int) -> list[int | None]:
        answer = system.answer(make_request("prose", PLAIN, temperature=2.0, max_tokens=40, seed=seed))
        return [arrival.token_id for arrival in answer.arrivals]

    first, again, other_seed = drawn(1), drawn(1), drawn(2)

    assert first == again
    assert first != other_seed


def test_what_generation_raises_is_a_fault(shared: SharedBackend) -> None:
    """An exception of mlx-lm is the fault of the answer, and the worker keeps running."""
    system = shared.system(DRAFTING)
    request = make_request("prose", PLAIN)
    senseless = request.canary.model_copy(update={"messages": ({"role": "user", "content": [17]},)})

    wrong: Answer = system.answer(type(request)(senseless, PLAIN, request.sampling))
    right = system.answer(request)

    assert wrong.fault
    assert right.fault is None


def test_memory_is_reported(shared: SharedBackend) -> None:
    """Each answer has the allocator's bytes; the peak is of this answer and not below the active bytes."""
    answer = shared.system(DRAFTING).answer(make_request("json", DRAFTING))

    assert answer.memory_active is not None
    assert answer.memory_peak is not None
    weights = (MODELS["little-target"] / "model.safetensors").stat().st_size
    assert weights <= answer.memory_active <= answer.memory_peak


@pytest.mark.parametrize("arm", [PLAIN, DRAFTING], ids=["plain", "drafting"])
def test_the_prompt_has_a_time_of_its_own(shared: SharedBackend, arm: Any) -> None:
    """All tokens of the prompt but the last are read before the first is sampled, and that is not the first token."""
    answer = shared.system(DRAFTING).answer(make_request("json", arm))

    read, first = answer.claims, (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9
    assert (answer.prompt_tokens or 0) - 1 == read.prompt_tokens
    assert 0 < (read.prompt_seconds or 0) < first
