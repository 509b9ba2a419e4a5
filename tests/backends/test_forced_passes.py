"""Forced passes of the real mlx-lm: the target reads an answer in one pass, and parts where it was not its own."""

from collections.abc import Callable

import pytest

from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.core.interfaces import DecodeRequest, ForcedPass
from tests.backends.conftest import DRAFTING, PLAIN, SharedBackend, make_request

pytestmark = pytest.mark.mlx

WIDTH = 5
"""Tokens that a pass reads at once."""


@pytest.fixture(scope="module")
def system(shared_backend: Callable[[str], SharedBackend]) -> Worker:
    worker = shared_backend("mlx").system(DRAFTING)
    assert isinstance(worker, Worker)
    return worker


def tokens_of(system: Worker, request: DecodeRequest) -> tuple[int, ...]:
    return tuple(arrival.token_id or 0 for arrival in system.answer(request).arrivals)


def forced(system: Worker, request: DecodeRequest, tokens: tuple[int, ...]) -> ForcedPass:
    forced_pass = system.force(request, tokens, WIDTH)
    assert forced_pass is not None
    return forced_pass


@pytest.mark.parametrize("setting", [PLAIN, DRAFTING], ids=["plain", "drafting"])
@pytest.mark.parametrize("which", ["json", "prose"])
def test_an_answer_of_the_target_is_its_own(
    system: Worker, setting: tuple[tuple[str, object], ...], which: str
) -> None:
    """The target parts from no token of what it wrote, plainly or with a draft, and ends where the answer did."""
    request = make_request(which, setting)
    tokens = tokens_of(system, request)

    assert ForcedPass((), ended=True) == forced(system, request, tokens)
    assert len(tokens) > 8


def test_a_replaced_token_is_seen(system: Worker) -> None:
    """The target parts at a token that was replaced, names its own, and says by how much it preferred that."""
    request = make_request("json", PLAIN)
    tokens = tokens_of(system, request)
    place = len(tokens) // 2
    changed = (*tokens[:place], tokens[place] - 1, *tokens[place + 1 :])

    first = forced(system, request, changed).parted[0]

    assert (place, tokens[place]) == first[:2]
    assert (first.gap or 0) >= (system.logit_gap(request, tokens[:place]) or 0) > 1


def test_an_answer_that_ends_early_is_seen(system: Worker) -> None:
    """An answer cut short before its stop token, and one that goes on after it, did not end as plain decoding does."""
    request = make_request("json", PLAIN)
    tokens = tokens_of(system, request)

    assert not forced(system, request, tokens[:-1]).ended
    assert not forced(system, request, (*tokens, tokens[0])).ended


def test_an_answer_at_its_limit_has_ended(system: Worker) -> None:
    """An answer of max_tokens tokens without a stop token ends where plain decoding does."""
    request = make_request("prose", PLAIN, max_tokens=5)
    tokens = tokens_of(system, request)

    assert (5, ForcedPass((), ended=True)) == (len(tokens), forced(system, request, tokens))


def test_a_prompt_that_cannot_be_read_shows_nothing(system: Worker) -> None:
    """Where mlx-lm raises, nothing is known, and the worker keeps running."""
    request = make_request("json", PLAIN)
    senseless = request.canary.model_copy(update={"messages": ({"role": "user", "content": [17]},)})

    assert system.force(DecodeRequest(senseless, PLAIN, request.sampling), (1, 2), WIDTH) is None
    assert forced(system, request, tokens_of(system, request)).ended
