"""A follow-up: a further measurement after a soak, whose records add to the answers of the soak."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem
from gatekeeper.core.records import FollowUpRecord, Generation, Role, Setting, StoredRecords
from gatekeeper.core.slo import Slo

Needs = Mapping[str, Sequence[Any]]
"""What a follow-up still has to find out, by workload; workloads without need of it are left out."""


@dataclass(frozen=True, slots=True)
class Soaked:
    """A soak that was recorded, as its follow-ups read it, and plan what they send."""

    slo: Slo
    plan: SoakPlan
    terms: Terms
    answers: Callable[[str], PairedAnswers]
    """The answers of a workload, with what the follow-ups recorded so far."""
    looks: Callable[[str], Sequence[PairedAnswers]]
    """The answers of a workload at each look at the soak."""
    canaries: Mapping[str, Sequence[Canary]] = field(default_factory=dict)
    seed: int = 0
    segment: int = 0

    @property
    def settings(self) -> Mapping[str, Setting]:
        """Return the settings by workload."""
        return self.plan.settings

    def request(
        self, workload: str, canary: Canary, arm: str, *, without: Collection[str] = (), **fields: Any
    ) -> PlannedRequest:
        """Return a request for *canary* at its workload's setting, or at plain decoding, *without* some knobs."""
        knobs = self._knobs(workload, arm)
        setting = tuple((knob, value) for knob, value in knobs if knob not in without)
        return PlannedRequest(workload, canary, arm, setting, trial=self.plan.name, **fields)

    def request_to_read(self, workload: str, canary_id: str, arm: str) -> DecodeRequest:
        """Return the request of a canary in an arm, one at a time."""
        canary = next(canary for canary in self.canaries[workload] if canary.id == canary_id)
        knobs = tuple((knob, value) for knob, value in self._knobs(workload, arm) if knob != "concurrency")
        return DecodeRequest(canary, knobs, sampling_for(self.slo, canary, knobs, 1))

    def _knobs(self, workload: str, arm: str) -> Setting:
        knobs = self.settings[workload]
        return plain_of(knobs) if arm == "plain" else knobs


@dataclass(frozen=True, slots=True)
class RequestStep:
    """Requests for answers: they are sent one after the other, to a process of their own."""

    resident: Setting
    """The setting the process is started for."""
    requests: Sequence[PlannedRequest]
    cache: bool = False
    """The process keeps its prompt cache on."""


@dataclass(frozen=True, slots=True)
class PlannedReading(Generic[FollowUpRecord]):
    """What the running system itself shows of a canary, such as logits; it becomes one record."""

    record: FollowUpRecord
    """The record without what is read: its identity, workload and canary."""
    read: Callable[[FollowUpRecord, RunningSystem | None, DecodeRequest], FollowUpRecord] | None
    """Completes the record; None: nothing can be read, and the record says so."""
    arm: str = "plain"


@dataclass(frozen=True, slots=True)
class ReadingStep(Generic[FollowUpRecord]):
    """Readings that do not depend on each other."""

    readings: Sequence[PlannedReading[FollowUpRecord]]
    before: int = 0
    """So many of the *planned* ones are done, for the progress that is shown."""
    planned: int | None = None
    """How many there are with those of other steps; None: these are all."""


Step = RequestStep | ReadingStep[FollowUpRecord]
"""What is planned at once, with the records so far."""


@dataclass(frozen=True, slots=True)
class FollowUp(Generic[FollowUpRecord]):
    """One further measurement after a soak: when it is due, what it sends, how long it takes, what it adds."""

    name: str
    """The one name of it: of its module, its stage, its part of a forecast, and its record files, `NAME-1.jsonl`."""
    kind: type[FollowUpRecord]
    """The type of its records."""
    title: str
    """What `plan` shows."""
    needs: Callable[[Soaked], Needs]
    steps: Callable[[Soaked, Needs, Sequence[FollowUpRecord]], Iterable[Step[FollowUpRecord]]]
    """Return what to send, for needs and with the records so far; the sequence grows while the steps are taken.

    What is recorded already is left out by the sender.
    """
    identity: Callable[[FollowUpRecord], object]
    """Return what no two of its records share: of an answer, the key of its request."""
    add: Callable[[PairedAnswers, StoredRecords[FollowUpRecord]], PairedAnswers] = lambda answers, _: answers
    """Return the answers of a workload with what the records make of them, besides the records themselves."""
    forecast: Callable[[RequestCosts, Mapping[str, Setting]], Iterable[float]] = lambda *_: ()
    """Return the seconds of each request, by the settings of the workloads; none where nothing can be foreseen."""
    each_part: bool = True
    """It runs after each part of a soak; otherwise once, after the first part."""
    of_all_workloads: bool = False
    """What it recorded of the other workloads counts for a workload as well."""
    conditional: bool = False
    """Its requests are sent only if a check would not pass without them, as its title says."""
    of_plain: bool = False
    """It runs for workloads that decode plainly as well."""
    fresh: bool = False
    """Its requests need a process that has just started."""

    def file(self, soak: SoakPlan) -> str:
        """Return the name of its record file."""
        return self.file_of(soak.file.removesuffix(".jsonl") if self.each_part else soak.name)

    def file_of(self, soak_file: str) -> str:
        """Return the name of its record file beside a soak's: `soak-1` has `near_ties-1.jsonl`."""
        return f"{self.name}-{soak_file.removeprefix('soak-')}.jsonl"


def key_of(answer: Generation) -> str:
    """Return the identity of an answer: the key of its request."""
    return answer.key


def add_untimed(answers: PairedAnswers, recorded: StoredRecords[Generation]) -> PairedAnswers:
    """Return the answers with further ones whose words count, and whose times do not."""
    return replace(answers, untimed=(*answers.untimed, *recorded.records))


def drop_recorded(requests: Iterable[PlannedRequest], records: Iterable[Generation]) -> list[PlannedRequest]:
    """Return the requests that have no record."""
    done = set(map(key_of, records))
    return [request for request in requests if request.key not in done]


def warm_first(request: PlannedRequest, missing: Sequence[PlannedRequest], segment: int) -> list[PlannedRequest]:
    """Return the *missing* requests with *request* before them, which only warms: the segment has a new process."""
    warm_up = replace(request, role=Role.WARMUP, prefix=f"warmup-{segment}-{request.prefix}", pause_s=0.0)
    return [warm_up, *missing]
