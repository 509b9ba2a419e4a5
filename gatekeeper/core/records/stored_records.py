"""The content of a record file, and what is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gatekeeper.core.records.answers import Generation
from gatekeeper.core.records.host_samples import HostSample
from gatekeeper.core.records.readings import Forced, Numerics, Replayed, Scored, Tie
from gatekeeper.core.records.run_events import Event

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
