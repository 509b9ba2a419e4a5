"""What a stage needs to send its requests: the task of a soak, and of a pass after it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from gatekeeper.analysis.passes.soak_pass import Needs
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend, DecodeRequest
from gatekeeper.core.records import Generation, Kind, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Observe, Recorder


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
