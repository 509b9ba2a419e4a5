"""The table of answers: every column, on answers whose figures can be worked out on paper, and by a slow reading."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.answer_table import AT_ONCE, BURST_SHARE, AnswerTable, burst_gap, tabulate
from gatekeeper.core.records import Answer, Role, Rounds
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.slo import answer, counted, evidence, generation, near, steady, twins


def table(*answers: Answer, gap: float = 0.0) -> AnswerTable:
    return tabulate(([generation(reply) for reply in answers], gap))


def bursts(reply: Answer, gap: float) -> list[tuple[float, int]]:
    """Return the seconds to each burst but the first, and its tokens."""
    columns = table(reply, gap=gap)
    return list(zip((columns.gaps_ns / 1e9).tolist(), columns.tokens.tolist(), strict=True))


CHUNKS = answer([0.1, 0.101, 0.102, 0.4, 0.402])


@pytest.mark.parametrize(
    ("reply", "gap", "rate"),
    [
        (answer([0.1, 0.2, 0.3]), 0.0, 10.0),
        (answer([0.5, 0.5, 0.5, 0.8, 0.8, 0.8], drafted=[True, True, False] * 2), 0.0, 10.0),
        (CHUNKS, 0.01, 2 / 0.302),
        (CHUNKS, 0.0, 4 / 0.302),
        (answer([0.1, 0.3, 0.5], tokens=[None] * 3, output_tokens=12), 0.0, 20.0),
        (answer([], ended_s=1.0), 0.0, None),
        (answer([0.1]), 0.0, None),
        (answer([0.1, 0.1, 0.1], drafted=[True, True, False]), 0.0, None),
        (answer([0.1, 0.2], tokens=[None, None], output_tokens=None), 0.0, None),
        (answer([0.1, 0.1]), 0.0, None),
        (answer([0.1, 0.2], tokens=[5, 0]), 0.0, None),
    ],
)
def test_the_decode_rate_leaves_out_the_first_burst(reply: Answer, gap: float, rate: float | None) -> None:
    """What came with the first token belongs to the prefill; what came whole, uncounted or at once has no rate."""
    assert rate == pytest.approx(table(reply, gap=gap).read("decode_rate")(reply))


def test_an_answer_that_came_whole_has_the_speed_of_the_whole() -> None:
    """Ten tokens in one piece after two seconds are 5 tok/s; an answer in pieces has its decode rate as its speed."""
    whole, pieces = answer([2.0], tokens=[10]), answer([0.5, 1.0])

    speed = table(whole, pieces).read("speed")

    assert (5.0, 2.0) == (speed(whole), speed(pieces))


def test_a_burst_with_an_uncounted_chunk_is_uncounted() -> None:
    """An unknown number plus three is unknown; chunks that are hardly fewer than tokens count as one each."""
    reply = answer([0.1, 0.3, 0.301], tokens=[1, 3, None], output_tokens=9)

    assert table(reply, gap=0.01).pool_gaps([generation(reply)], per_token=True) is None
    assert [(near(0.2), 2)] == bursts(replace(reply, output_tokens=3), 0.01)


def test_plain_decoding_tells_the_bursts() -> None:
    """A tenth of plain decoding's mean gap, whatever its pauses, faults, warm-ups and rounds."""
    plain = [generation(steady(0.25, sent_s=at), f"c-{at}") for at in range(5)]
    paused, failed = generation(answer([0.1, 9.0])), generation(steady(0.001, fault="died"))
    warm_up = generation(steady(0.001), role=Role.WARMUP)

    assert near(0.25 * BURST_SHARE) == burst_gap([*plain, paused, failed, warm_up])
    assert 0.0 == burst_gap([generation(answer([0.1]))])
    assert [near(0.025)] == list({*evidence(*twins(3, lambda _: steady(0.5), lambda _: steady(0.25))).table.burst_gap})
    assert [0.0] == evidence([generation(steady(0.5, rounds=counted(2, 8, 6)))]).table.burst_gap.tolist()


def test_each_part_has_bursts_of_its_own() -> None:
    """Rounds at 40 ms and single tokens at 10 ms and 0.1 ms: each system's own gaps tell its bursts."""
    rounds = answer([0.04 * (turn + 1) + 5e-5 * piece for turn in range(8) for piece in range(4)])
    plain, fast = answer([0.01 * n for n in range(1, 33)]), answer([1e-4 * n for n in range(1, 33)])
    systems = [[generation(reply)] for reply in (rounds, plain, fast)]

    read = tabulate(*((answers, burst_gap(answers)) for answers in systems)).read("decode_rate")

    expected = (28 / (7 * 0.04 + 3 * 5e-5), 100, 10_000)
    assert [near(rate) for rate in expected] == [read(reply) for reply in (rounds, plain, fast)]


def test_a_copy_with_a_servers_counters_has_the_row_of_its_answer() -> None:
    """Counters change no time: the copy is found, and an answer of another record is not."""
    reply = steady(0.1)
    columns = table(reply)

    assert near(10.0) == columns.read("decode_rate")(replace(reply, rounds=Rounds(1, 2, 1)))
    assert columns.has([generation(reply)])
    assert not columns.has([generation(steady(0.1))])


@dataclass(frozen=True, slots=True)
class Slow:
    """What one answer shows, read arrival by arrival."""

    gaps_ns: list[int]
    tokens: list[int | None]
    rate: float | None


def read_slowly(reply: Answer, gap: float) -> Slow:
    pieces: list[list[Arrival]] = []
    before: Arrival | None = None
    for piece in reply.arrivals:
        if before is None or not (before.drafted or (piece.at_ns - before.at_ns) / 1e9 < gap):
            pieces.append([])
        pieces[-1].append(piece)
        before = piece
    totals: list[int | None] = []
    for burst in pieces:
        counts = [piece.tokens for piece in burst if piece.tokens is not None]
        totals.append(sum(counts) if len(counts) == len(burst) else None)
    gaps = [after[0].at_ns - before[0].at_ns for before, after in pairwise(pieces)]
    if len(pieces) < 2:
        return Slow(gaps, totals[1:], None)
    seconds = (reply.arrivals[-1].at_ns - reply.arrivals[0].at_ns) / 1e9
    count, first = len(reply.arrivals), len(pieces[0])
    known = [total for total in totals[1:] if total is not None]
    tokens: float | None = sum(known) if len(known) == len(totals) - 1 else None
    if tokens is None and reply.output_tokens is not None:
        tokens = reply.output_tokens * ((count - first) / count)
    return Slow(gaps, totals[1:], tokens / seconds if tokens and seconds > 0 else None)


STEP = st.tuples(st.sampled_from([0.0, 1e-4, 0.01, 0.2, 6.0]), st.sampled_from([None, 0, 1, 1, 3]), st.booleans())
REPLIES = st.lists(st.tuples(st.lists(STEP, max_size=12), st.booleans(), st.none() | st.integers(0, 40)), max_size=6)


def spell(steps: Sequence[tuple[float, int | None, bool]], output: int | None, *, marked: bool) -> Answer:
    times = np.cumsum([0.1, *(step[0] for step in steps)])[1:].tolist()
    drafted = [step[2] for step in steps] if marked else None
    return answer(times, tokens=[step[1] for step in steps], drafted=drafted, output_tokens=output)


@given(REPLIES, st.sampled_from([0.0, 0.001, 0.05]))
def test_the_columns_are_what_a_slow_reading_shows(
    replies: list[tuple[list[tuple[float, int | None, bool]], bool, int | None]], gap: float
) -> None:
    """Whatever arrives, each answer's bursts, longest gap and decode rate are those found arrival by arrival."""
    answers = [spell(steps, output, marked=marked) for steps, marked, output in replies]
    columns = table(*answers, gap=gap)

    for row, reply in enumerate(answers):
        slow, bursts = read_slowly(reply, gap), slice(columns.offsets[row], columns.offsets[row + 1])
        assert slow.gaps_ns == columns.gaps_ns[bursts].tolist()
        assert columns.joined[row] or [-1 if n is None else n for n in slow.tokens] == columns.tokens[bursts].tolist()
        assert slow.rate == columns.read("decode_rate")(reply)
        assert (max(slow.gaps_ns) / 1e9 if slow.gaps_ns else None) == columns.read("longest_gap")(reply)


def test_rows_do_not_depend_on_what_is_read_together() -> None:
    """More answers than are read at once have the columns that each has alone, and pool in the order of the caller."""
    answers = [generation(steady(0.01 * (1 + at % 7), count=2 + at % 5), f"c-{at}") for at in range(AT_ONCE + 9)]
    columns = tabulate((answers, 0.0))
    picked = [answers[AT_ONCE + 3], answers[2], answers[AT_ONCE - 1]]

    pooled = columns.pool_gaps(picked, per_token=False)

    assert pooled is not None
    alone = [bursts(generation.answer, 0.0) for generation in picked]
    assert [gap for gaps in alone for gap, _ in gaps] == pooled.values.tolist()
    assert ([one.canary for one in picked], [*map(len, alone)]) == (pooled.canaries, pooled.sizes.tolist())
