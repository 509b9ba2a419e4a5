"""The timing of one answer, on answers whose figures can be worked out on paper."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.timing import (
    acceptance_length,
    acceptance_rate,
    answer_rate,
    bursts,
    came_in_bursts,
    decode_rate,
    prefill_rate,
    ttft,
)
from gatekeeper.core.records import Answer, Claims
from tests.builders.slo import answer, claimed, counted, near


def test_ttft_is_sent_to_first_arrival() -> None:
    """
    An answer sent at 5 s whose first piece comes 0.25 s later has a TTFT of 0.25 s; one without pieces has none.
    """
    assert pytest.approx(0.25) == ttft(answer([0.25, 0.3], sent_s=5.0))
    assert ttft(answer([], ended_s=1.0)) is None


def test_decode_rate_of_plain_tokens() -> None:
    """
    Three tokens 0.1 s apart are two tokens in 0.2 s: 10 tok/s; the first one belongs to the prefill.
    """
    assert pytest.approx(10.0) == decode_rate(answer([0.1, 0.2, 0.3]))


def test_decode_rate_leaves_out_the_whole_first_round() -> None:
    """
    The first round's three tokens came out of the prefill's time; the second's three took 0.3 s: 10 tok/s, not 16.7.
    """
    rounds = answer([0.5, 0.5, 0.5, 0.8, 0.8, 0.8], drafted=[True, True, False] * 2)

    assert pytest.approx(10.0) == decode_rate(rounds)


def test_decode_rate_leaves_out_a_split_by_closeness() -> None:
    """
    Where nothing marks a round, what arrives together with the first token is its burst.
    """
    chunks = answer([0.1, 0.101, 0.102, 0.4, 0.402])

    assert pytest.approx(2 / 0.302) == decode_rate(chunks, together_s=0.01)
    assert pytest.approx(4 / 0.302) == decode_rate(chunks)


def test_decode_rate_of_chunks_with_unknown_counts() -> None:
    """
    Twelve tokens in three chunks of unknown size: the later two stand for eight, in 0.4 s.
    """
    chunks = answer([0.1, 0.3, 0.5], tokens=[None, None, None], output_tokens=12)

    assert pytest.approx(20.0) == decode_rate(chunks)


@pytest.mark.parametrize(
    "reply",
    [
        answer([], ended_s=1.0),
        answer([0.1]),
        answer([0.1, 0.1, 0.1], drafted=[True, True, False]),
        answer([0.1, 0.2], tokens=[None, None], output_tokens=None),
        answer([0.1, 0.1]),
        answer([0.1, 0.2], tokens=[5, 0]),
    ],
    ids=["nothing", "one arrival", "one round", "uncounted", "no time passed", "no tokens later"],
)
def test_an_answer_without_a_second_burst_has_no_decode_rate(reply: Answer) -> None:
    """
    What came whole, uncounted or at once has no decode speed; it is never zero or infinite.
    """
    assert decode_rate(reply) is None


def test_answer_rate_counts_from_the_request_to_the_end() -> None:
    """
    Thirty tokens in three seconds, prefill included, are 10 tok/s; no tokens or no time have no rate.
    """
    assert pytest.approx(10.0) == answer_rate(answer([1.0, 3.0], output_tokens=30))
    assert answer_rate(answer([1.0], output_tokens=None)) is None
    assert answer_rate(answer([], ended_s=0.0, output_tokens=3)) is None


def test_prefill_rate_is_by_the_servers_clock() -> None:
    """
    Fifty prompt tokens in 0.1 s are 500 tok/s, however late the first token; only the tokens that were read count.
    """
    cached = replace(answer([0.4], prompt_tokens=50), claims=Claims(prompt_tokens=20, prompt_seconds=0.1))

    assert pytest.approx(500.0) == prefill_rate(prompted(0.1))
    assert pytest.approx(200.0) == prefill_rate(cached)


@pytest.mark.parametrize("seconds", [None, 0.0, -0.1, 0.5])
def test_a_prompt_time_that_is_missing_or_impossible_gives_no_rate(seconds: float | None) -> None:
    """
    A prompt that took no time, or longer than until the first token, and one of unknown length have no rate.
    """
    assert prefill_rate(prompted(seconds)) is None
    assert prefill_rate(replace(answer([0.4]), claims=Claims(prompt_seconds=0.1))) is None


def prompted(seconds: float | None) -> Answer:
    return replace(answer([0.4], prompt_tokens=50), claims=Claims(prompt_seconds=seconds))


def test_acceptance_in_the_fields_terms() -> None:
    """
    Six of eight drafted tokens kept in two rounds: a rate of 0.75, and four tokens per round with the target's own.
    """
    reply = answer(rounds=counted(2, 8, 6))

    assert (0.75, 4.0) == (acceptance_rate(reply), acceptance_length(reply))


def test_acceptance_of_nothing_drafted_is_unknown() -> None:
    """
    No drafted token is no acceptance, not an acceptance of zero; a server's claim is not our count.
    """
    assert acceptance_rate(answer(rounds=counted(0, 0, 0))) is None
    assert acceptance_length(answer(rounds=counted(0, 0, 0))) is None
    assert acceptance_rate(answer(claims=claimed(10, 9))) is None


def test_bursts_by_rounds() -> None:
    """
    A round ends with the token the target made itself, however far its pieces lie apart; the first burst is left out.
    """
    reply = answer([0.5, 0.5, 0.5, 0.9, 0.95, 1.0], drafted=[True, True, False, True, False, False])

    assert [(near(0.4), 2), (near(0.1), 1)] == bursts(reply, 0.0)


def test_bursts_by_closeness() -> None:
    """
    Chunks closer together than the limit are one burst, whose gap runs from start to start.
    """
    reply = answer([0.1, 0.102, 0.3, 0.305, 0.31, 0.6], tokens=[1, 1, 2, 3, 1, 1])

    assert [(near(0.2), 6), (near(0.3), 1)] == bursts(reply, 0.01)


def test_a_burst_with_an_uncounted_chunk_is_uncounted() -> None:
    """
    An unknown number of tokens plus three is unknown.
    """
    reply = answer([0.1, 0.3, 0.301], tokens=[1, 3, None])

    assert [(near(0.2), None)] == bursts(reply, 0.01)


def is_close(reply: Answer, at: int, together: float) -> bool:
    """Return whether an arrival comes within the limit after the one before."""
    return (reply.arrivals[at].at_ns - reply.arrivals[at - 1].at_ns) / 1e9 < together


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 4), st.booleans()), min_size=1, max_size=30),
    st.floats(0, 0.2),
)
def test_bursts_lose_no_token_and_no_time(steps: list[tuple[float, int, bool]], together: float) -> None:
    """
    The gaps of all bursts add up to the time from the first arrival to the last burst, and their tokens to the rest.
    """
    times, at = [], 0.1
    for gap, _, _ in steps:
        at += gap
        times.append(at)
    reply = answer(times, tokens=[count for _, count, _ in steps], drafted=[flag for _, _, flag in steps])

    merged = bursts(reply, together)

    later = (at for at in range(1, len(times)) if not (steps[at - 1][2] or is_close(reply, at, together)))
    first = next(later, len(times))
    assert sum(count for _, count, _ in steps[first:]) == sum(count or 0 for _, count in merged)
    assert sum(gap for gap, _ in merged) <= times[-1] - times[0] + 1e-6
    assert all(gap >= 0 for gap, _ in merged)


def test_times_are_seconds_of_our_clock_to_the_nanosecond() -> None:
    """
    A quarter of a second is 0.25 exactly, whenever the answer was sent.
    """
    reply = answer([0.25, 0.5, 1.0], sent_s=1000.0, prompt_tokens=8)

    assert (0.25, 2 / 0.75, 3.0) == (ttft(reply), decode_rate(reply), answer_rate(reply))
    assert [(0.25, 1), (0.5, 1)] == bursts(reply, 0.0)


def test_one_later_token_is_a_rate() -> None:
    """
    Two arrivals half a second apart are one decoded token: 2 tok/s.
    """
    assert 2.0 == decode_rate(answer([0.5, 1.0]))


def test_bursts_lie_closer_together_than_the_limit() -> None:
    """
    Arrivals exactly as far apart as the limit are two bursts.
    """
    assert [(0.5, 1)] == bursts(answer([0.5, 1.0]), 0.5)


@pytest.mark.parametrize(("chunks", "tokens", "bursty"), [(5, 7, True), (5, 6, False), (5, None, False)])
def test_an_answer_in_bursts_has_more_tokens_than_bursts(chunks: int, tokens: int | None, *, bursty: bool) -> None:
    """
    Seven tokens in five bursts are more than 1.2 a burst, six are not, and an unknown number tells nothing.
    """
    reply = answer([0.1 * at for at in range(1, chunks + 1)], output_tokens=tokens)

    assert bursty == came_in_bursts(reply, 0.01)
