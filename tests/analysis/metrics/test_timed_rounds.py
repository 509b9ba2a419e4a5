"""Rounds from the timing of bursts: the interval holds the truth, and what hides rounds is refused."""

import random
from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.timed_rounds import (
    TIMING_NOTE,
    PlainTiming,
    TimedRounds,
    estimate_from_timing,
    plain_timing,
    timed_rounds,
)
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.slo import Objective
from gatekeeper.core.verdict import Estimate, Missing
from tests.builders.slo import evidence, generation

TOKEN, ROUND = 0.010, 0.014
PLAIN = PlainTiming(TOKEN, 0.01, 0.0)


def speculated(rng: random.Random, rounds: int, *, drafted: int = 4, joined: bool = False) -> tuple[Answer, float]:
    """Return an answer of *rounds*, each a chunk where *joined*, and its tokens a round."""
    at, total, arrivals = 0.1, 0, []
    for _ in range(rounds):
        tokens = 1 + next((n for n in range(drafted) if rng.random() > 0.7), drafted)
        pieces = 1 if joined else tokens
        arrivals += [Arrival(round((at + n * rng.uniform(2e-5, 3e-4)) * 1e9)) for n in range(pieces)]
        total, at = total + tokens, at + ROUND * rng.lognormvariate(0, 0.1)
    arrivals.sort()
    return Answer(0, arrivals[-1].at_ns, tuple(arrivals), output_tokens=total, finish="length"), total / rounds


def plainly(rng: random.Random, tokens: int = 60) -> Answer:
    """Return a plain answer: a chunk each token."""
    at, arrivals = 0.1, []
    for _ in range(tokens):
        arrivals.append(Arrival(round(at * 1e9)))
        at += TOKEN * rng.lognormvariate(0, 0.1)
    return Answer(0, arrivals[-1].at_ns, tuple(arrivals), output_tokens=tokens, finish="length")


@pytest.mark.parametrize("joined", [False, True], ids=["a token a chunk", "a round a chunk"])
@pytest.mark.parametrize("drafted", [4, None], ids=["known", "unknown"])
def test_the_interval_holds_the_truth(*, joined: bool, drafted: int | None) -> None:
    """
    In 100 answers of 8 to 60 rounds, at least 95 intervals hold the tokens a round, and half are narrower than a sixth.
    """
    rng = random.Random(3)
    hits, widths = 0, []

    for _ in range(100):
        reply, truth = speculated(rng, rng.randrange(8, 60), joined=joined)
        rounds = timed_rounds(reply, PLAIN, drafted)
        assert isinstance(rounds, TimedRounds), rounds
        _, lo, hi = rounds.length
        hits += lo - 1e-9 <= truth <= hi + 1e-9
        widths.append((hi - lo) / truth)

    assert hits >= 95
    assert sorted(widths)[50] < 1 / 6


def flushed(reply: Answer, seconds: float) -> Answer:
    """Return *reply* as a server brings it that sends what has gathered each *seconds*."""
    slots = sorted({-(-arrival.at_ns // round(seconds * 1e9)) * round(seconds * 1e9) for arrival in reply.arrivals})
    return replace(reply, arrivals=tuple(map(Arrival, slots)))


@pytest.mark.parametrize("seconds", [0.03, 0.2, 10.0])
def test_a_server_that_buffers_is_refused(seconds: float) -> None:
    """
    Where plain tokens come together, rounds cannot be seen either: by a timer, or the whole answer at once.
    """
    rng = random.Random(4)

    timing = plain_timing([generation(flushed(plainly(rng, 300), seconds), arm="sentinel") for _ in range(20)])

    assert isinstance(timing, Missing)
    assert "buffers" in timing.because or "needed to tell rounds" in timing.because


def test_an_even_stream_is_refused() -> None:
    """
    A server that sends a token at a pace of its own hides its rounds: one token a round would be read off it.
    """
    reply, _ = speculated(random.Random(5), 40)
    at = reply.arrivals[0].at_ns
    even = tuple(Arrival(at + round(number * 0.9 * TOKEN * 1e9)) for number in range(len(reply.arrivals)))

    result = timed_rounds(replace(reply, arrivals=even), PLAIN, 4)

    assert isinstance(result, str)
    assert "pace" in result


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"output_tokens": None}, "not counted"),
        ({"output_tokens": 12}, "12 tokens"),
        ({"arrivals": (Arrival(1),)}, "one piece"),
        ({"arrivals": tuple(Arrival(at) for at in range(80))}, "all at once"),
    ],
    ids=["uncounted", "short", "one piece", "at once"],
)
def test_what_cannot_be_seen_is_said(change: dict[str, object], why: str) -> None:
    """
    Too little to fit a mixture to is a reason in words, never a figure.
    """
    reply, _ = speculated(random.Random(6), 30)

    result = timed_rounds(replace(reply, **change), PLAIN, 4)  # type: ignore[arg-type]

    assert isinstance(result, str)
    assert why in result


def test_bursts_longer_than_a_round_are_several_rounds() -> None:
    """
    With a draft length of 2 no round has 12 tokens: a server that joins rounds is refused where its chunks show it.
    """
    reply, _ = speculated(random.Random(7), 60, drafted=12)

    result = timed_rounds(reply, PLAIN, 2)

    assert isinstance(result, str)
    assert "buffers" in result


def both_arms(count: int = 12) -> tuple[list[Generation], list[Generation]]:
    rng = random.Random(8)
    candidate = [generation(speculated(rng, 30)[0], f"c-{number:03}") for number in range(count)]
    return candidate, [generation(plainly(rng), f"c-{number:03}", arm="sentinel") for number in range(count)]


@pytest.mark.parametrize(("metric", "truth"), [("acceptance_length", 2.77), ("acceptance_rate", 0.443)])
def test_an_objective_from_timing_has_a_wider_interval_and_names_its_source(metric: str, truth: float) -> None:
    """
    The estimate covers what the generator made, with the doubt about the rounds inside; the note says where it is from.
    """
    interval = estimate_from_timing(metric, evidence(*both_arms()))

    assert isinstance(interval, Estimate)
    assert interval.lo < truth < interval.hi
    assert interval.lo < interval.center < interval.hi
    assert any(note.startswith(TIMING_NOTE) for note in interval.notes)


def test_too_many_refused_answers_leave_it_unproven() -> None:
    """
    Where a fifth of the answers came in one piece, the others do not stand for all of them; nor does a run without
    plain answers show anything.
    """
    candidate, plain = both_arms()
    in_one_piece = [
        replace(record, answer=replace(record.answer, arrivals=record.answer.arrivals[:1])) for record in candidate[:3]
    ]

    few = estimate_from_timing("acceptance_length", evidence([*in_one_piece, *candidate[3:]], plain))
    none = estimate_from_timing("acceptance_length", evidence(candidate))

    assert isinstance(few, Missing)
    assert "3 of 12" in few.because
    assert isinstance(none, Missing)


def test_only_acceptance_can_come_from_timing() -> None:
    """
    Any other metric with from = "timing" is a mistake in the file.
    """
    with pytest.raises(ValueError, match="remove `from`"):
        Objective.model_validate({"metric": "ttft", "at_most": "1 s", "from": "timing", "why": "a test"})
