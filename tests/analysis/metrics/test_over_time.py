"""Change over a soak: of the ratio, of plain decoding, and the windows of acceptance."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.over_time import keep_settled_pairs, likely_end, plain_drift
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.core.judgement import Estimate, StillChanging
from gatekeeper.core.records import Generation, Role, Rounds
from gatekeeper.core.slo import Soak
from tests.builders.slo import SECOND, Twins, answer, because, counted, evidence, generation, known, steady


def windowed(rates: Sequence[tuple[int, int] | None], **more: Any) -> list[Generation]:
    """Return one answer in the middle of each 120 s window with (accepted, drafted), or none; the first starts at 0."""
    first = generation(answer([0.1], rounds=counted(0, 0, 0)), "first", **more)
    return [first] + [
        generation(answer([1.0], sent_s=120 * at + 60, rounds=counted(1, rate[1], rate[0])), f"w-{at}", **more)
        for at, rate in enumerate(rates)
        if rate is not None
    ]


def at_moments(*moments: tuple[float, int], began: float = 0.0, segment: int = 0) -> list[Generation]:
    """Return an answer of a second at each moment, of whose ten drafted tokens so many were accepted."""
    return [
        generation(answer([1.0], sent_s=began + sent, rounds=counted(1, 10, good)), f"{sent}", segment=segment)
        for sent, good in moments
    ]


def long_ones(count: int) -> list[Generation]:
    """Return answers at 10 % of 98 tokens, one a window."""
    rounds = counted(9, 98, 10)
    return [
        generation(answer([1.0], sent_s=70 + 120.0 * at, rounds=rounds), "long", key=str(at)) for at in range(count)
    ]


# Ten seconds before and after a border of its windows lie apart; the clock of each stretch starts with it.
STRETCH = ((0, 8), (110, 8), (130, 1), (250, 1), (370, 1))
WINDOWS: dict[str, tuple[list[Generation], float, int]] = {
    "two low ones in a row are forgiven": (windowed([(8, 10), (3, 10), (2, 10), (8, 10), (7, 10)]), 0.8, 5),
    "of three the largest counts": (windowed([(8, 10), (3, 10), (2, 10), (1, 10), (7, 10)]), 0.3, 5),
    "tokens are pooled, not answers": ([*windowed([(1, 2)] * 3), *long_ones(3)], 11 / 100, 3),
    "what drafted nothing accepted nothing": (windowed([(0, 0), (0, 0), (0, 0), (9, 10)]), 0.0, 4),
    "counted from the first answer": (at_moments(*STRETCH, began=1000.0), 0.1, 4),
    "counted anew in each stretch": (
        [*at_moments(*STRETCH, began=1000.0), *at_moments(*STRETCH, began=70.0, segment=1)], 0.1, 8,
    ),
    "an answer on a border belongs to the next": (at_moments((0, 1), (118, 9), (119, 9), (240, 1), (360, 1)), 0.9, 4),
}  # fmt: skip


@pytest.mark.parametrize("case", WINDOWS)
def test_the_lowest_acceptance_over_three_windows_in_a_row(case: str) -> None:
    """It is the smallest of the largest of three: low for more than two windows is at least that low."""
    answers, lowest, windows = WINDOWS[case]

    share = known(estimate("acceptance_window_min", evidence(answers)))

    assert pytest.approx((lowest, windows)) == (share.center, share.n)


@pytest.mark.parametrize(
    ("answers", "reason", "windows"),
    [
        ([*windowed([(5, 10), (5, 10)]), *windowed([(5, 10)], segment=1)], "three consecutive", 3),
        (windowed([(5, 10), (5, 10), None, (5, 10), (5, 10)]), "three consecutive", 4),
        (windowed([(5, 10), (5, 10)]), "three consecutive", 2),
        (windowed([(0, 0), (0, 0)]), "drafted", 2),
    ],
)
def test_windows_do_not_join_across_segments_or_gaps(answers: list[Generation], reason: str, windows: int) -> None:
    """Three windows in a row are three of one unbroken stretch; the reason counts the windows that were seen."""
    missing = estimate("acceptance_window_min", evidence(answers))

    assert reason in because(missing)
    assert windows == missing.n


@pytest.mark.parametrize("duration", ["60 s", "3600 s"])
@pytest.mark.parametrize(("falls_at", "lowest"), [(0.3, 0.2), (0.7, 0.8)])
def test_the_rule_can_fire_in_a_soak_of_any_length(duration: str, falls_at: float, lowest: float) -> None:
    """Windows are a fifth of the soak: a fall after 30 % of it fills three, one after 70 % does not."""
    soaked = Soak.model_validate({"duration": duration})
    each = soaked.duration / 100
    answers = [
        generation(
            answer([each], sent_s=at * each, ended_s=0.9 * each, rounds=counted(1, 10, 8 if high else 2)), str(at)
        )
        for at, high in enumerate(at / 100 < falls_at for at in range(100))
    ]

    share = known(estimate("acceptance_window_min", replace(evidence(answers), window_s=soaked.window_s)))

    assert lowest == share.center


def drifting(change: float, repeats: int = 4) -> Twins:
    """Return four canaries asked *repeats* times over 600 s, plain decoding's speed changing by *change* on the way."""
    candidate, plain = [], []
    for repeat in range(repeats):
        for at in range(5):
            sent = 600 * (repeat * 5 + at) / (repeats * 5)
            gap = 0.1 * math.exp(-change * sent / 600)
            pair = f"{repeat}.{at}"
            candidate.append(generation(steady(gap / 2, sent_s=sent), f"c-{at}", pair=pair))
            plain.append(generation(steady(gap, sent_s=sent), f"c-{at}", arm="plain", role=Role.BASELINE, pair=pair))
    return candidate, plain


@pytest.mark.parametrize("change", [-0.2, 0.0, 0.1])
def test_a_drift_of_plain_decoding_is_that_of_each_canary(change: float) -> None:
    """The log of its speed moves in a straight line; a canary is compared with itself in the last segment."""
    _, old = drifting(-0.5)
    _, new = drifting(change)

    drift = plain_drift(evidence([], [*old, *(replace(one, segment=1, key=f"1{one.key}") for one in new)]))

    assert drift is not None
    assert pytest.approx(change, abs=0.01) == drift.size
    assert plain_drift(evidence([], new[:11])) is None, "too few"


def test_plain_blocks_that_lie_apart_widen_the_ratio() -> None:
    """Where the arms ran apart, a host that is slower during one block of three makes the ratio less certain."""

    def in_blocks(slower: float) -> PairedAnswers:
        candidate = [generation(steady(0.05, sent_s=10.0 * at), f"c-{at % 8}", key=f"m{at}") for at in range(48)]
        plain = [
            replace(
                generation(
                    steady(0.1 * (slower if block == 1 else 1.0) * (1 + at % 3 / 100), sent_s=240.0 * block + at),
                    f"c-{at}", key=f"b{block}.{at}", arm="plain", role=Role.BLOCK,
                ),
                repeat=block,
            )
            for block in range(3)
            for at in range(8)
        ]  # fmt: skip
        return replace(pair_answers(evidence(candidate, plain)), interleaved=False)

    calm, busy = (known(estimate("throughput_ratio", in_blocks(slower))) for slower in (1.0, 1.2))

    assert calm.lo > 1.95
    assert busy.lo < 1.85
    assert busy.hi > 2.05


def test_a_host_that_slows_both_arms_down_alike_leaves_their_ratio() -> None:
    """Pairs drift together, and their ratio is steady."""
    assert isinstance(estimate("throughput_ratio", evidence(*drifting(-0.2))), Estimate)


def losing(loss: float, count: int = 5, repeats: int = 4, noise: float = 0.02) -> PairedAnswers:
    """Return pairs over 600 s; the draft begins at 1.25x and loses *loss* of its log speed on the way, plain none."""
    return changing(lambda seconds: -loss * seconds / 600, count, repeats, noise)


def changing(
    change: Callable[[float], float], count: int = 18, repeats: int = 3, noise: float = 0.02, lasts: float = 600
) -> PairedAnswers:
    """Return pairs over some seconds; *change* adds to the log speed of the draft, 1.25x before it."""
    draw = random.Random(5)
    candidate, plain = [], []
    for number in range(count * repeats):
        at, sent = number % count, lasts * number / (count * repeats)
        hard, scatter = 1 + 0.1 * math.sin(7 * at), math.exp(draw.gauss(0, noise))
        gap = 0.1 / 1.25 * math.exp(-change(sent)) * hard * scatter
        pair = f"p{number}"
        candidate.append(generation(steady(gap, sent_s=sent), f"c-{at}", pair=pair))
        plain.append(generation(steady(0.1, sent_s=sent), f"c-{at}", arm="plain", role=Role.BASELINE, pair=pair))
    return evidence(candidate, plain, settled_s=600.0)


def changes(paired: PairedAnswers) -> str | None:
    """Return why the ratio of the pairs is open, if it is."""
    stretch = keep_settled_pairs(paired)
    return stretch.because if isinstance(stretch, StillChanging) else None


@pytest.mark.parametrize(("count", "repeats"), [(5, 4), (60, 1)])
@pytest.mark.parametrize(("loss", "word"), [(0.0, None), (0.03, None), (-0.3, "rose by"), (0.3, "fell by")])
def test_a_ratio_that_changes_is_open(loss: float, word: str | None, count: int, repeats: int) -> None:
    """A draft that loses or gains 30 % while plain decoding is steady; not one that loses what is allowed."""
    paired = losing(loss, count, repeats)

    assert (word is None) == (changes(paired) is None)
    assert word is None or word in because(estimate("throughput_ratio", paired))


SHAPES: dict[str, Callable[[float], float]] = {
    "20 % over the last quarter": lambda at: -0.2 * min(1.0, max(0.0, (at - 450) / 150)),
    "20 % at once at 480 s": lambda at: -0.2 * (at > 480),
    "20 % at once at 360 s": lambda at: -0.2 * (at > 360),
    "10 % over the last half": lambda at: -0.1 * min(1.0, max(0.0, (at - 300) / 300)),
    "a rise over the first 300 s": lambda at: 0.3 * min(0.0, at / 300 - 1),
    "a rise at once at 120 s": lambda at: -0.3 * (at < 120),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_change_of_any_shape_is_found_and_a_later_stretch_is_judged(shape: str) -> None:
    """Late falls and slow warm-ups leave ten minutes open; of twenty the last ten, which are steady, are judged."""
    ten, twenty = changing(SHAPES[shape]), changing(SHAPES[shape], repeats=6, lasts=1200)

    last = keep_settled_pairs(twenty)

    assert changes(ten) is not None
    assert isinstance(last, PairedAnswers)
    assert min(answer.answer.sent_ns for answer, _ in last.pairs) >= 550 * SECOND
    expected = 1.25 * math.exp(SHAPES[shape](1200))
    assert known(estimate("throughput_ratio", twenty)).center == pytest.approx(expected, rel=0.05)


def test_open_limits_judge_the_whole_soak() -> None:
    """An SLO may allow any change."""
    paired = losing(0.3)

    for judged in (replace(paired, drift_limit=math.inf), replace(paired, settled_s=None)):
        assert keep_settled_pairs(judged) is judged
        assert likely_end(judged) == 1.0


def test_a_fall_that_chance_may_explain_lowers_the_likely_end() -> None:
    """A fall of 8 % in the last tenth, under noise of 6 %, is no proof of a change; a steady ratio has no such end."""
    falls = changing(lambda at: -0.08 * (at > 540), noise=0.06)

    assert changes(falls) is None
    assert likely_end(falls) < 0.95
    assert likely_end(changing(lambda _: 0.0, noise=0.01)) == 1.0


def test_a_late_fall_is_seen_beneath_the_luck_of_the_draft() -> None:
    """Tokens a round vary by 40 % from answer to answer: with them a fall of 20 % in the last tenth is seen."""
    draw, count = random.Random(3), 36
    candidates, baselines = list[Generation](), list[Generation]()
    for number in range(count):
        rounds, sent, pair = draw.randint(5, 18), 600 * number / count, f"p{number}"
        step = 0.008 * rounds * math.exp(draw.gauss(0, 0.04) + 0.2 * (number >= 0.9 * count))
        answer = replace(steady(step, 20, sent_s=sent), rounds=Rounds(rounds, 4 * rounds, 20 - rounds))
        candidates.append(generation(answer, f"c-{number % 24}", pair=pair))
        baselines.append(generation(steady(0.1, 20, sent_s=sent), f"c-{number % 24}", role=Role.BASELINE, pair=pair))

    assert changes(evidence(candidates, baselines, settled_s=600.0)) is not None


def test_a_late_fall_is_seen_beneath_the_noise_of_plain_decoding() -> None:
    """Noise of 15 % hides a fall of 12 % in the ratio, not in the draft's own speed."""

    def fallen(noise: float, plain_fall: float) -> PairedAnswers:
        draw, count = random.Random(3), 36
        candidates, baselines = list[Generation](), list[Generation]()
        for number in range(count):
            rounds, sent, pair, late = 5 + number % 12, 600 * number / count, f"p{number}", number >= 0.75 * count
            step = 0.008 * rounds * math.exp(draw.gauss(0, 0.02) + 0.12 * late)
            answer = replace(steady(step, 20, sent_s=sent), rounds=Rounds(rounds, 4 * rounds, 20 - rounds))
            plain = steady(0.1 * math.exp(noise * (-1) ** (number + number // 12) + plain_fall * late), 20, sent_s=sent)
            candidates.append(generation(answer, f"c-{number % 12}", pair=pair))
            baselines.append(generation(plain, f"c-{number % 12}", role=Role.BASELINE, pair=pair))
        return evidence(candidates, baselines, settled_s=600.0)

    assert changes(fallen(0.15, 0.0)) is not None
    assert changes(fallen(0.02, 0.12)) is None
    assert likely_end(fallen(0.02, 0.12)) == 1.0


def test_the_sweep_shows_a_smaller_change_of_canaries_that_are_paired_once() -> None:
    """A loss of 9 % in sixty pairs drowns in how far canaries lie apart, unless the sweep has the ratio of each."""
    once, sweep = losing(0.09, 60, 1), losing(0.0, 60, 1)

    assert changes(once) is None
    assert changes(replace(once, before=sweep.pairs)) is not None
    assert changes(replace(sweep, before=sweep.pairs)) is None
