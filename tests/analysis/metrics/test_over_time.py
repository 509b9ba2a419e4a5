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
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.records import Answer, Generation, Role, Rounds
from gatekeeper.core.slo import Soak
from tests.builders.golden_words import says
from tests.builders.slo import SECOND, Twins, answer, because, counted, evidence, generation, known, steady


def windowed(rates: Sequence[tuple[int, int] | None], **more: Any) -> list[Generation]:
    """Return one answer in the middle of each 120 s window with (accepted, drafted), or none; the first starts at 0."""
    first = generation(answer([0.1], rounds=counted(0, 0, 0)), "first", **more)
    return [first] + [
        generation(answer([1.0], sent_s=120 * at + 60, rounds=counted(1, rate[1], rate[0])), f"w-{at}", **more)
        for at, rate in enumerate(rates)
        if rate is not None
    ]


def test_low_for_more_than_two_windows_is_at_least_x() -> None:
    """Two low windows in a row are forgiven (their third is high); three are the smallest of the largest."""
    two_low = windowed([(8, 10), (3, 10), (2, 10), (8, 10), (7, 10)])
    three_low = windowed([(8, 10), (3, 10), (2, 10), (1, 10), (7, 10)])

    forgiven, caught = (
        known(estimate("acceptance_window_min", evidence(answers))).center for answers in (two_low, three_low)
    )

    assert (0.8, 0.3) == (forgiven, caught)


@pytest.mark.parametrize("duration", ["60 s", "600 s", "3600 s"])
@pytest.mark.parametrize(("falls_at", "lowest"), [(0.3, 0.2), (0.7, 0.8)])
def test_the_rule_can_fire_in_a_soak_of_any_length(duration: str, falls_at: float, lowest: float) -> None:
    """Windows are a fifth of the soak: acceptance that falls after 30 % of it fills three, one that falls after 70 %
    not.
    """
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


def test_windows_pool_tokens_not_answers() -> None:
    """One long answer at 10 % outweighs a short one at 100 % in the same window."""
    answers = windowed([(1, 2), (1, 2), (1, 2)])
    long = generation(answer([1.0], sent_s=70, rounds=counted(9, 98, 10)), "long")
    mixed = [*answers, *(replace(long, key=str(at), answer=_later(long.answer, 120.0 * at)) for at in range(3))]

    assert pytest.approx(11 / 100) == known(estimate("acceptance_window_min", evidence(mixed))).center


def _later(reply: Answer, seconds: float) -> Answer:
    shift = round(seconds * 1e9)
    return replace(reply, sent_ns=reply.sent_ns + shift, ended_ns=reply.ended_ns + shift)


def test_windows_do_not_join_across_segments_or_gaps() -> None:
    """Three windows in a row are three of one unbroken stretch; two before an interruption and one after are not."""
    broken = [*windowed([(5, 10), (5, 10)]), *windowed([(5, 10)], segment=1)]
    holed = windowed([(5, 10), (5, 10), None, (5, 10), (5, 10)])

    assert "three consecutive" in because(estimate("acceptance_window_min", evidence(broken)))
    assert "three consecutive" in because(estimate("acceptance_window_min", evidence(holed)))


def test_windows_are_counted_from_the_first_answer_of_their_stretch() -> None:
    """The clock of each stretch starts with it: answers 10 s before and after a border of its windows lie apart."""
    at = [(0, 8), (110, 8), (130, 1), (250, 1), (370, 1)]
    first, second = (
        [
            generation(_later(answer([1.0], rounds=counted(1, 10, good)), began + sent), f"{sent}", segment=segment)
            for sent, good in at
        ]
        for segment, began in ((0, 1000.0), (1, 70.0))
    )

    assert 0.1 == known(estimate("acceptance_window_min", evidence(first))).center
    assert 0.1 == known(estimate("acceptance_window_min", evidence([*first, *second]))).center
    assert 8 == known(estimate("acceptance_window_min", evidence([*first, *second]))).n


def test_a_window_that_drafted_nothing_accepted_nothing() -> None:
    """Three windows whose answers drafted nothing are an acceptance of zero, once anything was drafted at all."""
    share = known(estimate("acceptance_window_min", evidence(windowed([(0, 0), (0, 0), (0, 0), (9, 10)]))))

    assert (0.0, 4) == (share.center, share.n)


def test_windows_say_how_many_there_were() -> None:
    """Nothing drafted and too few windows are two reasons, each with the windows that were seen."""
    silent, short = windowed([(0, 0), (0, 0)]), windowed([(5, 10), (5, 10)])

    nothing_drafted, few_windows = (estimate("acceptance_window_min", evidence(pairs)) for pairs in (silent, short))

    assert (2, 2) == (nothing_drafted.n, few_windows.n)
    says("estimates", "windows say how many there were: nothing drafted", because(nothing_drafted))
    says("estimates", "windows say how many there were: too few", because(few_windows))


def test_an_answer_that_ends_on_a_border_belongs_to_the_next_window() -> None:
    """A window is half open: 120 s after the first answer was sent the second one has begun."""
    answers = [
        generation(answer([0.5, 1.0], sent_s=sent, rounds=counted(1, 10, good)), f"{sent}")
        for sent, good in ((0, 1), (119, 9), (240, 1), (360, 1))
    ]

    assert 0.9 == known(estimate("acceptance_window_min", evidence(answers))).center


RATIOS = SPEED_RATIOS


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
    """Over 600 s the log of its speed moves in a straight line; a canary is compared with itself, and the last
    segment's
    clock alone counts.
    """
    _, old = drifting(-0.5)
    _, new = drifting(change)

    drift = plain_drift(evidence([], [*old, *(replace(one, segment=1, key=f"1{one.key}") for one in new)]))

    assert drift is not None
    assert pytest.approx(change, abs=0.01) == drift.size


def test_too_few_plain_answers_show_no_drift() -> None:
    """Eleven answers are too few."""
    assert plain_drift(evidence([], drifting(-0.2)[1][:11])) is None


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


@pytest.mark.parametrize("metric", RATIOS)
def test_a_host_that_slows_both_arms_down_alike_leaves_their_ratio(metric: str) -> None:
    """Pairs drift together, and their ratio is steady."""
    assert isinstance(estimate(metric, evidence(*drifting(-0.2))), Estimate)


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
    """Plain answers that vary by 15 % hide a fall of 12 % in the ratio, not in the draft's own speed; where plain
    decoding
    falls as much, nothing is suspected.
    """

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
