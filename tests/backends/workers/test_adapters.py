"""The adapters around Python packages, each with a stand-in of the package's interface; dflash itself where it is."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.backends.worker_backend.worker_backend import WorkerBackend
from gatekeeper.backends.workers.zlab_dflash import DflashWorker
from gatekeeper.core.records import Answer, setting
from tests.backends.conftest import MODELS, PLAIN, ROOT, SharedBackend, make_request
from tests.builders.golden_words import says

pytestmark = pytest.mark.mlx

STAND_INS = ROOT / "tests" / "builders" / "stand_ins"
LENGTH = {"zlab-dflash": "block_size", "redrafter": "num_draft_tokens"}
Opened = Callable[[str], Worker]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    systems: dict[str, Worker] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(STAND_INS))

        def get(name: str) -> Worker:
            if name not in systems:
                backend = SharedBackend(name, tmp_path_factory.mktemp(name)).backend
                assert isinstance(backend, WorkerBackend)
                systems[name] = backend.start(setting(draft="little-draft"))
            return systems[name]

        yield get
        for system in systems.values():
            system.close()


@pytest.fixture(params=LENGTH)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drafting(name: str, length: int) -> Any:
    return setting(draft="little-draft", **{LENGTH[name]: length})


def tokens(answer: Answer) -> list[int | None]:
    return [arrival.token_id for arrival in answer.arrivals]


@pytest.mark.parametrize(
    "workload",
    ["json", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("list", "prose"))],
)
def test_both_arms_answer_the_same(opened: Opened, name: str, workload: str) -> None:
    """Drafting and plain answers have the same tokens and text, with rounds on one side and none on the other."""
    system = opened(name)

    plain, candidate = (system.answer(make_request(workload, which)) for which in (PLAIN, drafting(name, 4)))

    assert (None, None) == (plain.fault, candidate.fault)
    assert (tokens(plain), plain.text, plain.finish) == (tokens(candidate), candidate.text, candidate.finish)
    assert len(tokens(plain)) == plain.output_tokens == candidate.output_tokens
    assert plain.rounds is None
    assert candidate.rounds is not None
    assert plain.prompt_tokens


@pytest.mark.parametrize("length", [3, 5])
def test_rounds_are_what_the_package_did(opened: Opened, name: str, length: int) -> None:
    """Rounds, proposals and acceptance are those of the stand-in's pattern; tokens of a round arrive together."""
    drafted = length - 1 if name == "zlab-dflash" else length
    limit = 31
    answer = opened(name).answer(make_request("prose", drafting(name, length), max_tokens=limit))

    expected = pattern(drafted, limit, shrinks=name == "zlab-dflash")
    assert answer.rounds is not None
    assert expected == (answer.rounds.rounds, answer.rounds.drafted, answer.rounds.accepted)
    assert (limit, "length") == (answer.output_tokens, answer.finish)
    assert expected[2] == sum(bool(arrival.drafted) for arrival in answer.arrivals)


def pattern(drafted: int, limit: int, *, shrinks: bool) -> tuple[int, int, int]:
    """Count what the stand-ins do: the prefill's token, then n modulo (drafted + 1) accepted ones and one more."""
    rounds = proposed = accepted = 0
    sent = 1
    while sent < limit:
        rounds += 1
        width = min(drafted, limit - sent) if shrinks else drafted
        fresh = min(rounds % (width + 1) + 1, limit - sent)
        sent, proposed, accepted = sent + fresh, proposed + width, accepted + fresh - 1
    return rounds, proposed, accepted


@pytest.mark.parametrize(
    ("which", "more", "fault"),
    [
        ("zlab-dflash", {"min_p": 0.1, "temperature": 1.0}, "cannot sample with min_p"),
        ("redrafter", {"top_p": 0.9, "temperature": 1.0}, "cannot sample with top_p"),
    ],
)
def test_what_a_package_cannot_do_is_a_fault(opened: Opened, which: str, more: Any, fault: str) -> None:
    """A sampling option that the package lacks is a fault, not ignored; the worker keeps running."""
    system = opened(which)

    wrong = system.answer(make_request("prose", drafting(which, 4), **more))
    right = system.answer(make_request("prose", drafting(which, 4)))

    assert wrong.fault is not None
    assert fault in wrong.fault
    assert right.fault is None


def test_a_block_of_one_is_a_fault(opened: Opened) -> None:
    """A block that drafts nothing would end dflash's answer after one token: it is a fault."""
    answer = opened("zlab-dflash").answer(make_request("prose", drafting("zlab-dflash", 1)))

    assert answer.fault is not None
    says("backends", "a block of one is a fault", answer.fault)


def test_plain_decoding_of_redrafter_is_greedy(opened: Opened) -> None:
    """The package's plain loop is greedy, so a plain request with a temperature is a fault."""
    answer = opened("redrafter").answer(make_request("prose", PLAIN, temperature=0.7))

    assert answer.fault is not None
    assert "greedy" in answer.fault


def test_plain_decoding_gets_its_layers_back() -> None:
    """The layers that dflash wraps for drafting are restored before plain decoding."""
    package = import_module("tests.builders.stand_ins.dflash.model_mlx")
    beat = memoryview(bytearray(8)).cast("Q")
    worker = DflashWorker(package, str(MODELS["little-target"]), str(MODELS["little-draft"]), beat, [])
    request = {"messages": [{"role": "user", "content": "hi"}], "tools": [], "max_tokens": 6, "temperature": 0.0}
    request |= dict.fromkeys(["top_p", "top_k", "min_p", "seed", "thinking"])
    layers = package._get_layers(worker._plain.model)

    hooked = []
    for which in ("d", None, "d", None):
        worker.answer({**request, "setting": {"draft": which}})
        hooked.append(sum(isinstance(layer, package.Hook) for layer in layers))

    assert [1, 0, 1, 0] == hooked
