"""The raw records of a run: answers, readings of answers, host samples and events, one JSON line each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
from gatekeeper.core.records.readings import Forced as Forced
from gatekeeper.core.records.readings import Likely as Likely
from gatekeeper.core.records.readings import Numerics as Numerics
from gatekeeper.core.records.readings import Parting as Parting
from gatekeeper.core.records.readings import PassTimes as PassTimes
from gatekeeper.core.records.readings import Replayed as Replayed
from gatekeeper.core.records.readings import Scored as Scored
from gatekeeper.core.records.readings import Tie as Tie
from gatekeeper.core.records.readings import token_number as token_number

Detail = Mapping[str, Any]
"""What an event says besides its kind; which keys it has is the kind's."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of the host in base units; missing is a status, never zero."""

    value: float | str | None
    """In the unit beside it; null where the status is not ok."""
    unit: str
    """B, s, W, Hz, rpm, 1 (a count, a level or a share), or empty for a word."""
    source: str
    """The file or the tool that was read."""
    status: str
    """ok | absent | denied | stale | parse_error"""
    age: float | None = None
    """Seconds since the source was read."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """All readings of the host at one instant."""

    at: str
    """Wall time."""
    at_ns: int
    """When it was taken, on the clock of the answers."""
    values: dict[str, Reading]
    """By name: see *A reading*, and *Names of readings*."""
    phase: str = ""
    """The soak, or the point of the region; empty outside of them."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    took_ns: int = 0
    """How long taking the sample took."""
    late_ns: int = 0
    """How long after its deadline it was taken."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: progress, a transition, an incident."""

    at: str
    """Wall time."""
    kind: str
    """What happened: see *Kinds of events*."""
    detail: dict[str, Any]
    """What the kind says."""


RECORDED_ELSEWHERE = frozenset({"answer", "sample", "reading"})
"""Kinds of events that have record files of their own, so events.jsonl does not hold them."""

Kind = TypeVar("Kind", Generation, HostSample, Event, Tie, Forced, Replayed, Numerics, Scored)


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
