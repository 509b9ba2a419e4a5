"""What a stage needs to send its requests: the task of a soak, of a pass after it, and of one at the end of a run."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from gatekeeper.analysis.passes.soak_pass import Needs, Pass
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.sweep.routing_gain import RoutingRequest
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend, DecodeRequest
from gatekeeper.core.records import Generation, Kind, Setting, StoredRecords
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Observe, Recorder

Request = TypeVar("Request", PlannedRequest, RoutingRequest)


@dataclass(frozen=True, slots=True)
class SoakTask:
    """One soak, or one pass after it: the workloads that are served together, each with its setting."""

    slo: Slo
    plan: SoakPlan
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    segment: int
    before: tuple[Generation, ...] = ()
    """What earlier parts, and interrupted segments, recorded."""
    compared: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By workload, the canaries that the sweep answered in both arms at this setting."""
    forced: Collection[str] = ()
    """The workloads whose words are compared by teacher forcing."""

    def request(
        self, workload: str, canary: Canary, arm: str, *, without: Collection[str] = (), **fields: Any
    ) -> PlannedRequest:
        """Return a request for *canary* at its workload's setting, or at plain decoding, *without* some knobs."""
        knobs = self.plan.settings[workload]
        knobs = knobs if arm == "candidate" else plain_of(knobs)
        setting = tuple((knob, value) for knob, value in knobs if knob not in without)
        return PlannedRequest(workload, canary, arm, setting, trial=self.plan.name, **fields)


class OpenClient(Protocol):
    """Opens a client of the backend."""

    def __call__(self, *, cache: bool = False) -> AbstractContextManager[Client]:
        """Return it; *cache*: its systems keep their prompt cache on."""


@dataclass(frozen=True, slots=True)
class PassTask(Generic[Kind]):
    """One pass after a soak, as its stage sends it."""

    soak: SoakTask
    """With the workloads that need the pass."""
    needs: Needs
    recorded: Sequence[Kind]
    """Of earlier parts, and of interrupted segments."""
    backend: Backend
    open_client: OpenClient
    record: Callable[[Kind], None]
    observe: Observe

    def arm_request(self, workload: str, canary_id: str, arm: str) -> DecodeRequest:
        """Return the request of a canary in an arm, one at a time."""
        soak, knobs = self.soak, self.soak.plan.settings[workload]
        knobs = plain_of(knobs) if arm == "plain" else knobs
        canary = next(canary for canary in soak.canaries[workload] if canary.id == canary_id)
        knobs = tuple((knob, value) for knob, value in knobs if knob != "concurrency")
        return DecodeRequest(canary, knobs, sampling_for(soak.slo, canary, knobs, 1))

    def report_reading(self, number: int, planned: int) -> None:
        """Report that the target has read the tokens of a *number* of *planned* records, which are no answers."""
        self.observe("reading", {"answered": number, "of": planned})

    def send_missing(
        self: "PassTask[Generation]",
        resident: Setting,
        requests: Iterable[PlannedRequest],
        *,
        cache: bool = False,
        record: Callable[[Generation], None] | None = None,
    ) -> None:
        """Send the requests that no earlier segment recorded, through a client of their own, one after the other."""
        done = {answer.key for answer in self.recorded}
        missing = [request for request in requests if request.key not in done]
        if not missing:
            return
        recorder = Recorder(record or self.record, self.observe, {"soak": self.soak.plan.name}, len(missing))
        with self.open_client(cache=cache) as client:
            client.open(resident, keep=True)
            client.send_all(iter(missing), 1, recorder)


@dataclass(frozen=True, slots=True)
class KeptRecords(Generic[Kind]):
    """The records of a file that a stage reads while it adds to them."""

    record: Callable[[Kind], None]
    records: list[Kind]
    """Those of interrupted segments, and of this one."""

    def __call__(self, record: Kind) -> None:
        """Record one."""
        self.record(record)
        self.records.append(record)


@dataclass(frozen=True, slots=True)
class FinalTask:
    """One pass at the end of a run, as its stage sends it."""

    slo: Slo
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    backend: Backend
    lacking: Sequence[Any]
    """What the pass must measure: never nothing."""
    files: Mapping[str, KeptRecords[Any]]
    """Its record files."""
    client: Client
    observe: Observe
    load_case: Callable[[], Case]
    """Read the records of the run; only a stage that needs them does, for their memory is the measured machine's."""
    phase: Callable[[str], None] = lambda _: None
    """Name the phase of the host's samples that follow."""
    send_pass: Callable[[Pass[Any], SoakTask, Needs, KeptRecords[Any]], None] = lambda *_: None
    """Send the requests of a pass after a soak, for what this one recorded."""

    @property
    def shares_process(self) -> bool:
        """Tell whether one process serves both arms."""
        return self.backend.shares_process

    def case_now(self, case: Case) -> Case:
        """Return the *case* with what the pass recorded so far."""
        so_far = {file: StoredRecords(tuple(kept.records)) for file, kept in self.files.items()}
        return replace(case, at_end={**case.at_end, **so_far})

    def recorder(self, file: str) -> Recorder:
        """Return what records the answers of a file."""
        return Recorder(self.files[file], self.observe)

    def missing(self, file: str, requests: Iterable[Request]) -> list[Request]:
        """Return the requests whose answers a file lacks."""
        done = {answer.key for answer in self.files[file].records}
        return [request for request in requests if request.key not in done]
