"""The probes of a capacity: the requests of one arm with some streams, and how many answers decide."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice

from gatekeeper.analysis.metrics.readers import OfGaps, reader_of
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.region_points import slo_at
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.analysis.plan.shuffled_rounds import endless_rounds
from gatekeeper.analysis.stats.intervals import samples_needed
from gatekeeper.analysis.stats.stream_search import SHORT
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Role, Setting, setting
from gatekeeper.core.slo import Objective, Slo

CAPACITY = "capacity.jsonl"
"""The record file of the answers of all probes of all workloads."""
TURNS = 2
"""Answers of each stream in a full probe, at least."""
OF_GAPS = 1.6
"""Times as many answers prove a quantile of their gaps as one of a value an answer: its spread is estimated."""


@dataclass(frozen=True, slots=True)
class StreamLevel:
    """One arm of a workload with some number of streams."""

    workload: str
    arm: str
    """`plain` or `candidate`."""
    streams: int
    drafting: Setting
    """The setting of the speculating arm, with this many streams; plain decoding where none speculates."""
    slo: Slo
    """As it reads with this many streams."""
    canaries: Sequence[Canary] = field(repr=False)
    seed: int

    @property
    def name(self) -> str:
        """Return its name, as the trial of its records."""
        return f"{self.arm}-{self.streams}"

    @property
    def knobs(self) -> Setting:
        """Return the setting of its arm."""
        return self.drafting if self.arm == "candidate" else plain_of(self.drafting)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Return the latency objectives of its arm."""
        return latency_objectives(self.slo, self.workload, self.arm)

    def requests(self, answers: int) -> list[PlannedRequest]:
        """Return the first so many requests: every canary once before one comes again, in both arms the same."""
        return [*islice(self._requests(), answers)]

    def load(self) -> Iterator[PlannedRequest]:
        """Yield requests without end whose answers are not judged: they keep the streams busy around those that are."""
        for number, request in enumerate(self._requests("load")):
            yield replace(request, prefix=f"load:{self.name}.{number}", role=Role.WARMUP, pair="")

    def _requests(self, purpose: str = "measured") -> Iterator[PlannedRequest]:
        order = endless_rounds(self.canaries, random.Random(f"{self.seed}/{self.workload}/{self.streams}/{purpose}"))
        for number, canary in zip(count(), order):
            pair = f"{self.streams}.{number}"
            yield PlannedRequest(
                self.workload,
                canary,
                self.arm,
                self.knobs,
                trial=self.name,
                prefix=f"{self.arm}:{pair}",
                pair=pair,
                concurrency=self.streams,
            )

    def answers_needed(self, error: float | None) -> int:
        """Return the answers of a probe: of a short one, or of one that proves the objectives at this *error*."""
        shortest = max(SHORT, self.streams)
        if error is None:
            return shortest
        needs = [_answers(objective, error) for objective in self.objectives]
        return max([shortest, TURNS * self.streams, self.slo.capacity.answers, *needs])


def _answers(objective: Objective, error: float) -> int:
    needed = samples_needed(objective.of.quantile or 0.5, 1 - error)
    return math.ceil(OF_GAPS * needed) if isinstance(reader_of(objective.metric), OfGaps) else needed


def latency_objectives(slo: Slo, workload: str, arm: str) -> tuple[Objective, ...]:
    """Return the objectives that bound a quantile of a time, measured by us, in an arm of *workload*."""
    return tuple(
        objective
        for objective in slo.objectives_for(workload, speculating=arm == "candidate")
        if objective.of.quantile is not None
        and objective.of.unit == "s"
        and objective.bound == "at_most"
        and objective.source == "ours"
    )


def stream_level(
    slo: Slo, workload: str, route: Setting, canaries: Sequence[Canary], arm: str, streams: int, *, seed: int
) -> StreamLevel:
    """Return an arm of *workload*, at the setting of its *route*, with so many streams."""
    drafting = setting(**{**dict(route), "concurrency": streams})
    return StreamLevel(workload, arm, streams, drafting, slo_at(slo, (("concurrency", streams),)), canaries, seed)
