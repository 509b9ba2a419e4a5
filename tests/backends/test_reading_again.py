"""Answers of the real mlx-lm, read again in the rounds that verified them: on a sound engine, and on defective ones."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.replayed_rounds import ImpossibleRoundsError, round_passes
from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.core.canary import parse
from gatekeeper.core.interfaces import DecodeRequest, ReplayedRounds, SamplingParameters
from gatekeeper.core.records import Answer
from tests.backends.conftest import DRAFTING, PLAIN, ROOT, SharedBackend, make_request

pytest.importorskip("mlx_lm")
pytestmark = pytest.mark.mlx

RUN_PERTURBED = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("bench.exactness.perturbed", run_name="__main__", alter_sys=True)
"""
PERTURBED = (sys.executable, "-c", RUN_PERTURBED)
OTHER_KERNEL = ("-sbits=4", "-slogits=0.25")
"""Weights of four bits, and logits that depend on how many rows are read at once."""


@pytest.fixture(scope="module")
def system(shared_backend: Callable[[str], SharedBackend]) -> Worker:
    worker = shared_backend("mlx").system(DRAFTING)
    assert isinstance(worker, Worker)
    return worker


@pytest.fixture
def perturbed(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start the worker with another kernel, and the defect that its arguments name."""
    started: list[SharedBackend] = []

    def start(*arguments: str) -> Worker:
        started.append(
            SharedBackend("worker", tmp_path, command=[*PERTURBED, "worker", "{target}", "{draft}", *arguments])
        )
        worker = started[-1].system(DRAFTING)
        assert isinstance(worker, Worker)
        return worker

    yield start
    for backend in started:
        backend.close()


def requests(number: int) -> Iterator[DecodeRequest]:
    for name in ("prose", "code"):
        canaries = parse((ROOT / "canaries" / "little" / f"{name}.jsonl").read_text("utf-8"), name)
        for canary in canaries[: number // 2]:
            unlimited = canary.model_copy(update={"max_tokens": None})
            yield DecodeRequest(unlimited, DRAFTING, SamplingParameters(max_tokens=96))


def replayed(system: Worker, request: DecodeRequest, answer: Answer, *, twice: bool = False) -> ReplayedRounds:
    passes = round_passes(answer)
    assert passes
    reading = system.replay(request, known_tokens(answer), passes, twice=twice)
    assert reading is not None
    return reading


def is_sound(system: Worker, request: DecodeRequest) -> bool:
    """Return whether the answer to *request* fits its rounds, and the target chooses each of its tokens there."""
    answer = system.answer(request)
    assert answer.fault is None
    try:
        return not replayed(system, request, answer).parted
    except ImpossibleRoundsError:
        return False


@pytest.mark.parametrize("workload", ["json", "prose", pytest.param("random", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("max_tokens", [96, 5, 1])
def test_an_answer_is_what_its_rounds_verified(system: Worker, workload: str, max_tokens: int) -> None:
    """Every token of a greedy answer is the target's choice in the pass that verified it, to the bit."""
    request = make_request(workload, DRAFTING, max_tokens=max_tokens)

    answer = system.answer(request)
    reading = replayed(system, request, answer, twice=True)

    assert answer.rounds is not None
    assert answer.rounds.rounds == len(answer.rounds.proposals.split(";"))
    assert answer.rounds.drafted == len(answer.rounds.proposals.replace(";", " ").split())
    assert ((), True) == (reading.parted, reading.steady)
    assert reading.nll > 0


def test_a_replaced_token_is_seen(system: Worker) -> None:
    """Where another token stands than the target chose, the reading names its place and the target's token."""
    request = make_request("prose", DRAFTING)
    answer = system.answer(request)
    tokens, passes = known_tokens(answer), round_passes(answer) or ()
    place = sum(emits for emits, *_ in passes[:3]) - 1
    altered = (*tokens[:place], tokens[place] + 1, *tokens[place + 1 :])

    reading = system.replay(request, altered, passes)

    assert reading is not None
    assert (place, tokens[place]) == reading.parted[0][:2]
    assert (reading.parted[0].gap or 0) > 0


def test_sampled_tokens_have_scores(system: Worker) -> None:
    """Above temperature 0 each token gets what the target's sampling distribution makes of it."""
    request = make_request("prose", DRAFTING, max_tokens=32, temperature=0.8, top_p=0.9, seed=3)
    answer = system.answer(request)

    reading = replayed(system, request, answer)

    assert () == reading.parted
    assert len(known_tokens(answer)) == len(reading.scores)
    assert all(token <= best <= 0 for token, best, _, _ in reading.scores)


def test_both_widths_give_the_same_bits_here(system: Worker) -> None:
    """On a CPU a pass of five tokens gives the logits of five passes of one."""
    request = make_request("prose", PLAIN)
    tokens = known_tokens(system.answer(request))

    widths = system.read_widths(request, tokens, 5)

    assert widths is not None
    assert widths.gaps == widths.wide_gaps
    assert len(tokens) == len(widths.gaps)
    assert 0 < widths.unit < 1e-4
    assert widths.nll > 0


def test_another_kernel_is_no_defect(perturbed: Callable[..., Worker]) -> None:
    """Answers differ from plain decoding's by numerics, and each token is the target's choice in its own pass."""
    system = perturbed(*OTHER_KERNEL)
    differing = 0

    for request in requests(2):
        drafted, plain = (
            system.answer(DecodeRequest(request.canary, arm, request.sampling)) for arm in (DRAFTING, PLAIN)
        )
        assert not replayed(system, request, drafted).parted
        differing += drafted.text != plain.text
    widths = system.read_widths(request, known_tokens(plain), 5)

    assert differing > 0
    assert widths is not None
    assert widths.gaps != widths.wide_gaps


@pytest.mark.parametrize(
    "defect",
    [
        "unverified:0.02",
        pytest.param("dropped:0.02", marks=pytest.mark.nightly),
        pytest.param("shifted:0.05", marks=pytest.mark.nightly),
        pytest.param("stale:0.05", marks=pytest.mark.nightly),
    ],
)
def test_a_defect_is_found_under_another_kernel(perturbed: Callable[..., Worker], defect: str) -> None:
    """What an engine does wrong in few of its rounds is seen, although most answers differ by numerics alone."""
    system = perturbed(*OTHER_KERNEL, f"-sdefect={defect}")

    assert not all(is_sound(system, request) for request in requests(24))
