"""The speed over plain decoding in the course of a soak, stretch by stretch, each with its interval."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, in_order_of_time
from gatekeeper.core.clock import wall_seconds
from gatekeeper.core.metrics import DECODE_RATIO
from gatekeeper.report.data.sweep_chart import estimate_of

MOST_STRETCHES = 12
"""More of them would be too short on a phone, and of a soak of 10 min have too few answers."""
LEAST_PAIRS = 10
"""An interval needs five canaries, and a stretch seldom has each of them once."""


@dataclass(frozen=True, slots=True)
class RatioStretch:
    """The ratio over one stretch of the soak, in seconds on the axis."""

    begin: float
    end: float
    workload: str
    center: float
    lo: float
    hi: float


def ratio_stretches(gathered: Mapping[str, PairedAnswers], place: Callable[[float], float]) -> Iterator[RatioStretch]:
    """Yield the stretches of each workload, of as many pairs each; none of a soak with too few for two of them.

    *place* returns where on the axis an instant is, in seconds of wall time.
    """
    for workload, evidence in gathered.items():
        pairs = in_order_of_time(evidence.pairs)
        count = min(MOST_STRETCHES, len(pairs) // LEAST_PAIRS)
        if count < 2:
            continue
        for number in range(count):
            part = pairs[number * len(pairs) // count : (number + 1) * len(pairs) // count]
            ended = [at for drafting, _ in part if (at := wall_seconds(drafting.at)) is not None]
            if ended and (interval := _estimate(evidence, part)) is not None:
                begun = ended[0] - part[0][0].answer.seconds
                yield RatioStretch(place(begun), place(ended[-1]), workload, *interval[:3])


def _estimate(evidence: PairedAnswers, part: Sequence[Pair]) -> tuple[float, float, float, int] | None:
    """Return the ratio of some pairs alone; a stretch need not settle, for it is what shows a change."""
    drafting, plain = zip(*part, strict=True)
    alone = replace(
        evidence, answers=drafting, plain=plain, pairs=tuple(part), before=(), elsewhere=(), settled_s=None, cache={}
    )
    return estimate_of(DECODE_RATIO, alone)
