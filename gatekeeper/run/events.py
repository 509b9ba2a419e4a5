"""Events of a run: recorded in events.jsonl, passed to observers, and relayed as lines to another machine."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.parse import json_object
from gatekeeper.core.records import RECORDED_ELSEWHERE, Event, Generation
from gatekeeper.core.system.environment_variables import GATEKEEPER_PROGRESS
from gatekeeper.core.system.files import open_regular
from gatekeeper.core.system.record_files import ANSWERS, EVENTS

_CARRIED = "generation"
"""The one detail of an event that is not plain JSON."""


class EventRecorder:
    """Records the events of a run with *record*, but for those that a record file has, and calls every observer."""

    def __init__(self, record: Callable[[Event], None], clock: Clock, observers: Sequence[Observer]) -> None:
        self._record, self._clock, self._observers = record, clock, observers
        self.trouble: GatekeeperError | None = None
        """An error of ours in another thread; the next event of any thread raises it, and so ends the run."""

    def __call__(self, kind: str, detail: dict[str, Any]) -> None:
        """Record an event of *kind* that happens now, and pass it to the observers."""
        if self.trouble is not None:
            raise self.trouble
        event = Event(stamp(self._clock.wall()), kind, detail)
        if kind not in RECORDED_ELSEWHERE:
            self._record(event)
        for observer in self._observers:
            observer(event)


class Lines:
    """An observer that appends each event, answers included, to a file as whole lines, if it can be opened."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] | None = None
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = os.fdopen(open_regular(path, flags), "ab", buffering=0)  # never waits for a pipe's reader

    def __call__(self, event: Event) -> None:
        """Append one event; after the first line that cannot be written whole, no more are, and the run continues."""
        if self._file is None:
            return
        line = encode(event)
        try:
            is_written = self._file.write(line) == len(line)
        except OSError:
            is_written = False
        if not is_written:  # a full disk ends the run where its records are written, not here
            self._file.close()
            self._file = None


def relay_observer() -> Observer | None:
    """Return the observer of GATEKEEPER_PROGRESS, if it is set; processes that the run starts do not inherit it."""
    path = os.environ.pop(GATEKEEPER_PROGRESS, "")
    return Lines(Path(path)) if path else None


def encode(event: Event) -> bytes:
    """Return an event as one line of JSON."""
    detail = event.detail
    if isinstance(generation := detail.get(_CARRIED), Generation):
        detail = {**detail, _CARRIED: ANSWERS.dump_python(generation, mode="json")}
    return EVENTS.dump_json(Event(event.at, event.kind, detail)) + b"\n"


def decode(line: str | bytes) -> Event | None:
    """Return the event of a line; None where it is damaged or of an unknown version."""
    try:
        event = EVENTS.validate_python(json_object(line))
        if _CARRIED not in event.detail:
            return event
        generation = ANSWERS.validate_python(event.detail[_CARRIED])
    except ValueError:
        return None
    return Event(event.at, event.kind, {**event.detail, _CARRIED: generation})
