"""The raw records of a run: answers, readings of answers, host samples and events, one JSON line each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gatekeeper.core.records.answers import EMPTY as EMPTY
from gatekeeper.core.records.answers import NO_CONNECTION as NO_CONNECTION
from gatekeeper.core.records.answers import TIMEOUT as TIMEOUT
from gatekeeper.core.records.answers import Answer as Answer
from gatekeeper.core.records.answers import Claims as Claims
from gatekeeper.core.records.answers import Generation as Generation
from gatekeeper.core.records.answers import Knobs as Knobs
from gatekeeper.core.records.answers import Role as Role
from gatekeeper.core.records.answers import Rounds as Rounds
from gatekeeper.core.records.answers import Setting as Setting
from gatekeeper.core.records.answers import setting as setting
from gatekeeper.core.records.host_samples import HostSample as HostSample
from gatekeeper.core.records.host_samples import Reading as Reading
from gatekeeper.core.records.readings import Forced as Forced
from gatekeeper.core.records.readings import Likely as Likely
from gatekeeper.core.records.readings import Numerics as Numerics
from gatekeeper.core.records.readings import Parting as Parting
from gatekeeper.core.records.readings import Replayed as Replayed
from gatekeeper.core.records.readings import Scored as Scored
from gatekeeper.core.records.readings import Tie as Tie
from gatekeeper.core.records.readings import token_number as token_number
from gatekeeper.core.records.run_events import RECORDED_ELSEWHERE as RECORDED_ELSEWHERE
from gatekeeper.core.records.run_events import Detail as Detail
from gatekeeper.core.records.run_events import Event as Event
from gatekeeper.core.records.run_events import EventKind as EventKind

Kind = TypeVar("Kind", Generation, HostSample, Event, Tie, Forced, Replayed, Numerics, Scored)
FollowUpRecord = TypeVar("FollowUpRecord", Generation, Tie, Forced, Replayed, Numerics, Scored)
"""The kinds that follow-ups of a soak record: each is of a canary of a workload."""

MISSING = "missing"
"""The trouble of a record file that is not there."""


@dataclass(frozen=True, slots=True)
class StoredRecords(Generic[Kind]):
    """The content of a record file; `trouble` is what is wrong with the file, None where nothing is."""

    records: Sequence[Kind] = ()
    trouble: str | None = None
    whole_bytes: int = 0
    """How much of the file is whole records: a resumed run appends there."""
    damaged: bool = False
    """The trouble is not what a killed run leaves, which is a file that ends early."""
