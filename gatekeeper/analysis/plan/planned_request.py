"""Requests as a stage plans them: all that a record says besides the answer, and the shuffled rounds of canaries."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import SamplingParameters
from gatekeeper.core.records import Answer, Generation, Role, Setting
from gatekeeper.core.slo import Slo

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request that is to be sent; with its answer it becomes a record."""

    workload: str
    canary: Canary
    arm: str
    """`plain` or `candidate`."""
    setting: Setting
    trial: str = ""
    """The trial, or the soak, that its record belongs to."""
    prefix: str = ""
    """The first part of its key: no other request for this canary in its record file has it."""
    role: Role = Role.MEASURED
    repeat: int = 0
    pair: str = ""
    """The same for answers of both arms that may be compared."""
    concurrency: int = 1
    sampling: Setting = ()
    """What replaces the SLO's sampling."""
    pause_s: float = 0.0
    """Seconds without a request before it is sent."""

    @property
    def key(self) -> str:
        """Name the request uniquely in its record file."""
        return f"{self.prefix}:{self.workload}/{self.canary.id}"

    def as_warmup(self) -> Self:
        """Return the same request, sent alone to warm up its process; its record is labelled and never judged."""
        return replace(self, prefix=f"warmup:{self.prefix}", role=Role.WARMUP, concurrency=1)

    def sampled_by(self, slo: Slo) -> SamplingParameters:
        """Return how its tokens are sampled in a run of *slo*."""
        sampling = sampling_for(slo, self.canary, self.setting, self.concurrency, self.key)
        return replace(sampling, **dict(self.sampling))

    def record_answer(self, answer: Answer, *, segment: int, at: str) -> Generation:
        """Return its record: the *answer* ended at the wall time *at*, in this *segment* of the run."""
        return Generation(
            trial=self.trial,
            key=self.key,
            workload=self.workload,
            canary=self.canary.id,
            arm=self.arm,
            setting=self.setting,
            role=self.role,
            repeat=self.repeat,
            pair=self.pair,
            concurrency=self.concurrency,
            answer=answer,
            segment=segment,
            at=at,
        )


def shuffle_items(items: Iterable[Item], shuffle: random.Random) -> list[Item]:
    """Return *items* in random order.

    Canary files are often sorted: in file order, eight hard canaries in a row would look like a loss in every round.
    """
    order = list(items)
    shuffle.shuffle(order)
    return order


def endless_rounds(items: Sequence[Item], shuffle: random.Random) -> Iterator[Item]:
    """Yield *items* without end; each round is shuffled when it begins."""
    while items:
        yield from reversed(shuffle_items(items, shuffle))


def in_shuffled_rounds(items: Sequence[Item], number: int, seed: str) -> Item:
    """Return item *number*, counted from 0 over all rounds; it depends only on the arguments."""
    rounds, place = divmod(number, len(items))
    return shuffle_items(items, random.Random(f"{seed}/{rounds}"))[place]
