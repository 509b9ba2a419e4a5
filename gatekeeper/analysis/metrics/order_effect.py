"""The effect of order within pairs: whether one arm is faster because the other has just answered the same prompt.

A random order halves such a gain and does not remove it, and a request in use follows no such answer. An arm that gains
as much as the other one leaves their ratio alone, so what counts is the difference of both gains: the sum of a pair's
two log speeds, where the speculative answer came second, less the same where it came first.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from statistics import fmean

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import acceptance_rate
from gatekeeper.analysis.stats.fixed_canaries import LEAST_DEGREES
from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.core.judgement import Estimate, Finding, FindingKind
from gatekeeper.core.records import Generation
from gatekeeper.core.units import percent, show_interval, show_number

LEAST_BIAS = 0.02
"""A smaller one is no finding: it is less than the noise of a soak."""
LEAST_CARRIED = 0.15
"""A smaller change of acceptance by the request before is no finding."""
LEAST_CARRIED_DEGREES = 6
"""Acceptance is a share, not a time: no busy host makes an outlier of it, so that fewer repeats do than for speeds.
A sweep of eight canaries with two repeats has seven degrees."""
CARRIED_ERROR = 0.001
"""Allowed chance a side that acceptance is said to depend on the request before, of a workload in a sweep or a soak."""
ERROR = 0.0025
"""Allowed chance a side that a soak without such an effect is called one with it: one soak in 200."""


def order_effects(paired: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding where the order is proven to move the ratio of the arms, by 2 % or more."""
    if (bias := _proven_bias(paired)) is None:
        return ()
    effect = "higher" if bias.center > 0 else "lower"
    shares = (abs(math.expm1(bias.center)), *sorted(abs(math.expm1(end)) for end in (bias.lo, bias.hi)))
    size = show_interval(*(percent(share, ".2g") for share in shares))
    detail = (
        f"the order within a pair moves the ratio: it reads {size} {effect} than without an answer to the same prompt "
        "right before"
    )
    advice = "find out what one arm keeps from the other's answer, such as a cache, and switch it off"
    return (Finding(FindingKind.ORDER_EFFECT, about, detail, advice),)


def _proven_bias(paired: PairedAnswers) -> Estimate | None:
    if not paired.interleaved:
        return None
    bias = paired.once("order", lambda: order_bias(paired), paired.pairs)
    return None if bias is None or abs(bias.center) < LEAST_BIAS or bias.lo <= 0 <= bias.hi else bias


def order_bias(paired: PairedAnswers) -> Estimate | None:
    """Bound by how much the order moves the mean log ratio; None where repeats are too few to show it.

    Least squares of the sums of log speeds with a height for each canary: canaries that were answered in one order
    alone say nothing. The effect of the order on a random half of the pairs is half of the difference.
    """
    speed = paired.table.read("speed")
    by_canary: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for drafting, plain in paired.pairs:
        if drafting.answer.fault is not None or plain.answer.fault is not None:
            continue
        rates = [speed(generation.answer) or 0.0 for generation in (drafting, plain)]
        if min(rates) > 0:
            came_second = 0.5 if drafting.answer.sent_ns > plain.answer.sent_ns else -0.5
            by_canary[drafting.canary].append((came_second, math.fsum(map(math.log, rates))))
    slope = _slope_within(by_canary.values(), LEAST_DEGREES, ERROR)
    if slope is None:
        return None
    return replace(slope, center=slope.center / 2, lo=slope.lo / 2, hi=slope.hi / 2)


def carried_over(records: Iterable[Generation], workload: str, about: str) -> tuple[Finding, ...]:
    """Return a finding if acceptance of *workload* depends on which request came before, in another workload or longer.

    *records* are the answers of a soak, or of a sweep, in all workloads. A canary is compared with itself at the same
    setting, as `order_bias` does.
    """
    answers, _ = counted_or_claimed(tuple(record for record in records if record.arm == "candidate"))
    ordered = sorted(answers, key=attrgetter("moment"))
    followed = [
        (before, generation, rate)
        for before, generation in pairwise(ordered)
        if generation.workload == workload
        and before.segment == generation.segment
        and (rate := acceptance_rate(generation.answer)) is not None
    ]
    elsewhere = dict.fromkeys(before.workload for before, _, _ in followed if before.workload != workload)
    kinds: dict[str, Callable[[Generation, Generation], bool]] = {
        f"of {name}": partial(_is_of_workload, name) for name in elsewhere
    }
    kinds["with a longer prompt"] = _is_longer
    kind_by_marks: dict[tuple[bool, ...], str] = {}
    for kind, follows in kinds.items():
        marks = tuple(follows(before, generation) for before, generation, _ in followed)
        if len({*marks}) > 1:
            kind_by_marks.setdefault(marks, kind)  # two kinds may be the same requests
    for marks, kind in kind_by_marks.items():
        by_canary: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for mark, (_, generation, rate) in zip(marks, followed, strict=True):
            by_canary[generation.trial, generation.canary].append((float(mark), rate))
        effect = _slope_within(by_canary.values(), LEAST_CARRIED_DEGREES, CARRIED_ERROR / len(kind_by_marks))
        if effect is None or abs(effect.center) < LEAST_CARRIED or effect.lo <= 0 <= effect.hi:
            continue
        rates = [(mark, rate) for mark, (_, _, rate) in zip(marks, followed, strict=True)]
        after, otherwise = (fmean(rate for mark, rate in rates if mark is which) for which in (True, False))
        detail = (
            f"acceptance is {show_number(after)} right after a request {kind}, and {show_number(otherwise)} otherwise, "
            "for the same prompts: the gain depends on the request before"
        )
        return (Finding(FindingKind.CARRIED_OVER, about, detail, FindingKind.CARRIED_OVER.remedy),)
    return ()


def _is_of_workload(name: str, before: Generation, _: Generation) -> bool:
    return before.workload == name


def _is_longer(before: Generation, generation: Generation) -> bool:
    return (before.answer.prompt_tokens or 0) > (generation.answer.prompt_tokens or 0)


def _slope_within(groups: Iterable[Sequence[tuple[float, float]]], least: int, error: float) -> Estimate | None:
    """Bound by how much a mark moves a value within groups, by least squares with a height for each.

    None where fewer than *least* degrees of freedom are left, or the mark never changes within a group.
    """
    rows, degrees = [], -1
    for group in groups:
        mean_mark, mean_value = (math.fsum(column) / len(group) for column in zip(*group, strict=True))
        rows += [(mark - mean_mark, value - mean_value) for mark, value in group]
        degrees += len(group) - 1
    squares = math.fsum(mark * mark for mark, _ in rows)
    if degrees < least or squares == 0:
        return None
    slope = math.fsum(mark * value for mark, value in rows) / squares
    noise = math.fsum((value - slope * mark) ** 2 for mark, value in rows) / degrees
    half = student_quantile(1 - error, degrees) * math.sqrt(noise / squares)
    return Estimate(slope, slope - half, slope + half, len(rows), confidence=1 - error)
