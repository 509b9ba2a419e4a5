"""Requests to one version of the system under test: as few as its symptom needs, each recorded."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import psutil

from gatekeeper import host
from gatekeeper.analysis.metrics.exactness import warm_cache_agreement
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import PLAIN
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.sweep.quick_probe import MOST_CANARIES
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import seed_of
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import record_files
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.record_files import RecordWriter
from gatekeeper.core.system.run_directory import EVENTS_FILE, RunDirectory
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.regression import symptom
from gatekeeper.run.events import EventRecorder
from gatekeeper.run.prepare import prepare
from gatekeeper.run.requests import Client, PassTask, SoakTask
from gatekeeper.run.stages import warm_cache
from gatekeeper.run.start.quick_probe import default_alone

ANSWERS = "answers.jsonl"
WARM = "warm-cache"
"""Name of the requests with the prompt cache on: their order follows from it, and is the same for each version."""
MOST_LOST = 0.25
"""With a larger share of failed answers nothing is said of a version."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The symptom that is looked for, and the bound that a good version keeps."""

    metric: str
    workload: str
    bound: str
    threshold: float | None
    """None: not known yet, so every canary is answered."""


def one_workload(given: Inputs, name: str | None, *, most: int | None = MOST_CANARIES) -> tuple[Inputs, str]:
    """Return the inputs with the default setting and one workload alone: the one that is named, or the first."""
    slo = default_alone(given.slo)
    names = [one.name for one in slo.workload]
    if name is not None and name not in names:
        raise InputError(f"--workload {name}: the SLO has no such workload", hint=did_you_mean(name, names))
    chosen = name or names[0]
    slo = slo.model_copy(update={"workload": tuple(one for one in slo.workload if one.name == chosen)})
    return replace(given, slo=slo, canaries={chosen: given.canaries[chosen][:most]}), chosen


class VersionUnderTest:
    """One version: its backend, a client an arm, and the file of its answers; close it by leaving its context."""

    def __init__(
        self, given: Inputs, folder: Path, observers: Sequence[Observer], name: str, *, resume: bool = False
    ) -> None:
        self._stack = ExitStack()
        try:
            self._open(given, folder, observers, name, resume=resume)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, given: Inputs, folder: Path, observers: Sequence[Observer], name: str, *, resume: bool) -> None:
        self.name, self.slo = name, given.slo
        self._directory = RunDirectory.open(folder, resume=resume)
        self._stack.callback(self._directory.close)
        self.prepared = prepare(given, folder, measuring=False, stored=self._directory if resume else None)
        self.backend = self.prepared.backend
        if not resume:
            self._directory.write("manifest.json", self.prepared.text)
        self._file: RecordWriter[Generation] = self._directory.writer(ANSWERS, record_files.ANSWERS)
        self._stack.callback(self._file.close)
        events = self._directory.writer(EVENTS_FILE, record_files.EVENTS)
        self._stack.callback(events.close)
        self.observe = EventRecorder(events, self.backend.clock, observers)
        trials = self.prepared.plan.trials
        candidates = (trial.setting for trial in trials if trial.arm == "candidate")
        self.setting: Setting = next(candidates, trials[0].setting)
        self.answers = list(self._file.records)
        self._segment = 1 + max((one.segment for one in self.answers), default=-1)
        self.peak: int | None = None
        self._clients: dict[str, Client] = {}
        self.always_cached = False
        """Its prompt cache cannot be switched off, so that plain decoding has it on, too."""

    @property
    def seed(self) -> int:
        """Return the seed that follows from what was frozen."""
        return seed_of(self.prepared.sha256)

    def versions(self) -> Mapping[str, str]:
        """Return what answered, as the manifest names it."""
        ours = ("gatekeeper", "python", "numpy", "program", "command", "plain_command")
        found = self.prepared.manifest.versions.items()
        return {name: version for name, version in found if name not in ours and not name.startswith("file ")}

    def client(self, arm: str) -> Client:
        """Return the client of an arm, its process started; arms that share a process share the client."""
        key = "both" if self.backend.shares_process else arm
        if key not in self._clients:
            client = self._stack.enter_context(self.new_client())
            client.open(self.setting if arm == "candidate" or key == "both" else PLAIN)
            self._clients[key] = client
        return self._clients[key]

    def new_client(self, *, cache: bool = False) -> Client:
        """Return another client, whose prompt cache is off where it can be switched off, unless *cache*."""
        return Client(self.slo, self.backend, self.observe, self._segment, cache=cache or self.always_cached)

    def close_clients(self) -> None:
        """End the processes; the next request starts them again."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def send(self, arm: str, workload: str, canary: Canary, pair: str, role: Role = Role.MEASURED) -> Generation:
        """Send one request and record the answer."""
        setting = self.setting if arm == "candidate" else PLAIN
        client = self.client(arm)
        prefix = f"{'warmup:' if role is Role.WARMUP else ''}{arm}-{pair}"
        request = PlannedRequest(workload, canary, arm, setting, trial=self.name, prefix=prefix, role=role, pair=pair)
        made = client.send(request)
        self.record(made)
        self._note_memory(client.pids())
        return made

    def record(self, made: Generation) -> None:
        """Keep an answer."""
        self._file(made)
        self.answers.append(made)

    def _note_memory(self, pids: Sequence[int]) -> None:
        found = 0
        for pid in pids:
            with suppress(psutil.Error):
                root = psutil.Process(pid)
                found += sum(one.memory_info().rss for one in (root, *root.children(recursive=True)))
        self.peak = max(self.peak or 0, found) or None

    def paired(self, workload: str, canaries: Sequence[Canary]) -> PairedAnswers:
        """Return the answers so far, each plain one with its speculative one."""
        mine, plain = (
            tuple(one for one in self.answers if one.arm == arm and one.role is Role.MEASURED)
            for arm in ("candidate", "plain")
        )
        return pair_answers(paired_answers(self.slo, workload, canaries, mine, plain, self.seed, self.setting))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the processes and close the files; that of an interrupted comparison stays open for more."""
        if kind is None:
            self._file.finish()
        self._stack.close()


def paired_answers(
    slo: Slo,
    workload: str,
    canaries: Sequence[Canary],
    mine: tuple[Generation, ...],
    plain: tuple[Generation, ...],
    seed: int,
    setting: Setting,
) -> PairedAnswers:
    """Return the answers of two arms, or of two versions, as the metrics read them."""
    temperature = dict(setting).get("temperature", slo.sampling.temperature)
    return PairedAnswers(
        workload,
        {one.id: one for one in canaries},
        mine,
        plain,
        slo.confidence,
        seed,
        greedy=temperature == 0,
        drift_limit=float("inf"),
        lost_limit=MOST_LOST,
    )


def probe_version(
    given: Inputs, folder: Path, wanted: Wanted, observers: Sequence[Observer], name: str
) -> dict[str, Any]:
    """Measure the symptom of one version until it is decided or every canary was answered; return what was seen."""
    begun = time.monotonic()
    with VersionUnderTest(given, folder, observers, name) as version, host.keep_awake():
        version.observe("stage", {"stage": name, "settings": {wanted.workload: dict(version.setting)}})
        found = _Sequence(version, given.canaries[wanted.workload], wanted).run()
        versions = dict(version.versions())
    value = found.value
    word, why = ("", "") if wanted.threshold is None else symptom.judged(value, wanted.bound, wanted.threshold)
    figures: dict[str, Any] = {"center": None, "lo": None, "hi": None, "n": value.n}
    if isinstance(value, Estimate):
        near = value.rounded()
        figures = {"center": near.center, "lo": near.lo, "hi": near.hi, "n": near.n}
    because = value.because if isinstance(value, Missing) else why
    if version.always_cached and not because:
        because = "its cache cannot be switched off: plain decoding had it on, too"
    took = round(time.monotonic() - begun, 1)
    return {"answer": word or None, **figures, "seconds": took, "because": because, "versions": versions}


class _Sequence:
    """Looks at the records after growing numbers of canaries."""

    def __init__(self, version: VersionUnderTest, canaries: Sequence[Canary], wanted: Wanted) -> None:
        self._version, self._canaries, self._wanted = version, canaries, wanted
        self._warm: dict[str, bool] = {}

    def run(self) -> symptom.Seen:
        """Answer canaries until the bound is decided."""
        most, begun = len(self._canaries), 0
        looks: tuple[int, ...] = ()
        send: Callable[[int, int], None] = (
            self._send_warm if self._wanted.metric == "warm_cache_agreement" else self._send
        )
        value: Estimate | Missing = Missing("no canary was answered")
        if (failing := self._first_fault()) is not None:
            return symptom.Seen(Missing(f"its first request failed: {failing}"), (), most)
        for end in sequential.looks(most):
            send(begun, end)
            looks, begun = (*looks, end), end
            value = self._value(looks, most)
            if self._decided(value):
                break
        return symptom.Seen(value, looks, most)

    def _first_fault(self) -> str | None:
        """Send each arm a request that is not measured: it compiles, reads the model, and shows what cannot work."""
        version, canary = self._version, self._canaries[0]
        if self._wanted.metric == "warm_cache_agreement":
            try:
                version.client("candidate")
            except InputError:  # an older server has no option for it, and is deployed with its cache on
                version.always_cached = True
        for arm in self._arms(1):
            made = version.send(arm, self._wanted.workload, canary, "warmup", Role.WARMUP)
            if made.answer.fault is not None:
                return made.answer.fault
        return None

    def _decided(self, value: Estimate | Missing) -> bool:
        threshold = self._wanted.threshold
        return threshold is not None and symptom.judged(value, self._wanted.bound, threshold)[0] != "unclear"

    def _value(self, looks: tuple[int, ...], most: int) -> Estimate | Missing:
        if self._wanted.metric == symptom.MEMORY:
            return symptom.peak(self._version.peak)
        if self._wanted.metric == "warm_cache_agreement":
            return symptom.warm_share(self._warm, most)
        seen = self._version.paired(self._wanted.workload, self._canaries)
        return symptom.measured(self._wanted.metric, seen, looks, most, seen.level)

    def _arms(self, number: int) -> Iterator[str]:
        """Yield the arms that the metric needs, in turns the one and the other first."""
        arms = ("candidate", "plain") if self._wanted.metric in symptom.BOTH_ARMS else ("candidate",)
        yield from arms if number % 2 == 0 else reversed(arms)

    def _send(self, begin: int, end: int) -> None:
        for number, canary in enumerate(self._canaries[begin:end], start=begin):
            for arm in self._arms(number):
                made = self._version.send(arm, self._wanted.workload, canary, str(number))
                progress = {"answered": number + 1, "of": len(self._canaries)}
                self._version.observe("answer", {"generation": made, **progress})

    def _send_warm(self, begin: int, end: int) -> None:
        """Request canaries with the prompt cache on, as deployed; a process of its own for each look."""
        version, name = self._version, self._wanted.workload
        version.close_clients()  # its memory is for those with the cache on
        group = self._canaries[begin:end]
        if len(group) < 2 and begin:  # a conversation needs a second canary
            group = self._canaries[end - 2 : end]
        soak = SoakPlan(WARM, {name: version.setting}, version.setting)
        task = SoakTask(version.slo, soak, {name: group}, begin, 0)
        made: list[Generation] = []

        def record(one: Generation) -> None:
            version.record(one)
            made.append(one)

        warm_cache.send(
            PassTask(
                soak=task,
                needs={},
                recorded=(),
                backend=version.backend,
                open_client=version.new_client,
                record=record,
                observe=version.observe,
            )
        )
        found = warm_cache_agreement(made, [one.id for one in group])
        if not isinstance(found, Missing):
            self._warm |= found[0]
