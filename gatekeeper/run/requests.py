"""Requests to the system under test: the client that sends one, and the recorder of its answer."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import InputError, UnresponsiveError
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem
from gatekeeper.core.records import NO_CONNECTION, TIMEOUT, Answer, EventKind, Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.own_limits import check_own_limit

Observe = Callable[[EventKind, dict[str, Any]], None]
"""Takes an event: its kind and its details."""

DEATHS = 3
"""After this many deaths in a row without one complete answer, the system under test is not started again."""


@dataclass(slots=True)
class Recorder:
    """Records the answers of a stage, and reports each to the observers, with how far the stage is."""

    record: Callable[[Generation], None]
    observe: Observe
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What every report says besides."""
    planned: int | None = None
    """How many answers the stage is to have; None where that is unknown."""
    answered: int = 0

    def __call__(self, generation: Generation) -> None:
        """Record one answer; one that only warms up does not count."""
        self.record(generation)
        self.answered += generation.role is not Role.WARMUP
        progress = {} if self.planned is None else {"answered": self.answered, "of": self.planned}
        self.observe(EventKind.ANSWER, {"generation": generation, **self.detail, **progress})


class Client:
    """Sends the requests of an SLO to one running system at a time, and starts it again when it has died."""

    def __init__(self, slo: Slo, backend: Backend, observe: Observe, segment: int = 0, *, cache: bool = False) -> None:
        self._slo, self._backend, self._observe = slo, backend, observe
        self.segment, self._cache = segment, cache
        self.subject: RunningSystem | None = None
        self._setting: Setting = ()
        self._deaths = 0
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._stopping = False

    @property
    def gave_up(self) -> bool:
        """Tell whether the system died too often to be started again."""
        return self._deaths >= DEATHS

    def pids(self) -> tuple[int, ...]:
        """Return the root processes of the running system."""
        subject = self.subject
        return subject.pids() if subject is not None else ()

    def open(self, setting: Setting, *, keep: bool = False) -> bool:
        """Start a system for *setting*, unless the running one can serve it; tell whether it was started.

        *keep* takes plain answers from the process of a draft, where it gives them, so that it goes on.
        """
        beside_draft = keep and self._backend.shares_process and not speculates(setting)
        if beside_draft and self.subject is not None and not self.gave_up:
            return False
        if self.subject is not None and self._backend.residence(setting) == self._backend.residence(self._setting):
            self._setting = setting  # what it serves from now on: the setting of which it may die
            return False
        self.close()
        self._deaths = 0
        self.subject, self._setting = self._start(setting), setting
        return True

    def send(self, request: PlannedRequest) -> Generation:
        """Send one request and return its record; a failure of the system becomes the `fault` of the answer."""
        knobs = dict(request.setting)
        if request.concurrency > 1:
            knobs.setdefault("concurrency", request.concurrency)
        setting, sampling = tuple(sorted(knobs.items())), request.sampled_by(self._slo)
        if request.pause_s:
            self._backend.clock.sleep(request.pause_s)
        answer = self._answer(DecodeRequest(request.canary, setting, sampling))
        return request.record_answer(answer, segment=self.segment, at=stamp(self._backend.clock.wall()))

    def send_all(
        self,
        requests: Iterator[PlannedRequest],
        streams: int,
        record: Callable[[Generation], None],
        pause_s: float = 0.0,
    ) -> None:
        """Send *requests* on *streams* threads, one after the other on each; record in order of completion.

        *requests* may block: the next one is taken under a lock.
        """
        if streams == 1 or not self._backend.realtime:
            for request in requests:
                record(self.send(request))
                if pause_s:
                    self._backend.clock.sleep(pause_s)
        else:
            self._send_on_threads(requests, streams, record, pause_s)

    def _send_on_threads(
        self, requests: Iterator[PlannedRequest], streams: int, record: Callable[[Generation], None], pause_s: float
    ) -> None:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while not failures and self._send_next(requests, record):
                    self._backend.clock.sleep(pause_s)
            except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
                failures.append(error)

        threads = [threading.Thread(target=work, name=f"stream-{number}", daemon=True) for number in range(streams)]
        try:
            for thread in threads:
                start_thread(thread)
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # a join without a limit would block Ctrl-C
        except BaseException:
            self._stopping = True
            raise
        if failures:
            raise failures[0]

    def _send_next(self, requests: Iterator[PlannedRequest], record: Callable[[Generation], None]) -> bool:
        with self._turn:
            request = next(requests, None)
        if request is None or self._stopping:
            return False
        generation = self.send(request)
        with self._lock:
            if not self._stopping:  # an answer that was cut off here is not recorded
                record(generation)
        return not self._stopping

    def _answer(self, request: DecodeRequest) -> Answer:
        subject = self._living()
        if subject is None:
            now = self._backend.clock.now_ns()
            return Answer(now, now, fault=f"not sent: the system under test died {DEATHS} times in a row")
        answer = request.canary.reject_empty(subject.answer(request))
        if answer.fault is None:
            self._deaths = 0
        elif answer.fault.startswith((TIMEOUT, NO_CONNECTION)):
            subject.close()  # a system that hangs or is gone counts as dead: waiting for every timeout would take days
        return answer

    def _living(self) -> RunningSystem | None:
        with self._lock:
            if self.subject is not None and self.subject.alive():
                return self.subject
            if self.subject is not None:
                self._deaths += 1
                self._observe(EventKind.SUBJECT_DIED, {"setting": dict(self._setting), "in_a_row": self._deaths})
                self.subject.close()
                self.subject = None
            if self.gave_up:
                return None
            try:
                self.subject = self._start(self._setting)
            except InputError as error:  # it has started before, so its command and its models were right
                raise UnresponsiveError(error.message, hint=error.hint) from error
            return self.subject

    def _start(self, setting: Setting) -> RunningSystem:
        return self._backend.start(setting, cache=True) if self._cache else self._backend.start(setting)

    def close(self) -> None:
        """End the running system."""
        subject, self.subject = self.subject, None
        if subject is not None:
            subject.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self.close()


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; raise OwnLimitError where the system allows no more of them."""
    try:
        thread.start()
    except RuntimeError as error:
        check_own_limit(error)
        raise
