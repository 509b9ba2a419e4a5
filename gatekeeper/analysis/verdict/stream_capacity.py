"""The capacity of a workload: how many streams keep its latency objectives, in each arm, and where drafting pays."""

from collections.abc import Iterable
from dataclasses import dataclass

from gatekeeper.analysis.stats.stream_search import Reach, StreamReading
from gatekeeper.core.verdict import Estimate, Missing, Outcome, figures, known, rounded

KEEPS = {Outcome.PASS: "keeps", Outcome.FAIL: "breaks", Outcome.UNPROVEN: "open"}
GAINS = {Outcome.PASS: "faster", Outcome.FAIL: "slower", Outcome.UNPROVEN: "open"}


@dataclass(frozen=True, slots=True)
class MeasuredLatency:
    """One latency objective with some streams."""

    metric: str
    bound: float
    """Seconds."""
    center: float
    lo: float | None
    """The ends of its interval, each at the SLO's confidence for this number alone; None: the answers give none."""
    hi: float | None

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        ends = {"lo": self.lo, "hi": self.hi}
        return {
            "metric": self.metric,
            "at_most": self.bound,
            "center": rounded(self.center),
            **{end: rounded(value) for end, value in ends.items() if value is not None},
        }


@dataclass(frozen=True, slots=True)
class LevelReading:
    """What one probe of an arm showed."""

    streams: int
    reading: StreamReading
    because: str
    answers: int
    failed: int
    latencies: tuple[MeasuredLatency, ...] = ()
    speed: float | None = None
    """Tokens per second of all streams together."""

    @property
    def tightest(self) -> MeasuredLatency | None:
        """Return the objective that is nearest to its bound, or farthest beyond it."""
        return max(self.latencies, key=lambda latency: latency.center / latency.bound, default=None)

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "streams": self.streams,
            "outcome": KEEPS[self.reading.outcome],
            "because": self.because,
            "answers": self.answers,
            "failed": self.failed,
            "latencies": [latency.document() for latency in self.latencies],
            **known(tokens_per_second=rounded(self.speed) if self.speed is not None else None),
        }


@dataclass(frozen=True, slots=True)
class ArmCapacity:
    """How many streams of one arm keep its latency objectives."""

    reach: Reach
    levels: tuple[LevelReading, ...]
    """Of each number of streams its last probe, the fewest first."""

    def word(self, level: LevelReading) -> str:
        """Return what is proven with as many streams: keeps, breaks, inside or outside by another probe, or open."""
        if level.reading.outcome is not Outcome.UNPROVEN:
            return KEEPS[level.reading.outcome]
        if level.streams < self.reach.least:
            return "inside"
        return "open" if self.reach.most is None or level.streams <= self.reach.most else "outside"

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {**_reach(self.reach), "levels": [level.document() for level in self.levels]}


@dataclass(frozen=True, slots=True)
class GainReading:
    """How much faster drafting is with some streams, all of them together."""

    streams: int
    reading: StreamReading
    ratio: Estimate | Missing

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "streams": self.streams,
            "outcome": GAINS[self.reading.outcome],
            **figures("system_throughput_ratio", self.ratio),
        }


@dataclass(frozen=True, slots=True)
class Gain:
    """With how many streams drafting is faster than plain decoding, of those that keep the objectives with it."""

    reach: Reach
    """`most` is one less than the fewest with which plain decoding is proven faster."""
    levels: tuple[GainReading, ...]

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {**_reach(self.reach), "levels": [level.document() for level in self.levels]}


@dataclass(frozen=True, slots=True)
class StreamCapacity:
    """The capacity of one workload."""

    tried: int
    """The most streams that were tried."""
    confidence: float
    """Of each end of each interval alone."""
    plain: ArmCapacity
    draft: ArmCapacity | None = None
    """None where the workload decodes plainly."""
    gain: Gain | None = None
    """None where no number of streams is proven to keep the objectives with the draft."""
    because: str | None = None
    """Why its records are damaged, if they are."""

    @property
    def max_concurrency(self) -> int:
        """Return the most streams that are proven to keep every objective with a draft, and to be faster with it."""
        return self.gain.reach.least if self.gain is not None else 0

    @property
    def answers(self) -> int:
        """Return how many answers it rests on."""
        return sum(level.answers for arm in (self.plain, self.draft) if arm is not None for level in arm.levels)

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "streams": self.tried,
            "confidence": self.confidence,
            "plain": self.plain.document(),
            **known(
                draft=self.draft and self.draft.document(),
                gain=self.gain and self.gain.document(),
                max_concurrency=self.max_concurrency if self.draft is not None else None,
                because=self.because,
            ),
        }


def last_of_each(levels: Iterable[LevelReading]) -> tuple[LevelReading, ...]:
    """Return the last probe of each number of streams that was measured to its end, the fewest first."""
    by_streams: dict[int, LevelReading] = {}
    for level in levels:
        if level.answers or level.streams not in by_streams:
            by_streams[level.streams] = level
    return tuple(by_streams[streams] for streams in sorted(by_streams))


def _reach(reach: Reach) -> dict[str, object]:
    return {"at_least": reach.least, "at_most": reach.most}
