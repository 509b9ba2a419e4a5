"""Noise that lasts over several answers: how much it adds to the uncertainty of a mean over time.

Answers that follow each other are then alike, so that their mean is less certain than the spread of repeats shows. How
long such noise lasts, and how much of all noise it is, are unknown; a short soak shows them only roughly. So every
pair of both on a grid is weighed by the restricted likelihood of the answers, with most of the prior on independent
noise, and a bound is one of the mixture. Where a series is too short to show that its noise is independent, the prior
widens the interval; where it shows it, nothing does.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from gatekeeper.analysis.stats.intervals import Floats, Ints, numbered, student_quantile
from gatekeeper.analysis.stats.root_finding import root
from gatekeeper.core.verdict import Estimate

LENGTHS = (2.0, 5.0, 12.0, 30.0, 75.0, 200.0)
"""Answers over which noise lasts (it keeps 1 - 1 / length from one to the next), those up to half of the series."""
SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of all noise, the share that lasts."""
INDEPENDENT = 0.8
"""Prior of noise that does not last: it costs 24 pairs a tenth of width, and 72 pairs nothing."""
EXACT = 160
"""Longer series are taken in parts of at least as many answers: the time grows with the cube of a part."""
LEAST = 8
"""With fewer degrees of freedom the series shows nothing."""
ROUNDING = 1e-24
"""Variance of logs that rounding leaves of equal values, at some lengths and on some processors."""
NEGLIGIBLE = 1e-3
"""Weights below are left out."""


@dataclass(frozen=True, slots=True)
class TimedLogs:
    """Log values of one arm, each with the number of its canary, in the order of time: of the soak and before it."""

    owner: Ints
    logs: Floats
    before_owner: Ints
    before: Floats

    @classmethod
    def of(cls, soak: Sequence[tuple[Hashable, float]], before: Sequence[tuple[Hashable, float]] = ()) -> "TimedLogs":
        """Return the series of (canary, log value) in the soak and before it; only canaries of the soak count."""
        present, n = {name for name, _ in soak}, len(soak)
        series = [*soak, *(pair for pair in before if pair[0] in present)]
        _, owner = numbered(name for name, _ in series)
        logs = np.array([value for _, value in series], dtype=np.float64)
        return cls(owner[:n], logs[:n], owner[n:], logs[n:])

    def less(self, plain: "TimedLogs", share: float) -> "TimedLogs":
        """Return what is left of these values without a *share* of those of the *plain* arm."""
        return replace(self, logs=self.logs - share * plain.logs, before=self.before - share * plain.before)


@dataclass(frozen=True, slots=True)
class Lasting:
    """What lasting noise may add to the variance of the mean log, each amount with its weight."""

    weights: Floats
    more: Floats
    degrees: int

    @property
    def likely(self) -> float:
        """Return the weight of any lasting noise."""
        return float(self.weights[self.more > 0].sum())


NONE = Lasting(np.ones(1), np.zeros(1), 1)


def of_one_arm(series: TimedLogs, *, trend: bool = False) -> Lasting:
    """Weigh how noise of this series may last; with *trend*, a straight trend over the soak is no noise.

    One before the soak never is: a system that settles in the sweep says nothing about the soak.
    """
    if len(series.logs) < LEAST:
        return NONE
    squares = _squares(series, trend)
    if not squares or not squares[0][1].any():
        return NONE
    n = len(series.logs)
    likely, more = [], []
    for number, (length, powers, shapes) in enumerate(squares):
        apart = np.arange(1, n)
        times = 2 * float(((1 - apart / n) * (1 - 1 / length) ** apart).sum())
        for share in (0.0, *SHARES) if number == 0 else SHARES:
            expected = np.maximum(1 - share + share * shapes, 1e-9)
            noise = float((powers / expected).mean())
            if noise <= ROUNDING:
                return NONE
            likely.append(-0.5 * float(np.log(expected).sum()) - 0.5 * len(powers) * math.log(noise))
            more.append(noise * share * times / n)
    prior = np.full(len(likely), (1 - INDEPENDENT) / (len(likely) - 1))
    prior[0] = INDEPENDENT
    weights = prior * np.exp(np.array(likely) - max(likely))
    return _pruned(weights, np.array(more), len(squares[0][1]))


def of_both_arms(drafting: TimedLogs, plain: TimedLogs, *, trend: bool = False) -> Lasting:
    """Weigh how noise of a ratio may last, from each arm: that of the host hits both and cancels.

    What plain decoding's noise predicts of the other arm's is taken out of it. The rest shows what lasts in that arm
    alone, where plain decoding's own noise would hide it.
    """
    apart, plain_apart = _apart(drafting), _apart(plain)
    plain_power = float(plain_apart @ plain_apart)
    share = min(1.0, max(0.0, float(apart @ plain_apart) / plain_power)) if plain_power > 0 else 0.0
    own_noise, plain_noise = of_one_arm(drafting.less(plain, share), trend=trend), of_one_arm(plain, trend=trend)
    return together(own_noise, replace(plain_noise, more=(1 - share) ** 2 * plain_noise.more))


def together(first: Lasting, second: Lasting) -> Lasting:
    """Return what two series of independent noise may add to the variance of the difference of their means."""
    weights, more = np.outer(first.weights, second.weights), np.add.outer(first.more, second.more)
    return _pruned(weights.ravel(), more.ravel(), first.degrees)


def widened(estimate: Estimate, noise: Lasting) -> Estimate:
    """Return the estimate whose bounds, those for prompts like them too, allow for noise that lasts.

    It makes all answers faster or slower alike, so that it moves a mean and a quantile by the same factor.
    """
    population = estimate.population and widened(estimate.population, noise)
    if estimate.confidence is None or not 0 < estimate.center < math.inf or noise.likely <= 0:
        return replace(estimate, population=population)
    lo, hi = estimate.lo, estimate.hi
    if lo > 0:
        lo = estimate.center * math.exp(-_wider(math.log(estimate.center / lo), estimate.confidence, noise))
    if hi < math.inf:
        hi = estimate.center * math.exp(_wider(math.log(hi / estimate.center), estimate.confidence, noise))
    return replace(estimate, lo=lo, hi=hi, population=population)


def _wider(half: float, level: float, noise: Lasting) -> float:
    """Return the half width that is exceeded as rarely as *level* allows; *half* is that without lasting noise."""
    z = NormalDist().inv_cdf(level)
    factor = student_quantile(level, noise.degrees)
    errors: list[float] = np.sqrt((half / z) ** 2 + (factor / z) ** 2 * noise.more).tolist()
    if max(errors) <= 0:
        return half
    weights: list[float] = noise.weights.tolist()
    parts, sqrt2, erf = list(zip(weights, errors, strict=True)), math.sqrt(2), math.erf

    def inside(width: float) -> float:
        # The shares are NormalDist().cdf(width / error), written out: they are asked for by the thousand.
        return sum([weight * (0.5 * (1 + erf(width / error / sqrt2)) if error else 1.0) for weight, error in parts])

    return root(lambda width: inside(width) - level, half, max(half, z * max(errors)) * (1 + 1e-9))


def _pruned(weights: Floats, more: Floats, degrees: int) -> Lasting:
    weights = weights / weights.sum()
    relevant = weights > NEGLIGIBLE
    return Lasting(weights[relevant] / weights[relevant].sum(), more[relevant], degrees)


def _squares(series: TimedLogs, trend: bool) -> list[tuple[float, Floats, Floats]]:
    """Return, by length, the squares of independent sums of a series, and the variance of each where all noise lasts.

    The variance is 1 where it does not. Of a long series, the parts of what is left without the heights of canaries.
    """
    n, owner, before = len(series.logs), series.owner, series.before_owner
    if n + len(before) <= EXACT:
        parts = [(np.concatenate([series.logs, series.before]), _sums(owner.tobytes(), before.tobytes(), trend))]
    else:
        parts = [
            (part, _sums(np.zeros(len(part), dtype=np.int64).tobytes(), b"", falls))
            for values, falls in zip(np.split(_apart(series), [n]), (trend, True), strict=True)
            for part in np.array_split(values, max(1, len(values) // EXACT))
            if len(part) > 2 * LEAST
        ]
    squares = []
    for sums in zip(*(sums for _, sums in parts), strict=False):  # the shortest part has the fewest lengths
        powers = [(transform @ part) ** 2 for (_, transform, _), (part, _) in zip(sums, parts, strict=True)]
        squares.append((sums[0][0], np.concatenate(powers), np.concatenate([variances for *_, variances in sums])))
    return squares


@lru_cache(maxsize=8)
def _sums(owner_bytes: bytes, before_bytes: bytes, trend: bool) -> tuple[tuple[float, Floats, Floats], ...]:
    """Return, by length, the sums in which heights of canaries, the shift before the soak and trends cancel."""
    owner, before = (np.frombuffer(part, np.int64) for part in (owner_bytes, before_bytes))
    n, m = len(owner), int(owner.max(initial=-1)) + 1
    number = np.arange(n + len(before))
    effects = np.zeros((len(number), m + 3))
    effects[number, np.concatenate([owner, before])] = 1
    effects[n:, m] = 1
    effects[n:, m + 1] = np.linspace(-1, 1, len(before))
    if trend:
        effects[:n, m + 2] = np.linspace(-1, 1, n)
    basis, sizes, _ = np.linalg.svd(effects, full_matrices=True)
    free = basis[:, int((sizes > 1e-9 * sizes[0]).sum()) :]
    if free.shape[1] < LEAST:
        return ()
    same_part = (number < n)[:, None] == (number < n)[None, :]
    steps = np.abs(number[:, None] - number[None, :])
    sums = []
    for length in (length for length in LENGTHS if length <= max(LENGTHS[1], n / 2)):
        variances, rotation = np.linalg.eigh(free.T @ np.where(same_part, (1 - 1 / length) ** steps, 0.0) @ free)
        sums.append((length, (free @ rotation).T, variances))
    return tuple(sums)


def _apart(series: TimedLogs) -> Floats:
    """Return each value's distance from the others of its canary, or from all values where it has no others."""
    owner = np.concatenate([series.owner, series.before_owner])
    n, m = len(series.owner), int(owner.max(initial=-1)) + 1
    values = np.concatenate([series.logs, series.before])
    if len(series.before):
        first, then = (
            np.bincount(part, weights, minlength=m) / np.maximum(np.bincount(part, minlength=m), 1)
            for part, weights in ((series.owner, series.logs), (series.before_owner, series.before))
        )
        swept = np.bincount(series.before_owner, minlength=m) > 0
        values[n:] += (first - then)[swept].mean()
    count, total = np.bincount(owner, minlength=m), np.bincount(owner, values, minlength=m)
    others_mean = (total[owner] - values) / np.maximum(count[owner] - 1, 1)
    apart: Floats = values - np.where(count[owner] > 1, others_mean, values.mean())
    return apart
