"""The explored capacity of a workload: how far each arm's search goes on the records, and what it must measure next.

The run calls `explore` to learn what to send next, `judge` to derive the capacity again: both follow the same records
in the same order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from gatekeeper.analysis.final_passes.level_reading import level_evidence, read_gain, read_level
from gatekeeper.analysis.plan.capacity_levels import CAPACITY, StreamLevel, stream_level
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.stats.stream_search import Reach, Search, StreamProbe, StreamReading, most_streams
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.stream_capacity import (
    ArmCapacity,
    Gain,
    GainReading,
    LevelReading,
    StreamCapacity,
    last_of_each,
)
from gatekeeper.core.records import Generation, Setting
from gatekeeper.core.verdict import Missing, Outcome

Level = TypeVar("Level", LevelReading, GainReading)
UNMEASURED = StreamReading(Outcome.UNPROVEN, None)


@dataclass(frozen=True, slots=True)
class LevelNeed:
    """What must be sent before the search can go on."""

    level: StreamLevel
    answers: int


class ProbeKey(NamedTuple):
    """One probe that was judged."""

    workload: str
    name: str
    answers: int
    error: float


@dataclass(frozen=True, slots=True)
class LevelCache:
    """What was judged, so that a run judges each probe once."""

    levels: dict[ProbeKey, LevelReading] = field(default_factory=dict)
    gains: dict[ProbeKey, GainReading] = field(default_factory=dict)


class NeedsAnswersError(Exception):
    """Ends a search whose records end before it does."""

    def __init__(self, need: LevelNeed) -> None:
        """Keep what is needed."""
        super().__init__(need.level.name)
        self.need = need


def explore(case: Case, workload: str, route: Setting, cache: LevelCache) -> StreamCapacity | LevelNeed:
    """Follow the records of one workload through its searches; return its capacity, or what must be sent next."""
    try:
        return _CapacityExplorer(case, workload, route, cache).explored()
    except NeedsAnswersError as ended:
        return ended.need


class _CapacityExplorer:
    """One walk through the searches of a workload: plain decoding's, the draft's, and where the draft pays."""

    def __init__(self, case: Case, workload: str, route: Setting, cache: LevelCache) -> None:
        self._case, self._workload, self._route, self._cache = case, workload, route, cache
        recorded = case.recorded_at_end(CAPACITY)
        self._recorded = {answer.key: answer for answer in recorded.records if answer.workload == workload}
        self._trouble = recorded.trouble
        self._error = 1 - case.slo.confidence
        self._tried = case.slo.capacity.streams or 1
        self._plain: dict[int, int] = {}
        """The answers of the last probe of plain decoding, by its streams."""

    def explored(self) -> StreamCapacity:
        """Return the capacity; raise NeedsAnswersError where the records end before the searches do."""
        plain = self._arm("plain")
        draft = self._arm("candidate") if speculates(self._route) else None
        gain = self._gain(draft.reach.least) if draft is not None and draft.reach.least else None
        return StreamCapacity(self._tried, self._case.slo.confidence, plain, draft, gain, self._trouble)

    def _arm(self, arm: str) -> ArmCapacity:
        def read(probe: StreamProbe) -> LevelReading:
            level, answers = self._measured(arm, probe)
            if answers is None:
                return LevelReading(probe.streams, UNMEASURED, "it was not measured to the end", 0, 0)
            key = ProbeKey(self._workload, level.name, len(answers), probe.error)
            if key not in self._cache.levels:
                plain = self._nearest_plain(probe.streams) if arm == "candidate" else ()
                evidence = level_evidence(level, answers, plain)
                self._cache.levels[key] = read_level(level, probe, evidence)
            return self._cache.levels[key]

        slo = self._case.slo
        search = most_streams(self._tried, self._error, slo.soak.concurrency, slo.capacity.max_duration)
        reach, probed = _followed(search, read)
        levels = last_of_each(probed)
        if arm == "plain":
            self._plain = {level.streams: level.answers for level in levels if level.answers}
        return ArmCapacity(reach, levels)

    def _gain(self, limit: int) -> Gain:
        def read(probe: StreamProbe) -> GainReading:
            (level, drafted), (_, plain) = (self._measured(arm, probe) for arm in ("candidate", "plain"))
            if drafted is None or plain is None:
                return GainReading(probe.streams, UNMEASURED, Missing("it was not measured to the end"))
            key = ProbeKey(self._workload, level.name, len(drafted), probe.error)
            if key not in self._cache.gains:
                evidence = level_evidence(level, drafted, plain)
                self._cache.gains[key] = read_gain(level, probe, evidence)
            return self._cache.gains[key]

        reach, levels = _followed(most_streams(limit, self._error, limit), read)
        by_streams = {level.streams: level for level in levels}
        return Gain(reach, tuple(by_streams[streams] for streams in sorted(by_streams)))

    def _level(self, arm: str, streams: int) -> StreamLevel:
        case, workload = self._case, self._workload
        canaries, seed = case.canaries[workload], case.plan.seed
        return stream_level(case.slo, workload, self._route, canaries, arm, streams, seed=seed)

    def _count(self, probe: StreamProbe) -> int:
        level = self._level("candidate", probe.streams)
        return probe.times * level.answers_needed(probe.error if probe.full else None)

    def _measured(self, arm: str, probe: StreamProbe) -> tuple[StreamLevel, list[Generation] | None]:
        """Return the answers of a probe; None where they were never recorded."""
        level, answers = self._level(arm, probe.streams), self._count(probe)
        keys = [request.key for request in level.requests(answers)]
        if all(key in self._recorded for key in keys):
            return level, [self._recorded[key] for key in keys]
        if self._case.live:
            raise NeedsAnswersError(LevelNeed(level, answers))
        return level, None

    def _nearest_plain(self, streams: int) -> list[Generation]:
        """Return the answers of the nearest probe of plain decoding: their gaps tell the bursts of a draft."""
        nearest = min(self._plain, key=lambda probed: abs(probed - streams), default=None)
        if nearest is None:
            return []
        return [self._recorded[request.key] for request in self._level("plain", nearest).requests(self._plain[nearest])]


def _followed(search: Search, read: Callable[[StreamProbe], Level]) -> tuple[Reach, list[Level]]:
    """Return where a search ends, and what each of its probes showed."""
    levels: list[Level] = []
    probe = next(search)
    while True:
        level = read(probe)
        levels.append(level)
        try:
            probe = search.send(level.reading)
        except StopIteration as ended:
            reach: Reach = ended.value
            return reach, levels
