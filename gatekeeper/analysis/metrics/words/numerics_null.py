"""The null of the numerics: how far the lead of a best token moves between two kinds of passes of plain decoding."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Generation, Numerics, Replayed

CONTENT = 0.999
"""The share of positions whose change the tolerance is to cover."""
POSITIONS = 800
"""Tokens of plain answers that are read at both widths where rounds can be replayed: then they decide nothing."""
POSITIONS_UNSTEADY = 7000
"""The same where rounds read again give other bits, so that the tolerance decides: enough to cover CONTENT."""
FALSE_ALARM = 0.002
"""The chance at which a sound draft's divergences count as too many: four workloads have one each, in every run."""
SPARE = 3
"""With too few places for CONTENT, so many changes are larger than the one from which larger ones are foretold.

The largest of some 240 changes is often twice as large in one run as in the next, and its fourth power 16 times.
"""
DOUBLINGS = 8
"""Leads at which divergences are counted: the tolerance, twice, four times … that."""
MOST_NAMED = 50
"""A larger number of other tokens is not looked for, to say what would be seen."""
UNITS = 2
"""The least tolerance, in units in the last place of a best logit: each of two logits is rounded."""


@dataclass(frozen=True, slots=True)
class ComparedLeads:
    """Plain decoding's leads, in logits or in nats."""

    unexplained: tuple[float, ...] = ()
    """At divergences, where they are beyond the tolerance."""
    places: tuple[float, ...] = ()
    """At every place that was compared."""

    def __add__(self, other: "ComparedLeads") -> "ComparedLeads":
        """Return both together."""
        return ComparedLeads((*self.unexplained, *other.unexplained), (*self.places, *other.places))


@dataclass(frozen=True, slots=True)
class Null:
    """What the arithmetic alone does to the lead of the best token."""

    tolerance: float
    """The lead up to which a divergence is numerics, in logits or in nats."""
    larger: float
    """Upper bound on the share of positions whose lead moves by more than `reference`."""
    reference: float | None = None
    """None: the tolerance."""

    def refutes(self, own: ComparedLeads, elsewhere: ComparedLeads | None = None) -> bool:
        """Return whether divergences at leads beyond the tolerance are too many, or too large, for numerics.

        A divergence at a place needs a change as large as plain decoding's lead there. Its chance is `larger` at
        `reference`, and falls with the fourth power of the lead, as Markov's bound does for any noise with a fourth
        moment, which rounding has. Such events are rare and many, so that their number is Poisson's. The largest lead
        of this workload is held against it with half of the error, and the number beyond each of DOUBLINGS leads, at
        an equal share, with the other half.

        One workload has few divergences of a rare defect, so they are also counted together with those *elsewhere*, in
        the other workloads, which share the engine: half of the counts' error is for that. There a workload without a
        divergence of its own beyond such a lead is not refuted.
        """
        if (
            own.unexplained
            and self._one_or_more(self._expect_divergences(own.places, max(own.unexplained))) < FALSE_ALARM / 2
        ):
            return True
        counted = (own,) if elsewhere is None else (own, own + elsewhere)
        reached = [bound for bound in self._bounds if any(lead > bound for lead in own.unexplained)]
        chances = [
            _chance_of_so_many(
                sum(lead > bound for lead in leads.unexplained), self._expect_divergences(leads.places, bound)
            )
            for leads in counted
            for bound in reached
        ]
        return min(chances, default=1.0) < FALSE_ALARM / (2 * DOUBLINGS * len(counted))

    def visible(self, places: Sequence[float]) -> tuple[int, float] | None:
        """Return how many other tokens at how large leads would be a defect: the fewest, at the least such lead."""
        leads = sorted((lead for lead in places if lead > self.tolerance), reverse=True)
        # Of equal leads the dictionary keeps the last one's sum, which is that of all.
        expected = dict(zip(leads, accumulate(map(self._chance, leads)), strict=True))
        alone = [lead for lead, events in expected.items() if self._one_or_more(events) < FALSE_ALARM / 2]
        if alone:
            return 1, alone[-1]
        seen = []
        for bound in self._bounds:
            room, events = sum(lead > bound for lead in leads), self._expect_divergences(leads, bound)
            counts = range(1, min(room, MOST_NAMED) + 1)
            fewest = next((n for n in counts if _chance_of_so_many(n, events) < FALSE_ALARM / (4 * DOUBLINGS)), None)
            seen += [] if fewest is None else [(fewest, bound)]
        return min(seen, default=None)

    @property
    def _bounds(self) -> list[float]:
        return [self.tolerance * 2**doubling for doubling in range(DOUBLINGS)]

    def _expect_divergences(self, places: Sequence[float], least: float) -> float:
        """Return how many divergences numerics cause at leads of *least* and more."""
        return sum(self._chance(lead) for lead in places if lead >= least)

    def _chance(self, lead: float) -> float:
        """Return the chance that numerics turn a lead."""
        return self.larger * ((self.tolerance if self.reference is None else self.reference) / lead) ** 4

    @staticmethod
    def _one_or_more(expected: float) -> float:
        return -math.expm1(-expected)


def _chance_of_so_many(number: int, expected: float) -> float:
    """Return the chance of *number* or more events where *expected* are, by Poisson's distribution."""
    if number == 0 or expected <= 0:
        return float(number == 0)
    terms = (math.exp(-expected + n * math.log(expected) - math.lgamma(n + 1)) for n in range(number))
    return max(0.0, 1 - math.fsum(terms))


def null_of(records: Iterable[Numerics], level: float) -> Null | Missing:
    """Return the null that *records* show: an order statistic bounds the change that CONTENT of the positions keep.

    With too few positions for that, the tolerance is the largest change, and `larger` is that of the fourth largest.
    """
    read = [record for record in records if record.fault is None]
    pairs = [pair for record in read for pair in zip(record.gaps, record.other_gaps, strict=True)]
    if not pairs:
        return Missing("no place was read in two kinds of passes")
    # Where a third token leads, the lead of the first over the second is lost: it moved by at least all of itself.
    changes = [abs(gap - other) if other is not None else gap for gap, other in pairs]
    bound = intervals.quantile(changes, CONTENT, level)
    ordered, least = sorted(changes), UNITS * max(record.unit for record in read)
    if isinstance(bound, Missing) or not math.isfinite(bound.hi):
        tolerance, reference = max(ordered[-1], least), max(ordered[-1 - min(SPARE, len(ordered) - 1)], least)
    else:
        tolerance = reference = max(bound.hi, least)
    beyond = sum(change > reference for change in changes)
    _, larger = intervals.proportion_bounds(beyond, len(changes), level)
    return Null(tolerance, larger, reference)


def numerics_of(paired: PairedAnswers) -> tuple[Numerics, ...]:
    """Return the readings that are one null here: those at a width are each workload's own.

    Over HTTP the places of all workloads are one null, because the kernels are the model's.
    """
    readings = paired.readings(Numerics)
    return tuple(reading for reading in readings if reading.width is None or reading.workload == paired.workload)


def answers_to_read(paired: PairedAnswers) -> tuple[Generation, ...]:
    """Return one plain answer a canary, until they have as many tokens as the null needs here."""
    plain = {generation.canary: generation for generation in reversed(successful(paired.plain))}
    steady = all(replayed.steady is not False for replayed in paired.readings(Replayed))
    most, chosen, tokens = POSITIONS if steady else POSITIONS_UNSTEADY, [], 0
    for name in paired.canaries:
        if name in plain and tokens < most:
            chosen.append(plain[name])
            tokens += plain[name].answer.output_tokens or 0
    return tuple(chosen)


def widest_pass(answers: Sequence[Generation]) -> int:
    """Return how many tokens the widest verify pass of *answers* reads: its drafted ones and the one before them.

    Where a worker does not keep what it drafted, the mean of an answer's rounds stands in for the widest of them.
    """
    counts = {generation.answer.rounds for generation in answers if generation.answer.rounds is not None}
    lengths = (len(written.split()) for rounds in counts for written in rounds.proposals.split(";"))
    means = (math.ceil(rounds.drafted / rounds.rounds) for rounds in counts if rounds.rounds > 0)
    return 1 + max((1, *lengths, *means))
