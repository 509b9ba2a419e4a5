"""How much sooner the same work is done: the total time of one arm over that of the other, linearised.

The ratio of two sums is no mean, but near its value it moves as a mean does (delta method; Cochran 1977, section 6.4).
So each pair gets a log value such that the mean over canaries of their mean values is the log of the ratio, and the
values scatter as the ratio does. Whatever bounds a mean of log ratios then bounds the ratio of total times.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from gatekeeper.analysis.stats.intervals import by_canary

ARMS = (0, 1)
"""Plain decoding, and the candidate."""
Times = Sequence[tuple[str, float, float]]
"""Each pair's canary, and the seconds of plain decoding and of the candidate for the same tokens."""
Logs = list[tuple[str, float]]
"""Each pair's canary, and a log of plain decoding's time over the candidate's."""


@dataclass(frozen=True, slots=True)
class PairLogs:
    """Logs of pairs, whose mean over canaries of each one's mean is the log of a ratio."""

    logs: Logs
    before: Logs = field(default_factory=list)
    """The logs of pairs before these, which show the noise of a canary."""
    weights: Mapping[str, float] | None = None
    """The plain time of each canary, 1 on average; None where each pair's ratio counts alike."""

    def means(self) -> dict[str, float]:
        """Return the mean log of each canary."""
        return {name: fmean(logs) for name, logs in sorted(by_canary(self.logs).items())}

    def pseudovalues(self) -> list[float]:
        """Return a log of each canary whose mean is that of the ratio and whose scatter is that of a sample of prompts.

        Where the ratio is one of totals they are the jackknife's (Efron & Tibshirani 1993, chapter 11): a canary that
        takes much of the time pulls the ratio to itself, so that its linearised value understates how far it is off.
        """
        means = self.means()
        if self.weights is None or len(means) < 2:
            return list(means.values())
        n, center = len(means), fmean(means.values())
        plain_shares = [self.weights[name] / n for name in means]
        candidate_shares = [
            share - (mean - center) / n for share, mean in zip(plain_shares, means.values(), strict=True)
        ]
        # Without one canary, the log of the ratio moves by so much.
        moves = [
            math.log1p(-plain) - math.log1p(-candidate)
            for plain, candidate in zip(plain_shares, candidate_shares, strict=True)
        ]
        mean_move = fmean(moves)
        return [center - (n - 1) * (move - mean_move) for move in moves]


def ratio(times: Times) -> float:
    """Return total plain time over total candidate time, each canary by its mean."""
    plain, candidate = _sums(_means(times))
    return plain / candidate


def linearise_times(times: Times, before: Times = ()) -> PairLogs:
    """Return the logs of the pairs for total plain time over total candidate time; a canary weighs by its time.

    Pairs *before* may have run at other speeds: each arm is scaled to the time that it takes now for the canaries of
    both.
    """
    if not times:
        return PairLogs([])
    now, then = _means(times), _means(before)
    common = [name for name in then if name in now]
    sums = _sums(now)
    center = math.log(sums[0] / sums[1])
    logs = [(name, center + plain / sums[0] - candidate / sums[1]) for name, plain, candidate in times]
    weights = {name: mean[0] / sums[0] for name, mean in now.items()}
    if not common:
        return PairLogs(logs, weights=weights)
    scaled = [
        sums[arm] * math.fsum(then[name][arm] for name in common) / math.fsum(now[name][arm] for name in common)
        for arm in ARMS
    ]
    earlier = [
        (name, center + plain / scaled[0] - candidate / scaled[1]) for name, plain, candidate in before if name in now
    ]
    return PairLogs(logs, earlier, weights)


def _sums(means: Mapping[str, tuple[float, float]]) -> list[float]:
    """Return the mean over canaries of each arm's seconds."""
    return [math.fsum(mean[arm] for mean in means.values()) / len(means) for arm in ARMS]


def _means(times: Times) -> dict[str, tuple[float, float]]:
    """Return by canary the mean seconds of both arms."""
    groups = by_canary((name, (plain, candidate)) for name, plain, candidate in times)
    return {
        name: (fmean(plain for plain, _ in group), fmean(other for _, other in group)) for name, group in groups.items()
    }
