"""The relay: every event of a run, answers included, as a line for a view of it on another machine."""

import json
import os
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Event, Generation

PROGRESS = "GATEKEEPER_PROGRESS"
"""Names the file that takes the lines; whoever starts a run for another machine sets it."""

_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
_ANSWERS: TypeAdapter[Generation] = TypeAdapter(Generation)
_CARRIED = "generation"
"""The one detail of an event that is no plain JSON."""


class Lines:
    """An observer that appends each event to a file, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] | None = path.open("ab", buffering=0)

    def __call__(self, event: Event) -> None:
        """Append one event; where nothing more can be written, nothing more is shown, and the run goes on."""
        if self._file is None:
            return
        line = encode(event)
        try:
            whole = self._file.write(line) == len(line)
        except OSError:
            whole = False
        if not whole:  # what the records say of a full disk decides; a view must not
            self._file.close()
            self._file = None


def wanted() -> Observer | None:
    """Return the observer somebody asked for in the environment; what the run starts inherits no wish of it."""
    path = os.environ.pop(PROGRESS, "")
    return Lines(Path(path)) if path else None


def encode(event: Event) -> bytes:
    """Return an event as one line of JSON."""
    return _EVENTS.dump_json(event) + b"\n"


def decode(line: str | bytes) -> Event | None:
    """Return the event of a line; None where the line is of no event this version knows."""
    try:
        event = _EVENTS.validate_json(line)
        if _CARRIED not in event.detail:
            return event
        made = _ANSWERS.validate_json(json.dumps(event.detail[_CARRIED]))
    except (ValidationError, ValueError, TypeError):
        return None
    return Event(event.at, event.kind, {**event.detail, _CARRIED: made})
