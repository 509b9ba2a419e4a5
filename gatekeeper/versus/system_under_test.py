"""One of the two systems under test: its process, its requests, and the file of its answers."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import psutil

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.backends.dialects.openai import AS_SERVED
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Generation, Role, Setting, setting
from gatekeeper.core.system import record_files
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.record_files import RecordWriter
from gatekeeper.core.system.run_directory import EVENTS_FILE, MANIFEST, RunDirectory
from gatekeeper.run.events import EventRecorder
from gatekeeper.run.prepare import prepare
from gatekeeper.run.requests import Client

ANSWERS = "answers.jsonl"
MOST_LOST = 0.25
"""With a larger share of failed answers nothing is said of a system."""
NOT_TESTED = ("gatekeeper", "python", "numpy", "program", "command", "plain_command")
"""Versions in the manifest that are not those of the system under test."""


class SystemUnderTest:
    """One system: its backend, its client, and the file of its answers; close it by leaving its context."""

    def __init__(
        self, inputs: Inputs, folder: Path, observers: Sequence[Observer], label: str, *, resume: bool = False
    ) -> None:
        self.label, self.slo = label, inputs.slo
        self.workload = inputs.slo.workload[0].name
        self.canaries = inputs.canaries[self.workload]
        with ExitStack() as stack:
            directory = RunDirectory.open(folder, resume=resume)
            stack.callback(directory.close)
            self.prepared = prepare(inputs, folder, measuring=False, stored=directory if resume else None)
            self.backend = self.prepared.backend
            if not resume:
                directory.write(MANIFEST, self.prepared.text)
            self._file: RecordWriter[Generation] = directory.writer(ANSWERS, record_files.ANSWERS)
            stack.callback(self._file.close)
            events = directory.writer(EVENTS_FILE, record_files.EVENTS)
            stack.callback(events.close)
            self._stack = stack.pop_all()
        self.observe = EventRecorder(events, self.backend.clock, observers)
        trials = self.prepared.plan.trials
        trial = next((trial for trial in trials if trial.arm == "candidate"), trials[0])
        self.arm = trial.arm
        """`plain` where its setting has no draft."""
        # How long the drafts of a server are that always drafts is its own matter.
        always_drafts = dict(trial.setting)["draft"] == AS_SERVED
        self.setting: Setting = setting(draft=AS_SERVED) if always_drafts else trial.setting
        self.answers = list(self._file.records)
        self._segment = 1 + max((generation.segment for generation in self.answers), default=-1)
        self.peak: int | None = None
        """The most resident bytes of its processes after an answer."""
        self._client: Client | None = None

    @property
    def seed(self) -> int:
        """Return the seed that follows from what was frozen."""
        return self.prepared.plan.seed

    def versions(self) -> Mapping[str, str]:
        """Return what answered, as the manifest names it."""
        versions = self.prepared.manifest.versions
        tested = [name for name in versions if name not in NOT_TESTED and not name.startswith("file ")]
        return {name: versions[name] for name in tested}

    def send(self, canary: Canary, pair: str, role: Role = Role.MEASURED) -> Generation:
        """Send one request, with the prompt cache off where it can be switched off, and record the answer."""
        client = self._open_client()
        prefix = f"{'warmup:' if role is Role.WARMUP else ''}{self.arm}-{pair}"
        request = PlannedRequest(
            self.workload, canary, self.arm, self.setting, trial=self.label, prefix=prefix, role=role, pair=pair
        )
        generation = client.send(request)
        self._file(generation)
        self.answers.append(generation)
        self._note_memory(client.pids())
        return generation

    def _open_client(self) -> Client:
        """Return the client; its process is started for the first request."""
        if self._client is None:
            self._client = self._stack.enter_context(Client(self.slo, self.backend, self.observe, self._segment))
            self._client.open(self.setting)
        return self._client

    def _note_memory(self, pids: Sequence[int]) -> None:
        resident = 0
        for pid in pids:
            with suppress(psutil.Error):
                root = psutil.Process(pid)
                processes = (root, *root.children(recursive=True))
                resident += sum(process.memory_info().rss for process in processes)
        self.peak = max(self.peak or 0, resident) or None

    def measured(self) -> tuple[Generation, ...]:
        """Return the measured answers so far."""
        return tuple(generation for generation in self.answers if generation.role is Role.MEASURED)

    def pair(self, answers: tuple[Generation, ...], base: tuple[Generation, ...]) -> PairedAnswers:
        """Return *answers* in pairs with those that they are compared with, of the other system."""
        temperature = dict(self.setting).get("temperature", self.slo.sampling.temperature)
        evidence = PairedAnswers(
            self.workload, {canary.id: canary for canary in self.canaries}, answers, base, self.slo.confidence,
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
