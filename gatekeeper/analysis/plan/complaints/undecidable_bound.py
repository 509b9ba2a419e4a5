"""Bounds against the certified run that are narrower than what two soaks can tell apart."""

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist

from gatekeeper.analysis.plan.complaints.complaint import Complaint, about_objective
from gatekeeper.analysis.plan.ladder import look_levels
from gatekeeper.analysis.stats.fixed_canaries import LEAST_DEGREES
from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.units import percent, show_seconds

NOISE = 0.05
"""Assumed deviation of one answer's log speed: the second lowest of those that bench/power.py simulates."""
POWER = 0.8
"""Share of runs that prove the bound where nothing changed: with a smaller one most nights would end unproven."""
WIDER = 1.25
"""How much wider intervals of 50 pairs are at this confidence, because they allow for noise that lasts."""
STEP = 0.01
"""Bounds are suggested in whole per cents, durations in whole minutes."""


def undecidable_bounds(slo: Slo, pairs: Mapping[str, float], canaries: Mapping[str, int]) -> Iterator[Complaint]:
    """Yield the bounds on speed that a run which is as fast as the certified one proves too rarely.

    *pairs* are those of answers to the *canaries* of each workload that a soak has in its duration. The certified run
    is taken to be as long as that, this one as long as it may be; of more certified runs, which count together,
    nothing is known yet.
    """
    for workload in slo.workload:
        for objective in slo.against_certified(workload.name):
            if objective.metric not in SPEED_RATIOS or objective.bound != "at_least" or not pairs.get(workload.name):
                continue
            distance = _provable_distance(slo, pairs[workload.name], canaries[workload.name])
            room = -math.log(objective.threshold) if objective.threshold > 0 else math.inf
            if room < distance:
                about, message = about_objective(objective, workload), _message(slo, objective, pairs[workload.name])
                yield Complaint("never", about, message, _hint(slo, distance, room))


def _message(slo: Slo, objective: Objective, pairs: float) -> str:
    return (
        f'at_least = {objective.threshold:g} against = "certified" is closer than two soaks of '
        f"{show_seconds(slo.soak.duration)} can tell apart: about {pairs:.0f} pairs of answers each, at a noise of "
        f"{percent(NOISE)} an answer"
    )


def _hint(slo: Slo, distance: float, room: float) -> str:
    bound = math.floor(math.exp(-distance) / STEP + 1e-9) * STEP
    hint = f"set at_least = {bound:.2f} or less"
    if room <= 0:
        return hint
    minutes = math.ceil(slo.soak.duration * (distance / room) ** 2 / 60)
    return f'{hint}, or duration = "{minutes}m" and max_duration in proportion in [soak]'


def _provable_distance(slo: Slo, pairs: float, canaries: int) -> float:
    """Return how far below 1 a bound must lie, as a log, to be proven in a share of POWER where nothing changed.

    The standard error of the difference of two means of log ratios, each with the noise of two answers a pair; repeats
    of the canaries in the shorter soak show the noise.
    """
    longest = pairs * (slo.soak.max_duration / slo.soak.duration if slo.soak.ends == "decided" else 1.0)
    looks = [(slo.soak.duration, max(1, round(pairs))), (slo.soak.max_duration, max(2, round(longest)))]
    degrees = max(LEAST_DEGREES, round(pairs) - canaries)
    quantile = WIDER * student_quantile(look_levels(slo, looks)[-1], degrees) + NormalDist().inv_cdf(POWER)
    return quantile * NOISE * math.sqrt(2) * math.sqrt(1 / pairs + 1 / longest)
