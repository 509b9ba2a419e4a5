"""The behaviour that all backends have in common, tested on each of them with its real program."""

import json
import os
import signal
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import psutil
import pytest

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, setting
from tests.backends.conftest import DRAFTING, PLAIN, SharedBackend, canary, make_request

BACKENDS = (
    "scripted",
    pytest.param("mlx", marks=pytest.mark.mlx),
    pytest.param("mlx-server", marks=pytest.mark.mlx),
    pytest.param("worker", marks=pytest.mark.mlx),
)
ARMS = (pytest.param(PLAIN, id="plain"), pytest.param(DRAFTING, id="drafting"))
Opened = Callable[[str], SharedBackend]


@pytest.fixture(params=BACKENDS)
def shared(request: pytest.FixtureRequest, shared_backend: Opened) -> SharedBackend:
    return shared_backend(request.param)


@cache
def answered(shared: SharedBackend, name: str, which: Any, **sampling: Any) -> Answer:
    """Answer a greedy request once: what each test holds of it, it holds of the same answer."""
    return shared.system(which).answer(make_request(name, which, **sampling))


@pytest.mark.parametrize("which", ARMS)
@pytest.mark.parametrize("name", ["json", "list", pytest.param("prose", marks=pytest.mark.nightly)])
def test_both_arms_answer(shared: SharedBackend, name: str, which: Any) -> None:
    """An ordinary answer is complete, its arrivals lie in order, and hold all of its tokens, or none a number."""
    answer = answered(shared, name, which)

    assert (None, True, True) == (answer.fault, bool(answer.text), answer.finish in {"stop", "length"})
    times = [answer.sent_ns, *(arrival.at_ns for arrival in answer.arrivals), answer.ended_ns]
    assert sorted(times) == times
    assert answer.sent_ns < answer.arrivals[0].at_ns
    assert answer.output_tokens is not None
    assert answer.prompt_tokens
    counts = [arrival.tokens for arrival in answer.arrivals]
    if None in counts:
        assert {None} == set(counts)
        assert answer.output_tokens != len(counts)
    else:
        # Over HTTP the token that ends an answer may have no text, and so no arrival; the canary of JSON has none such.
        silent = answer.output_tokens - sum(counts)  # type: ignore[arg-type]
        assert silent in ({0} if name == "json" else {0, 1})


@pytest.mark.parametrize("name", ["json", pytest.param("code", marks=pytest.mark.nightly), "prose", "tools"])
def test_greedy_arms_answer_the_same(shared: SharedBackend, name: str) -> None:
    """At temperature 0 drafting changes when tokens come, never which."""
    plain, drafting = answered(shared, name, PLAIN), answered(shared, name, DRAFTING)

    def content(answer: Answer) -> Any:
        calls = [call["function"] for call in answer.tool_calls]
        return answer.text, calls, answer.output_tokens, [arrival.token_id for arrival in answer.arrivals]

    if Sight.TOKEN_IDS in shared.backend.sight:
        assert content(plain) == content(drafting)
    else:
        assert content(plain)[:3] == content(drafting)[:3]


@pytest.mark.parametrize("max_tokens", [1, 5, 96])
def test_rounds_add_up(shared: SharedBackend, max_tokens: int) -> None:
    """Every round yields the accepted tokens and one more, which the last may lack; plain decoding has no rounds."""
    answer = answered(shared, "prose", DRAFTING, max_tokens=max_tokens)
    plain = answered(shared, "prose", PLAIN, max_tokens=max_tokens)

    rounds = answer.rounds
    assert rounds is not None
    assert answer.output_tokens is not None
    assert rounds.accepted + rounds.rounds - answer.output_tokens in {0, 1}
    assert rounds.accepted <= rounds.drafted <= 4 * rounds.rounds
    assert rounds.accepted == sum(rounds.accepted_by_position)
    assert all(
        accepted <= tried for accepted, tried in zip(rounds.accepted_by_position, rounds.tried_by_position, strict=True)
    )
    assert plain.rounds is None


@pytest.mark.parametrize("which", ARMS)
def test_the_limit_holds(shared: SharedBackend, which: Any) -> None:
    """An answer stops at max_tokens with `length`; a knob wins over the canary, the canary over the sampling."""
    system = shared.system(which)
    own_limit = canary("prose").model_copy(update={"max_tokens": 5})
    limited = setting(**dict(which), max_tokens=3)

    answers = [
        system.answer(make_request("prose", which, max_tokens=7)),
        system.answer(DecodeRequest(own_limit, which, SamplingParameters(max_tokens=7))),
        system.answer(DecodeRequest(own_limit, limited, SamplingParameters(max_tokens=7))),
    ]

    lengths = [(7, "length"), (5, "length"), (3, "length")]
    assert lengths == [(answer.output_tokens, answer.finish) for answer in answers]


@pytest.mark.parametrize("which", ARMS)
def test_tools_are_called(shared: SharedBackend, which: Any) -> None:
    """A tool call has the form of the OpenAI API, and is not text."""
    expect = canary("tools").expect
    assert expect is not None
    assert expect.tool_call is not None

    answer = answered(shared, "tools", which)

    call_expected = (expect.tool_call.name, {name: values[0] for name, values in expect.tool_call.arguments.items()})
    assert [call_expected] == [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in answer.tool_calls
    ]
    nothing_else = ("tool_calls", "")
    assert nothing_else == (answer.finish, answer.text.strip())


def kill(pids: tuple[int, ...]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_death_is_a_fault(shared: SharedBackend, tmp_path: Any) -> None:
    """A death is a fault; a new system answers; closing twice is safe, no process is left, and then all is a fault."""
    name = shared.backend.name
    script = {"faults": [{"answer": 1, "fault": "die"}]}
    more: dict[str, dict[str, Any]] = {"scripted": {"script": script}, "worker": {"command": shared.written.command}}
    doomed = SharedBackend(name, tmp_path, **more.get(name, {}))
    with doomed.backend.start(DRAFTING) as system:
        for pid in system.pids():
            # Stopped first, so that it is killed during the request.
            os.kill(pid, signal.SIGSTOP)
        killer = threading.Timer(0.3, kill, [system.pids()])
        killer.start()
        first = system.answer(make_request("prose", DRAFTING))
        killer.join()
        second = system.answer(make_request("prose", DRAFTING))

        assert first.fault is not None
        assert "died: signal 9" in first.fault
        assert second.fault is not None
        assert not system.alive()

    fresh = doomed.backend.start(DRAFTING)
    pids, alive = fresh.pids(), fresh.alive()
    answer = fresh.answer(make_request("list", DRAFTING))
    fresh.close()
    fresh.close()

    assert (None, True, False) == (answer.fault, alive, fresh.alive())
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert fresh.answer(make_request("list", DRAFTING)).fault is not None


def test_the_wrong_draft_is_our_mistake(shared: SharedBackend) -> None:
    """A request for a draft that the system does not hold is an error of the caller, so it raises."""
    lighter = setting(draft="little-draft-lite", num_draft_tokens=4)

    with pytest.raises(GatekeeperError, match="little-draft-lite"):
        shared.system(DRAFTING).answer(make_request("list", lighter))


def test_a_backend_has_versions(shared: SharedBackend) -> None:
    """Every backend has versions for the manifest, none of them empty."""
    versions = shared.backend.versions()

    assert versions
    assert all(versions.values())
