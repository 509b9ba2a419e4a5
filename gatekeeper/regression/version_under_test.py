"""One version of the system under test: its processes, its requests, and the file of its answers."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import psutil

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import PLAIN
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.system import record_files
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.record_files import RecordWriter
from gatekeeper.core.system.run_directory import EVENTS_FILE, RunDirectory
from gatekeeper.run.events import EventRecorder
from gatekeeper.run.prepare import prepare
from gatekeeper.run.requests import Client
from gatekeeper.run.start.try_slo import MOST_CANARIES, default_alone

ANSWERS = "answers.jsonl"
MOST_LOST = 0.25
"""With a larger share of failed answers nothing is said of a version."""


def with_one_workload(inputs: Inputs, name: str | None, *, most: int | None = MOST_CANARIES) -> Inputs:
    """Return the inputs with the default setting and one workload alone: the one of this *name*, or the first."""
    slo = default_alone(inputs.slo)
    names = [workload.name for workload in slo.workload]
    if name is not None and name not in names:
        raise InputError(f"--workload {name}: the SLO has no such workload", hint=did_you_mean(name, names))
    chosen = slo.workload[names.index(name) if name is not None else 0]
    slo = slo.model_copy(update={"workload": (chosen,)})
    return replace(inputs, slo=slo, canaries={chosen.name: inputs.canaries[chosen.name][:most]})


class VersionUnderTest:
    """One version: its backend, a client an arm, and the file of its answers; close it by leaving its context."""

    def __init__(
        self, inputs: Inputs, folder: Path, observers: Sequence[Observer], name: str, *, resume: bool = False
    ) -> None:
        self.name, self.slo = name, inputs.slo
        self.workload = inputs.slo.workload[0].name
        self.canaries = inputs.canaries[self.workload]
        with ExitStack() as stack:
            directory = RunDirectory.open(folder, resume=resume)
            stack.callback(directory.close)
            self.prepared = prepare(inputs, folder, measuring=False, stored=directory if resume else None)
            self.backend = self.prepared.backend
            if not resume:
                directory.write("manifest.json", self.prepared.text)
            self._file: RecordWriter[Generation] = directory.writer(ANSWERS, record_files.ANSWERS)
            stack.callback(self._file.close)
            events = directory.writer(EVENTS_FILE, record_files.EVENTS)
            stack.callback(events.close)
            self._stack = stack.pop_all()
        self.observe = EventRecorder(events, self.backend.clock, observers)
        trials = self.prepared.plan.trials
        candidates = (trial.setting for trial in trials if trial.arm == "candidate")
        self.setting: Setting = next(candidates, trials[0].setting)
        self.answers = list(self._file.records)
        self._segment = 1 + max((generation.segment for generation in self.answers), default=-1)
        self.peak: int | None = None
        self._clients: dict[str, Client] = {}
        self.always_cached = False
        """Its prompt cache cannot be switched off, so that plain decoding has it on, too."""

    @property
    def seed(self) -> int:
        """Return the seed that follows from what was frozen."""
        return self.prepared.plan.seed

    @property
    def arm(self) -> str:
        """Return the arm of its setting: plain where that has no draft."""
        return "plain" if dict(self.setting).get("draft") is None else "candidate"

    def versions(self) -> Mapping[str, str]:
        """Return what answered, as the manifest names it."""
        not_tested = ("gatekeeper", "python", "numpy", "program", "command", "plain_command")
        versions = self.prepared.manifest.versions
        tested = [name for name in versions if name not in not_tested and not name.startswith("file ")]
        return {name: versions[name] for name in tested}

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

    def send(self, arm: str, canary: Canary, pair: str, role: Role = Role.MEASURED) -> Generation:
        """Send one request and record the answer."""
        setting = self.setting if arm == "candidate" else PLAIN
        client = self.client(arm)
        prefix = f"{'warmup:' if role is Role.WARMUP else ''}{arm}-{pair}"
        generation = client.send(
            PlannedRequest(self.workload, canary, arm, setting, trial=self.name, prefix=prefix, role=role, pair=pair)
        )
        self.record(generation)
        self._note_memory(client.pids())
        return generation

    def record(self, generation: Generation) -> None:
        """Keep an answer."""
        self._file(generation)
        self.answers.append(generation)

    def _note_memory(self, pids: Sequence[int]) -> None:
        resident = 0
        for pid in pids:
            with suppress(psutil.Error):
                root = psutil.Process(pid)
                processes = (root, *root.children(recursive=True))
                resident += sum(process.memory_info().rss for process in processes)
        self.peak = max(self.peak or 0, resident) or None

    def measured(self, arm: str | None = None) -> tuple[Generation, ...]:
        """Return the measured answers so far: of one *arm*, or of both."""
        measured = (generation for generation in self.answers if generation.role is Role.MEASURED)
        return tuple(generation for generation in measured if arm in {None, generation.arm})

    def paired(self, answers: tuple[Generation, ...], plain: tuple[Generation, ...]) -> PairedAnswers:
        """Return *answers* and those they are compared with, of plain decoding or of another version, in pairs."""
        temperature = dict(self.setting).get("temperature", self.slo.sampling.temperature)
        evidence = PairedAnswers(
            self.workload, {canary.id: canary for canary in self.canaries}, answers, plain, self.slo.confidence,
            self.seed, greedy=temperature == 0, drift_limit=float("inf"), lost_limit=MOST_LOST,
        )  # fmt: skip
        return pair_answers(evidence)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the processes and close the files; that of an interrupted comparison stays open for more."""
        if kind is None:
            self._file.finish()
        self._stack.close()
