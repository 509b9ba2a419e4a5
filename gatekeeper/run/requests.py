"""The desk: where requests are put to a subject, answers become records, and a dead subject is started again."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem, Sampling
from gatekeeper.core.records import Answer, Generation, Role, Setting
from gatekeeper.core.slo import Slo

DEATHS = 3
"""After so many deaths in a row without one sound answer, the subject is given up."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a stage asks for: everything the record will say of it, and the prompt."""

    trial: str
    key: str
    workload: str
    canary: Canary
    arm: str
    setting: Setting
    sampling: Sampling
    role: Role
    repeat: int = 0
    pair: str = ""
    concurrency: int = 1


class Desk:
    """Keeps one subject at a time, the one that can answer the setting that was opened."""

    def __init__(
        self,
        backend: Backend,
        incident: Callable[[str, dict[str, object]], None],
        segment: int = 0,
        *,
        cache: bool = False,
    ) -> None:
        self._backend, self._incident = backend, incident
        self._segment, self._cache = segment, cache
        self._subject: RunningSystem | None = None
        self._setting: Setting = ()
        self._deaths = 0
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._stopping = False

    @property
    def lost(self) -> bool:
        """Tell whether the subject was given up."""
        return self._deaths >= DEATHS

    @property
    def subject(self) -> RunningSystem | None:
        """Return the subject that is resident now."""
        return self._subject

    def pids(self) -> tuple[int, ...]:
        """Return the root processes of the resident subject."""
        subject = self._subject
        return subject.pids() if subject is not None else ()

    def open(self, setting: Setting) -> bool:
        """Make a subject resident that can answer *setting* and tell whether it is new; one that already can stays."""
        if self._subject is not None and self._backend.residence(setting) == self._backend.residence(self._setting):
            return False
        self.close()
        self._deaths = 0
        self._subject, self._setting = self._start(setting), setting
        return True

    def ask(self, request: Request) -> Generation:
        """Ask and return the record; the subject's failure is the answer's fault."""
        knobs = dict(request.setting)
        if request.concurrency > 1:
            knobs.setdefault("concurrency", request.concurrency)
        ask = DecodeRequest(request.canary, tuple(sorted(knobs.items())), request.sampling)
        return self._record(request, self._answer(ask))

    def ask_all(
        self, requests: Iterator[Request], streams: int, record: Callable[[Generation], None], pause_s: float = 0.0
    ) -> None:
        """Put *requests* to *streams* threads, one answer after the other each; record in order of completion.

        *requests* may wait inside: it is asked for the next one under a lock.
        """
        if streams == 1 or not self._backend.realtime:
            self._one_by_one(requests, record, pause_s)
            return
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while not failures and self._one_of(requests, record):
                    self._backend.clock.sleep(pause_s)
            except BaseException as error:  # noqa: BLE001 (carried to the thread that waits)
                failures.append(error)

        threads = [threading.Thread(target=work, name=f"stream-{number}", daemon=True) for number in range(streams)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # a join without limit would not let Ctrl-C through
        except BaseException:
            self._stopping = True
            raise
        if failures:
            raise failures[0]

    def _one_of(self, requests: Iterator[Request], record: Callable[[Generation], None]) -> bool:
        with self._turn:
            request = next(requests, None)
        if request is None or self._stopping:
            return False
        made = self.ask(request)
        with self._lock:
            if not self._stopping:  # an answer we ended ourselves is no record
                record(made)
        return not self._stopping

    def _one_by_one(self, requests: Iterable[Request], record: Callable[[Generation], None], pause_s: float) -> None:
        for request in requests:
            record(self.ask(request))
            if pause_s:
                self._backend.clock.sleep(pause_s)

    def _answer(self, ask: DecodeRequest) -> Answer:
        subject = self._living()
        if subject is None:
            now = self._backend.clock.now_ns()
            return Answer(now, now, fault=f"not asked: the subject died {DEATHS} times in a row")
        answer = subject.answer(ask)
        if answer.fault is None:
            self._deaths = 0
        elif answer.fault.startswith("timeout"):
            subject.close()  # one that hangs is as good as dead: waiting for each next answer would take days
        return answer

    def _living(self) -> RunningSystem | None:
        with self._lock:
            if self._subject is not None and self._subject.alive():
                return self._subject
            if self._subject is not None:
                self._deaths += 1
                self._incident("subject_died", {"setting": dict(self._setting), "in_a_row": self._deaths})
                self._subject.close()
                self._subject = None
            if self.lost:
                return None
            try:
                self._subject = self._start(self._setting)
            except GatekeeperError as error:
                self._deaths = DEATHS
                self._incident("subject_lost", {"because": error.message})
            return self._subject

    def _start(self, setting: Setting) -> RunningSystem:
        return self._backend.start(setting, cache=True) if self._cache else self._backend.start(setting)

    def _record(self, request: Request, answer: Answer) -> Generation:
        return Generation(
            trial=request.trial,
            key=request.key,
            workload=request.workload,
            canary=request.canary.id,
            arm=request.arm,
            setting=request.setting,
            role=request.role,
            repeat=request.repeat,
            pair=request.pair,
            concurrency=request.concurrency,
            answer=answer,
            segment=self._segment,
            at=stamp(self._backend.clock.wall()),
        )

    def close(self) -> None:
        """End the resident subject."""
        subject, self._subject = self._subject, None
        if subject is not None:
            subject.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self._stopping = True
        self.close()


Observe = Callable[[str, dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class Errand:
    """What one pass beside a soak is given."""

    slo: Slo
    name: str
    """The soak it belongs to."""
    settings: Mapping[str, Setting]
    """Of the workloads that are asked again."""
    resident: Setting
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    before: tuple[Generation, ...] = ()
    """What an earlier, interrupted segment recorded."""


def request(
    errand: Errand,
    workload: str,
    arm: str,
    canary: Canary,
    role: Role,
    *,
    without: frozenset[str],
    sampling: Mapping[str, Any],
    repeat: int = 0,
    pair: str = "",
) -> Request:
    """Return the request of *canary* in *arm*, *without* some knobs and with *sampling* in the place of the SLO's."""
    candidate = errand.settings[workload]
    knobs = candidate if arm == "candidate" else plain_of(candidate)
    setting = tuple((knob, value) for knob, value in knobs if knob not in without)
    return Request(
        trial=errand.name,
        key=f"{arm}-{repeat}:{workload}/{canary.id}",
        workload=workload,
        canary=canary,
        arm=arm,
        setting=setting,
        sampling=replace(sampling_for(errand.slo, canary, setting, 1), **sampling),
        role=role,
        repeat=repeat,
        pair=pair,
    )


def ask_missing(
    errand: Errand,
    open_desk: Callable[[], Desk],
    resident: Setting,
    requests: Iterable[Request],
    *,
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Ask what no earlier segment recorded, at a desk of its own; none is opened for nothing."""
    done = {one.key for one in errand.before}
    missing = [one for one in requests if one.key not in done]
    if not missing:
        return

    asked = 0

    def note(one: Generation) -> None:
        nonlocal asked
        record(one)
        asked += 1
        observe("answer", {"generation": one, "soak": errand.name, "answered": asked, "of": len(missing)})

    with open_desk() as desk:
        desk.open(resident)
        desk.ask_all(iter(missing), 1, note)
