"""Events of a run: recorded in events.jsonl, shown to observers, and relayed as lines to another machine."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import RECORDED_ELSEWHERE, Event, Generation

PROGRESS = "GATEKEEPER_PROGRESS"
"""Environment variable with the file for the lines; a run that is started for another machine has it."""

_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
_ANSWERS: TypeAdapter[Generation] = TypeAdapter(Generation)
_CARRIED = "generation"
"""The one detail of an event that is not plain JSON."""


class EventRecorder:
    """Takes what happens in a run: *record* keeps what no record file has, and every observer is called."""

    def __init__(self, record: Callable[[Event], None], clock: Clock, observers: Sequence[Observer]) -> None:
        self._record, self._clock, self._observers = record, clock, observers

    def __call__(self, kind: str, detail: dict[str, Any]) -> None:
        """Record and show an event of *kind* that happens now."""
        event = Event(stamp(self._clock.wall()), kind, detail)
        if kind not in RECORDED_ELSEWHERE:
            self._record(event)
        for observer in self._observers:
            observer(event)


class Lines:
    """An observer that appends each event, answers included, to a file as whole lines."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] | None = path.open("ab", buffering=0)

    def __call__(self, event: Event) -> None:
        """Append one event; once a line cannot be written whole, no more are, and the run continues."""
        if self._file is None:
            return
        line = encode(event)
        try:
            whole = self._file.write(line) == len(line)
        except OSError:
            whole = False
        if not whole:  # a full disk is an error of the records, not of a view
            self._file.close()
            self._file = None


def wanted() -> Observer | None:
    """Return the observer that the environment asks for, if any; processes that the run starts do not inherit it."""
    path = os.environ.pop(PROGRESS, "")
    return Lines(Path(path)) if path else None


def encode(event: Event) -> bytes:
    """Return an event as one line of JSON."""
    return _EVENTS.dump_json(event) + b"\n"


def decode(line: str | bytes) -> Event | None:
    """Return the event of a line, None where this version does not know it."""
    try:
        event = _EVENTS.validate_json(line)
        if _CARRIED not in event.detail:
            return event
        made = _ANSWERS.validate_json(json.dumps(event.detail[_CARRIED]))
    except (ValidationError, ValueError, TypeError):
        return None
    return Event(event.at, event.kind, {**event.detail, _CARRIED: made})
