"""Pass rates: the share of answers that are what their canary expects, of an arm, and the change between arms."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.shares import add_notes, check_all_answered
from gatekeeper.analysis.metrics.words import exactness
from gatekeeper.analysis.metrics.words.explanations import explanations_for
from gatekeeper.analysis.metrics.words.harm import HARMS
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.records import Generation

Marks = Mapping[str, Sequence[bool]]
"""Whether the answers of a canary were right."""


class Causes(NamedTuple):
    """Why greedy answers differ from plain decoding's, by canary; those of neither kind are the draft's."""

    numerics: Collection[str]
    """All of its differences are those of another kernel."""
    unknown: Collection[str]
    """Nothing was read that could tell."""


def pass_delta(paired: PairedAnswers, kind: str | None) -> Estimate | Missing:
    """Compare the pass rates of both arms over the canaries with an expectation of a *kind*; None is any kind."""
    paired = paired.words
    # A failed plain answer is not counted as wrong; a candidate's is.
    now, reference = (_marks(paired, answers) for answers in (paired.answers, successful(paired.plain)))
    causes = _causes(paired) if paired.greedy else None
    return pass_change(paired, kind, now, reference, "both arms", causes=causes)


def pass_marks(paired: PairedAnswers, kind: str | None) -> list[tuple[str, bool]]:
    """Return each canary with an expectation of a *kind* and whether its answer was right, for every answer."""
    paired = paired.words
    names = _with_expectation(paired, kind)
    return [
        (name, mark)
        for name, answer_marks in _marks(paired, paired.answers).items()
        if name in names
        for mark in answer_marks
    ]


def pass_change(
    paired: PairedAnswers,
    kind: str | None,
    now: Marks,
    reference: Marks,
    where: str,
    *,
    causes: Causes | None = None,
) -> Estimate | Missing:
    """Compare two pass rates over the canaries of *paired*, by which answers of each were right.

    Where all differences of a canary are numerics, its flip is not the draft's, unless such flips are proven to lose
    more answers than they win: then they harm, and all count.
    """
    names, marks = _with_expectation(paired, kind), (now, reference)
    if not names:
        return Missing("no canary of this workload has an expectation of this kind")
    if (missing := check_all_answered(names, now.keys() & reference.keys(), paired, where)) is not None:
        return missing
    all_rates = {name: (fmean(now[name]), fmean(reference[name])) for name in names}
    rates, notes, shows = _without_numerics(all_rates, causes, paired.level) if causes else (all_rates, (), "")
    steady = all(len(set(arm_marks[name])) == 1 for arm_marks in marks for name in names)
    if paired.greedy and steady and paired.frozen:
        change = math.fsum(rate - reference_rate for rate, reference_rate in rates.values()) / len(rates)
        return replace(fact(change, len(rates), *notes), shows=shows)
    delta = add_notes(intervals.paired_pass_delta(rates, paired.level), *notes)
    return replace(delta, shows=shows) if isinstance(delta, Estimate) else delta


def _causes(paired: PairedAnswers) -> Causes:
    explanations = explanations_for(paired)
    compared = exactness.compare(paired.answers, paired.plain, explanations)
    not_read = set() if explanations.reads else compared.unexplained.keys()
    return Causes(compared.excused, compared.unread | not_read)


def _without_numerics(
    rates: Mapping[str, tuple[float, float]], causes: Causes, level: float
) -> tuple[Mapping[str, tuple[float, float]], tuple[str, ...], str]:
    """Return the pass rates with the flips of numerics taken out where they harm no more than they help.

    Also the notes, and what it shows where they harm: exact one-sided sign test of lost against won canaries
    (McNemar 1947).
    """
    changes = {name: now - before for name, (now, before) in rates.items() if now != before}
    if not changes:
        return rates, (), ""

    def flips(names: Collection[str]) -> tuple[int, int]:
        lost = sum(changes[name] < 0 for name in names)
        return lost, len(names) - lost

    turned = [name for name in changes if name in causes.numerics]
    unknown = [name for name in changes if name in causes.unknown]
    lost, won = flips(turned)
    otherwise = flips(changes.keys() - {*turned, *unknown})
    unread = flips(unknown)
    counts = f"{lost} lost and {won} won by numerics, {otherwise[0]} and {otherwise[1]} otherwise"
    notes = (f"{counts}, {unread[0]} and {unread[1]} for unknown reasons",)
    if lost and 1 - intervals.binomial_cdf(lost - 1, len(turned), 0.5) < 1 - level:
        return rates, notes, HARMS
    counted = {name: (before, before) if name in turned else (now, before) for name, (now, before) in rates.items()}
    return counted, notes, ""


def pass_rate(paired: PairedAnswers, kind: str | None) -> Estimate | None:
    """Return the mean pass rate of the canaries with an expectation of a *kind*; of any kind where it is None."""
    names = _with_expectation(paired, kind)
    marks = [canary_marks for name, canary_marks in _marks(paired, paired.answers).items() if name in names]
    if not marks:
        return None
    passed = math.fsum(map(fmean, marks))
    lo, hi = intervals.proportion_bounds(round(passed), len(marks), paired.level)
    center = passed / len(marks)
    return Estimate(center, min(center, lo), max(center, hi), len(marks), confidence=paired.level)


def _with_expectation(paired: PairedAnswers, kind: str | None) -> set[str]:
    return {name for name, canary in paired.canaries.items() if canary.expect and kind in {None, canary.expect.kind}}


def _marks(paired: PairedAnswers, answers: Iterable[Generation]) -> dict[str, list[bool]]:
    grades = (
        (generation.canary, paired.canaries[generation.canary].grade(generation.answer)) for generation in answers
    )
    return intervals.by_canary((canary, right) for canary, right in grades if right is not None)
