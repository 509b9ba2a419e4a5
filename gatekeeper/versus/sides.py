"""The two sides: what A and B of the command line name, and each as a system under test that answers requests."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import psutil
import tomli_w

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.backends import facts_of
from gatekeeper.backends.dialects.openai import AS_SERVED, DIALECT
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Generation, Role, Setting, setting
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system import record_files
from gatekeeper.core.system.inputs import Inputs, find_canaries, read_text
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.record_files import RecordWriter
from gatekeeper.core.system.run_directory import EVENTS_FILE, MANIFEST, RunDirectory
from gatekeeper.run.events import EventRecorder
from gatekeeper.run.prepare import prepare
from gatekeeper.run.requests import Client
from gatekeeper.run.start.try_slo import MOST_CANARIES, default_alone

UNNAMED = "default_model"
"""The model in requests to a server that does not list a single one: so mlx_lm.server calls the one it loaded."""
ANSWERS = "answers.jsonl"
"""The record file of a side."""
MOST_LOST = 0.25
"""With a larger share of failed answers nothing is said of a system."""
NOT_TESTED = ("gatekeeper", "python", "numpy", "program", "command", "plain_command")
"""Versions in the manifest that are not those of the system under test."""


def read_side(side: str, slo_path: Path | None, workload: str | None) -> Inputs:
    """Return the inputs of one side: an SLO file, or the SLO with another environment, draft, program or server."""
    if side.endswith(".toml"):
        return _read_workload(Path(side), workload)
    if slo_path is None:
        raise InputError(
            f"'{side}' is no SLO file", hint="name the SLO of both sides with --slo SLO.toml; two addresses need none"
        )
    inputs = _read_workload(slo_path, workload)
    subject, path = inputs.slo.subject, Path(side).expanduser().absolute()
    sweep = inputs.slo.sweep
    if side in subject.drafts:
        subject = subject.model_copy(update={"drafts": (side,)})
        sweep = sweep.model_copy(update={"default": sweep.default.model_copy(update={"draft": side})})
    elif "://" in side:
        not_started = {"command": None, "program": None, "plain_command": None, "plain_url": None}
        drafts = subject.drafts or ((AS_SERVED,) if subject.backend == DIALECT.name else ())
        subject = subject.model_copy(update={"url": Address(side), "drafts": drafts, **not_started})
    elif (path / "bin" / "python").exists():
        subject = _start_from(path, subject)
    elif path.is_file():
        key, rest = ("program", ()) if subject.command is None else ("command", subject.command[1:])
        subject = subject.model_copy(update={key: (str(path), *rest)})
    else:
        message = f"'{side}' is no SLO file, environment, program or address, and no draft of the SLO"
        listed = "".join(f", or its draft {draft}" for draft in subject.drafts)
        hint = f"for example a folder made by python -m venv, or http://127.0.0.1:8080{listed}"
        raise InputError(message, hint=hint)
    return replace(inputs, slo=inputs.slo.model_copy(update={"subject": subject, "sweep": sweep}))


def _read_workload(path: Path, name: str | None) -> Inputs:
    """Return an SLO's inputs with its default setting and one workload alone: the one of this *name*, or the first."""
    inputs = read_inputs(path)
    slo = default_alone(inputs.slo)
    names = [workload.name for workload in slo.workload]
    if name is not None and name not in names:
        raise InputError(f"--workload {name}: the SLO has no such workload", hint=did_you_mean(name, names))
    chosen = slo.workload[names.index(name) if name is not None else 0]
    slo = slo.model_copy(update={"workload": (chosen,)})
    return replace(inputs, slo=slo, canaries={chosen.name: inputs.canaries[chosen.name]})


def _start_from(environment: Path, subject: Subject) -> Subject:
    """Return the system under test, started from a virtual *environment*."""
    facts = facts_of(subject.backend)
    words = subject.command or subject.program or facts.program or None
    if words is not None:
        program = environment / "bin" / Path(words[0]).name
        if not program.exists():
            hint = "name a program that the package installs, such as python"
            raise InputError(f"{words[0]} is not in the environment {environment}", hint=hint)
        key = "command" if subject.command is not None else "program"
        return subject.model_copy(update={key: (str(program), *words[1:])})
    script = environment / "bin" / (facts.console_script or "python")
    if not script.exists():
        raise InputError(f"{script.name} is not in the environment {environment}", hint="install mlx-lm there")
    return subject.model_copy(update={"program": (str(script),)})


def write_slo_of_servers(folder: Path, names: Sequence[str], target: str | None) -> Path:
    """Write the SLO of two running servers: greedy, on the first canaries of each of the files."""
    files = [find_canaries(name, Path()) for name in names]
    most = MOST_CANARIES // len(files) or 1
    prompts: list[str] = []
    for file in files:
        lines = [line for line in read_text(file, "canary file").splitlines() if line.strip()]
        prompts += lines[:most]
    (folder / "canaries.jsonl").write_text("\n".join(prompts), encoding="utf-8")
    served = {} if target is None else {"served_model_name": target}
    slo = {
        "schema": 1,
        "name": "servers",
        "subject": {"backend": DIALECT.name, "target": target or UNNAMED, "url": "http://localhost", **served},
        "workload": [{"name": "-".join(file.stem for file in files), "canaries": "canaries.jsonl"}],
        "objective": [{"metric": "error_rate", "at_most": 0.0, "why": "no answer may fail"}],
    }
    path = folder / "servers.toml"
    path.write_text(tomli_w.dumps(slo), encoding="utf-8")
    return path


def check_alike(first: Inputs, second: Inputs) -> None:
    """Raise InputError where the two sides have other canaries or another sampling: nothing could be compared."""
    prompts = [
        [canary.model_dump() for canary in inputs.canaries[inputs.slo.workload[0].name]] for inputs in (first, second)
    ]
    if prompts[0] != prompts[1]:
        raise InputError("the two SLO files have other canaries", hint="compare two systems on the same canaries")
    if first.slo.sampling != second.slo.sampling:
        raise InputError("the two SLO files have other [sampling]", hint="compare two systems at the same sampling")


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

    def select_measured(self) -> tuple[Generation, ...]:
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
