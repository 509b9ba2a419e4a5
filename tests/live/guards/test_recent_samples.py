"""The evidence: however long answers are and however often they come, what is kept of them is bounded."""

import pytest

from gatekeeper.core.records import Answer, Generation, HostSample, Role
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.live.guards import recent_samples
from gatekeeper.live.guards.recent_samples import RecentAnswers, RecentHost
from gatekeeper.live.running.deployed_server import CounterGain

SECOND = 10**9


def answer(at_s: float, pieces: int = 1) -> Generation:
    ended = round(at_s * SECOND)
    answered = Answer(ended - 1, ended, arrivals=(Arrival(ended, 1),) * pieces)
    return Generation("watch", f"{at_s}", "easy", "c", "candidate", (), Role.MEASURED, 0, "", 1, answered, at="")


FEW = 5000
"""As many arrivals as the test keeps: more than the answers of its first case have."""


@pytest.mark.parametrize(
    ("pieces", "most"),
    [(1, recent_samples.MAX_ANSWERS), (FEW // 10, 10), (2 * FEW, 1)],
)
def test_only_so_many_answers_are_kept(pieces: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many short answers nor a few endless ones fill the memory; the newest stay, one at the least."""
    monkeypatch.setattr(recent_samples, "MAX_ARRIVALS", FEW)
    answers = RecentAnswers(0)
    for number in range(most + 50):
        answers.add(answer(number, pieces))

    in_window = answers.within((most + 50) * SECOND, 1e9)
    assert (most, float(most + 49)) == (len(in_window), in_window[-1].answer.ended_ns / SECOND)


def test_only_so_many_samples_and_counters_are_kept() -> None:
    """A window of weeks keeps no more of the host than its limit."""
    host = RecentHost()
    for number in range(recent_samples.MAX_SAMPLES + 100):
        host.add_sample(HostSample("", number * SECOND, {}))
        host.add_gain(CounterGain(number * SECOND, 1, 1))

    now = (recent_samples.MAX_SAMPLES + 100) * SECOND
    assert (recent_samples.MAX_SAMPLES, recent_samples.MAX_COUNTER_GAINS) == (
        len(host.samples(now, 1e9)),
        len(host.counter_gains(now, 1e9)),
    )
    assert (11, 11) == (len(host.samples(now - SECOND, 10.0)), len(host.counter_gains(now - SECOND, 10.0)))
