"""Events of a run: recorded in events.jsonl and passed to observers."""

from collections.abc import Callable, Sequence
from typing import Any

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import RECORDED_ELSEWHERE, Event, EventKind


class EventRecorder:
    """Records the events of a run with *record*, but for those that a record file has, and calls every observer."""

    def __init__(self, record: Callable[[Event], None], clock: Clock, observers: Sequence[Observer]) -> None:
        self._record, self._clock, self._observers = record, clock, observers
        self.trouble: GatekeeperError | None = None
        """An error of ours in another thread; the next event of any thread raises it, and so ends the run."""

    def __call__(self, kind: EventKind, detail: dict[str, Any]) -> None:
        """Record an event of *kind* that happens now, and pass it to the observers."""
        if self.trouble is not None:
            raise self.trouble
        event = Event(stamp(self._clock.wall()), kind, detail)
        if kind not in RECORDED_ELSEWHERE:
            self._record(event)
        for observer in self._observers:
            observer(event)
