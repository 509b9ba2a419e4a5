"""The null of the numerics: how far the lead of a best token moves between two kinds of passes of plain decoding."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Generation, Numerics
from gatekeeper.core.verdict import Missing

CONTENT = 0.999
"""The share of positions whose change the tolerance is to cover."""
POSITIONS = 800
"""Tokens of plain answers that are read at both widths where rounds can be replayed: then they decide nothing."""
POSITIONS_UNSTEADY = 7000
"""The same where rounds read again give other bits, so that the tolerance decides: enough to cover CONTENT."""
FALSE_ALARM = 0.001
"""The chance at which a sound draft's divergences count as too many: four workloads have one each, in every run."""
DOUBLINGS = 8
"""Leads at which divergences are counted: the tolerance, twice, four times … that."""
UNITS = 2
"""The least tolerance, in units in the last place of a best logit: each of two logits is rounded."""


@dataclass(frozen=True, slots=True)
class Null:
    """What the arithmetic alone does to the lead of the best token."""

    positions: int
    flips: int
    """Positions with another best token in the other kind of pass."""
    tolerance: float
    """The lead up to which a divergence is numerics, in logits or in nats."""
    larger: float
    """Upper bound on the share of positions whose lead moves by more than the tolerance."""
    level: float
    """The confidence of both."""

    def refutes(self, unexplained: Sequence[float], leads: Iterable[float]) -> bool:
        """Return whether divergences at leads beyond the tolerance are too many, or too large, for numerics.

        *leads* are plain decoding's at every place that was compared: a divergence there needs a change as large as
        the lead. Its chance is `larger` at the tolerance, and falls with the fourth power of the lead, as Markov's
        bound does for any noise with a fourth moment, which rounding has. Such events are rare and many, so that their
        number is Poisson's. The number beyond each of DOUBLINGS leads is held against it, each at its share of the
        error.
        """
        places = [lead for lead in leads if lead > self.tolerance]
        chances = []
        for doubling in range(DOUBLINGS):
            bound = self.tolerance * 2**doubling
            number = sum(lead > bound for lead in unexplained)
            expected = sum(self.larger * (self.tolerance / lead) ** 4 for lead in places if lead > bound)
            chances.append(_chance_of_so_many(number, expected))
        return min(chances) < FALSE_ALARM / DOUBLINGS


def _chance_of_so_many(number: int, expected: float) -> float:
    """Return the chance of *number* or more events where *expected* are, by Poisson's distribution."""
    if number == 0 or expected <= 0:
        return float(number == 0)
    terms = (math.exp(-expected + n * math.log(expected) - math.lgamma(n + 1)) for n in range(number))
    return max(0.0, 1 - math.fsum(terms))


def null_of(records: Iterable[Numerics], level: float) -> Null | Missing:
    """Return the null that *records* show: an order statistic bounds the change that CONTENT of the positions keep.

    With too few positions for that, the tolerance is the largest change, and `larger` says how little is covered.
    """
    read = [record for record in records if record.fault is None]
    pairs = [pair for record in read for pair in zip(record.gaps, record.other_gaps, strict=True)]
    if not pairs:
        return Missing("no place was read in two kinds of passes")
    # Where a third token leads, the lead of the first over the second is lost: it moved by at least all of itself.
    changes = [abs(gap - other) if other is not None else gap for gap, other in pairs]
    bound = intervals.quantile(changes, CONTENT, level)
    largest = max(changes) if isinstance(bound, Missing) or not math.isfinite(bound.hi) else bound.hi
    tolerance = max(largest, UNITS * max(record.unit for record in read))
    beyond = sum(change > tolerance for change in changes)
    _, larger = intervals.proportion_bounds(beyond, len(changes), level)
    flips = sum(other is None or other < 0 for _, other in pairs)
    return Null(len(pairs), flips, tolerance, larger, level)


def answers_to_read(paired: PairedAnswers) -> tuple[Generation, ...]:
    """Return one plain answer a canary, until they have as many tokens as the null needs here."""
    plain = {generation.canary: generation for generation in reversed(successful(paired.plain))}
    steady = all(replayed.steady is not False for replayed in paired.replays)
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
