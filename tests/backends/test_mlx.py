"""The mlx backend: a real worker that dies, hangs, or never comes up, and what it can tell beside answers."""

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

from gatekeeper.backends.worker_backend import Worker
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Answer, setting
from tests.backends.conftest import DRAFTING, MODELS, PLAIN, ROOT, Arena, ask

pytestmark = pytest.mark.mlx

ENDLESS: dict[str, Any] = {"temperature": 50.0, "max_tokens": 800}
"""Nearly uniform draws: the stop token is as rare as any other."""


@pytest.fixture(scope="module")
def shared(arena: Callable[[str], Arena]) -> Arena:
    return arena("mlx")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(**more: Any) -> Worker:
        subject = Arena("mlx", tmp_path, **more).backend.start(DRAFTING)
        assert isinstance(subject, Worker)
        started.append(subject)
        return subject

    yield start
    for one in started:
        one.close()


def once_it_speaks(subject: Worker, number: signal.Signals) -> threading.Thread:
    """Send *number* to the worker as soon as it has given some tokens of an answer."""

    def watch() -> None:
        while subject.alive() and int.from_bytes(subject.heartbeat(), sys.byteorder) < 3:
            time.sleep(0.001)
        os.kill(subject.pids()[0], number)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_the_greeting_is_what_is_known_of_it(shared: Arena, arena: Callable[[str], Arena]) -> None:
    """
    What the backend says of its worker without starting it is what the worker greets with.
    """
    known, greeted = shared.backend, arena("worker").backend

    assert known.sight == greeted.sight
    assert (known.knobs, known.shares_process) == (greeted.knobs, greeted.shares_process)
    assert known.uncached == greeted.uncached


def test_killed_amid_an_answer(fresh: Callable[..., Worker]) -> None:
    """
    A worker that is killed between two tokens leaves an answer that says by what, and nothing hangs.
    """
    subject = fresh()
    killer = once_it_speaks(subject, signal.SIGKILL)

    answer = subject.answer(ask("prose", PLAIN, **ENDLESS))

    killer.join()
    died = "worker died: signal 9"
    assert died == answer.fault
    assert answer.sent_ns < answer.ended_ns
    assert not subject.alive()


def test_hung_amid_an_answer(fresh: Callable[..., Worker]) -> None:
    """
    A worker that gives no token for the limit is ended, and the answer says it was a timeout.
    """
    subject = fresh(timeout=0.8)
    stopper = once_it_speaks(subject, signal.SIGSTOP)

    answer = subject.answer(ask("prose", PLAIN, **ENDLESS))

    stopper.join()
    assert answer.fault is not None
    assert answer.fault.startswith("timeout")
    assert not psutil.pid_exists(subject.pids()[0])


@pytest.mark.alone
def test_a_long_answer_is_no_silence(fresh: Callable[..., Worker]) -> None:
    """
    The limit is on silence, not on length: an answer far longer than it comes back whole.
    """
    subject = fresh(timeout=0.3)

    answer = subject.answer(ask("prose", PLAIN, **ENDLESS, seed=3))

    assert answer.fault is None
    assert answer.ended_ns - answer.sent_ns > 0.3e9


@pytest.mark.parametrize(
    ("which", "harm"),
    [
        ("little-target", "truncated"),
        ("little-target", "weights missing"),
        ("little-target", "config torn"),
        ("little-draft", "truncated"),
    ],
)
def test_a_broken_model_is_named(tmp_path: Path, which: str, harm: str) -> None:
    """
    A folder that cannot be loaded is an input error that names it and says what to do, for target and draft alike.
    """
    broken = tmp_path / which
    shutil.copytree(MODELS[which], broken)
    weights, config = broken / "model.safetensors", broken / "config.json"
    if harm == "truncated":
        os.truncate(weights, weights.stat().st_size // 2)
    elif harm == "weights missing":
        weights.unlink()
    else:
        config.write_text('{"model_type": "qw')
    backend = Arena("mlx", tmp_path, {**MODELS, which: broken}).backend

    with pytest.raises(InputError) as caught:
        backend.start(DRAFTING)

    assert f"{broken}: mlx-lm cannot load this model" in caught.value.message
    assert "Download the model again" in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_model_nobody_fetched_is_named(tmp_path: Path) -> None:
    """
    A name without a folder is an input error with the command that fetches it.
    """
    with pytest.raises(InputError, match="someone/else") as caught:
        Arena("mlx", tmp_path).backend.start(setting(draft="someone/else"))

    assert "hf download someone/else" in caught.value.hint


def test_a_slow_start_has_a_limit(tmp_path: Path) -> None:
    """
    A worker that is not ready in time is an input error and is gone.
    """
    before = {child.pid for child in psutil.Process().children()}

    with pytest.raises(InputError, match="within start_timeout"):
        Arena("mlx", tmp_path, start_timeout=0.01).backend.start(DRAFTING)

    assert before >= {child.pid for child in psutil.Process().children()}


def test_the_worker_follows_its_parent(tmp_path: Path) -> None:
    """
    When gatekeeper is killed the worker sees its pipe end and leaves, also in the middle of an answer.
    """
    program = (
        "from pathlib import Path\n"
        "from tests.backends.conftest import Arena, DRAFTING, PLAIN, ask\n"
        f"subject = Arena('mlx', Path({str(tmp_path)!r})).backend.start(DRAFTING)\n"
        "print(subject.pids()[0], flush=True)\n"
        "while True:\n"
        "    subject.answer(ask('prose', PLAIN, temperature=50.0, max_tokens=1500))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert gone(worker)


def gone(process: psutil.Process) -> bool:
    """Wait until it has ended; whether anybody reaps an orphan is not its affair."""
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


def test_the_gap_explains_a_choice(shared: Arena) -> None:
    """
    The gap of the target's logits after a prefix is there, never negative, and wide where the answer is copied.
    """
    subject = shared.subject(DRAFTING)
    assert isinstance(subject, Worker)
    asked = ask("json", PLAIN)
    tokens = tuple(arrival.token_id or 0 for arrival in subject.answer(asked).arrivals)

    gaps = [subject.logit_gap(asked, tokens[:length]) for length in (0, 5, 10)]

    assert all(gap is not None and gap > 1 for gap in gaps)


def test_seeds_decide_what_is_drawn(shared: Arena) -> None:
    """
    Above temperature 0 the same seed draws the same tokens, another seed others.
    """
    subject = shared.subject(DRAFTING)

    def drawn(seed: int) -> list[int | None]:
        answer = subject.answer(ask("prose", PLAIN, temperature=2.0, max_tokens=40, seed=seed))
        return [arrival.token_id for arrival in answer.arrivals]

    first, again, other = drawn(1), drawn(1), drawn(2)

    assert first == again
    assert first != other


def test_what_generation_raises_is_a_fault(shared: Arena) -> None:
    """
    A request mlx-lm cannot serve ends with its own words as the fault, and the worker lives on.
    """
    subject = shared.subject(DRAFTING)
    asked = ask("prose", PLAIN)
    senseless = asked.canary.model_copy(update={"messages": ({"role": "user", "content": [17]},)})

    wrong: Answer = subject.answer(type(asked)(senseless, PLAIN, asked.sampling))
    right = subject.answer(asked)

    assert wrong.fault
    assert right.fault is None


def test_memory_is_told(shared: Arena) -> None:
    """
    The allocator's bytes come with each answer; the peak is of this answer and not below what is held.
    """
    answer = shared.subject(DRAFTING).answer(ask("json", DRAFTING))

    assert answer.memory_active is not None
    assert answer.memory_peak is not None
    weights = (MODELS["little-target"] / "model.safetensors").stat().st_size
    assert weights <= answer.memory_active <= answer.memory_peak
