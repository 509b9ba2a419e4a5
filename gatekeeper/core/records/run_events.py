"""Events of a run: what happened, in events.jsonl."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Detail = Mapping[str, Any]
"""What an event says besides its kind; which keys it has is the kind's."""


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
