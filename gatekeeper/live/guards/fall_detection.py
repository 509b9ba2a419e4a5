"""Detection of a fall: a CUSUM of e-values, whose false alarms are bounded over its whole life.

A value is the mean of some independent units (answers) with a deviation of at most `spread` each. While the true mean
is at least `bound`, the product of e-values from any start is below 1 on average, so it reaches L with a chance of at
most 1/L (Ville); over all starts among `looks` values together with at most looks/L. The CUSUM is the largest of these
products. E-values for a fall by FALL of the bound grow fastest there; each is limited, so no single value decides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FALL = 0.25
"""The share of the bound by which the fall that is looked for lies below it: a collapse to half lies further below."""
MOST = 6.0
"""Largest logarithm of one e-value: at least three values have to agree."""
ABOVE = 6.0
"""Evidence beyond what is needed counts up to this much, so that a recovery shows as soon."""


@dataclass(frozen=True, slots=True)
class WeightedValue:
    """One value: the mean of `weight` units."""

    at_ns: int
    value: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Fall:
    """A detected fall."""

    since_ns: int
    """Time of the first value of the evidence."""
    mean: float
    highest: float
    """The mean is below this at the confidence of the whole life."""
    values: int


def compute_needed_evidence(looks: float, error: float) -> float:
    """Return the evidence (a natural logarithm) that a fall needs, so that few of *looks* values give a false alarm."""
    return math.log(max(1.0, looks) / error)


def detect(units: Sequence[WeightedValue], bound: float, spread: float, evidence: float) -> Fall | None:
    """Return the fall below *bound* that the values up to the last show; None if they show none."""
    reached, begin = 0.0, 0
    for number, unit in enumerate(units):
        if reached <= 0:
            reached, begin = 0.0, number
        reached = min(evidence + ABOVE, reached + step(unit.value, unit.weight, bound, spread))
    if reached < evidence:
        return None
    latest = units[begin:]
    weight = math.fsum(unit.weight for unit in latest)
    mean = math.fsum(unit.value * unit.weight for unit in latest) / weight
    highest = min(mean + spread * math.sqrt(2 * evidence / weight), bound * (1 - 1e-6))
    return Fall(latest[0].at_ns, mean, highest, len(latest))


def step(value: float, weight: float, bound: float, spread: float) -> float:
    """Return the logarithm of one value's e-value."""
    fall = FALL * bound
    return min(MOST, weight * (fall * (bound - value) - fall**2 / 2) / spread**2)
