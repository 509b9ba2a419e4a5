"""The timing of one answer, on answers whose figures can be worked out on paper."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.timing import (
    acceptance_length,
    acceptance_rate,
    answer_rate,
    prefill_rate,
    ttft,
)
from gatekeeper.core.records import Answer, Claims
from tests.builders.slo import answer, claimed, counted


def test_ttft_is_sent_to_first_arrival() -> None:
    """An answer sent at 5 s whose first piece comes 0.25 s later has a TTFT of 0.25 s; one without pieces has none."""
    assert pytest.approx(0.25) == ttft(answer([0.25, 0.3], sent_s=5.0))
    assert ttft(answer([], ended_s=1.0)) is None


def test_answer_rate_counts_from_the_request_to_the_end() -> None:
    """Thirty tokens in three seconds, prefill included, are 10 tok/s; no tokens or no time have no rate."""
    assert pytest.approx(10.0) == answer_rate(answer([1.0, 3.0], output_tokens=30))
    assert answer_rate(answer([1.0], output_tokens=None)) is None
    assert answer_rate(answer([], ended_s=0.0, output_tokens=3)) is None


def test_prefill_rate_is_by_the_servers_clock() -> None:
    """Fifty prompt tokens in 0.1 s are 500 tok/s, however late the first token; only the tokens that were read
    count.
    """
    cached = replace(answer([0.4], prompt_tokens=50), claims=Claims(prompt_tokens=20, prompt_seconds=0.1))

    assert pytest.approx(500.0) == prefill_rate(prompted(0.1))
    assert pytest.approx(200.0) == prefill_rate(cached)


@pytest.mark.parametrize("seconds", [None, 0.0, -0.1, 0.5])
def test_a_prompt_time_that_is_missing_or_impossible_gives_no_rate(seconds: float | None) -> None:
    """A prompt that took no time, or longer than until the first token, and one of unknown length have no rate."""
    assert prefill_rate(prompted(seconds)) is None
    assert prefill_rate(replace(answer([0.4]), claims=Claims(prompt_seconds=0.1))) is None


def prompted(seconds: float | None) -> Answer:
    return replace(answer([0.4], prompt_tokens=50), claims=Claims(prompt_seconds=seconds))


def test_acceptance_in_the_fields_terms() -> None:
    """Six of eight drafted tokens kept in two rounds: a rate of 0.75, and four tokens per round with the target's
    own.
    """
    reply = answer(rounds=counted(2, 8, 6))

    assert (0.75, 4.0) == (acceptance_rate(reply), acceptance_length(reply))


def test_acceptance_of_nothing_drafted_is_unknown() -> None:
    """No drafted token is no acceptance, not an acceptance of zero; a server's claim is not our count."""
    assert acceptance_rate(answer(rounds=counted(0, 0, 0))) is None
    assert acceptance_length(answer(rounds=counted(0, 0, 0))) is None
    assert acceptance_rate(answer(claims=claimed(10, 9))) is None


def test_times_are_seconds_of_our_clock_to_the_nanosecond() -> None:
    """A quarter of a second is 0.25 exactly, whenever the answer was sent."""
    reply = answer([0.25, 0.5, 1.0], sent_s=1000.0, prompt_tokens=8)

    assert (0.25, 3.0) == (ttft(reply), answer_rate(reply))
