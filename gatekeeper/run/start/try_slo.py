"""`gatekeeper try SLO`: measure in about thirty seconds whether a draft helps on this machine; no soak, no policy."""

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper import host
from gatekeeper.analysis.plan import sweep_plan
from gatekeeper.analysis.plan.settings import defaults, setting_document
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.sweep.sweep_answers import sweep_answers
from gatekeeper.analysis.sweep.try_result import TryResult, next_step_text, try_result
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError, UnprovableError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import EventKind, Generation
from gatekeeper.core.slo import CHOSEN, CONDITIONS, DRAFT_LENGTHS, Knobs, Slo, Workload
from gatekeeper.core.system import inputs, record_files, run_directory
from gatekeeper.report.data.workload_progress import WorkloadProgress
from gatekeeper.run.events import EventRecorder
from gatekeeper.run.prepare import Prepared, hold_host, prepare
from gatekeeper.run.requests import Client, Recorder
from gatekeeper.run.stages.sweep import sweep

MOST_CANARIES = 24
"""A probe is quick; what needs more canaries than this needs a sweep."""
LOOKS = sequential.looks(MOST_CANARIES)
"""Numbers of canaries after which the records are compared."""
TOKENS = 48
"""Tokens after which an answer is cut: enough for a dozen rounds."""
DRAFT_LENGTH = 4
"""The draft length where the SLO sets none; in the middle of what people use."""
CANARIES = ("json", "chat")
"""The shipped canaries to use where none are given: one kind is easy to predict, one is hard."""
BLOCKING = ("sweep.", "soak.concurrency")
"""Complaints that stop a probe: what the backend cannot do at all. Objectives are not judged."""


def try_slo(
    slo_path: Path, out: Path | None, *, seconds: float, observers: Sequence[Observer], again: str
) -> dict[str, Any]:
    """Compare the SLO's default setting with plain decoding for about *seconds*, and return per workload if it helps.

    It looks at the records a few times, as a sweep does, and stops when every workload is decided. *again* is the
    command for a longer probe.
    """
    whole_inputs = inputs.read(slo_path)
    if not whole_inputs.slo.subject.drafts:
        hint = "name a draft: without one there is nothing to probe"
        raise InputError(f"{slo_path}: subject.drafts is empty", hint=hint)
    canaries = {name: _cut(whole_inputs.slo, canary_set) for name, canary_set in whole_inputs.canaries.items()}
    small = replace(whole_inputs, slo=default_alone(whole_inputs.slo), canaries=canaries)
    with ExitStack() as stack:
        path = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        remark = stack.enter_context(hold_host(small, path, "try"))
        prepared = prepare(small, path, measuring=False)
        for complaint in prepared.complaints:
            if complaint.weight == "never" and complaint.about.startswith(BLOCKING):
                raise UnprovableError(f"{complaint.about}: {complaint.message}", hint=complaint.hint)
        directory = run_directory.RunDirectory.open(path, resume=False)
        stack.callback(directory.close)
        directory.write("manifest.json", prepared.text)
        for name, text in whole_inputs.texts.items():
            directory.write(name, text)
        measured = _Try(prepared, directory, observers, seconds)
        stack.callback(measured.close)
        measured.run(remark)
        document = measured.document(again, out=out)
        directory.write("probe.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return document


def try_models(
    target: str,
    drafts: Sequence[str],
    canaries: Path | None,
    out: Path | None,
    *,
    backend: str,
    seconds: float,
    observers: Sequence[Observer],
    again: str,
    shipped: Sequence[str] = CANARIES,
) -> dict[str, Any]:
    """Probe a target and its draft without an SLO file; without *canaries*, on the *shipped* sets of these names."""
    folder = inputs.shipped_folder("canaries")
    files = [canaries] if canaries is not None else [folder / f"{name}.jsonl" for name in shipped]
    slo = {
        "schema": 1,
        "name": "probe",
        "subject": {"backend": backend, "target": _place(target), "drafts": [_place(draft) for draft in drafts]},
        "workload": [{"name": file.stem, "canaries": str(file.resolve())} for file in files],
        "objective": [{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must help"}],
    }
    with tempfile.TemporaryDirectory(prefix="gatekeeper-") as folder_name:
        path = Path(folder_name) / "probe.toml"
        path.write_text(tomli_w.dumps(slo), encoding="utf-8")
        return try_slo(path, out, seconds=seconds, observers=observers, again=again)


def _place(model: str) -> str:
    """Return the absolute path of a folder or a file; anything else is a name in a store."""
    path = Path(model).expanduser()
    return str(path.parent.resolve() / path.name) if path.exists() else model


def default_alone(slo: Slo) -> Slo:
    """Return the SLO with only its default setting and its default conditions in the sweep."""
    base = defaults(slo)
    if not any(base.get(knob) for knob in DRAFT_LENGTHS):
        base["num_draft_tokens"] = DRAFT_LENGTH
    still: dict[str, Any] = dict.fromkeys((*CHOSEN, *CONDITIONS), ())
    more = {"design": "one-at-a-time", "repeats": 1, "warmups": 1, "stop": "never", "default": Knobs(**base)}
    return slo.model_copy(update={"sweep": slo.sweep.model_copy(update={**still, **more})})


def _cut(slo: Slo, canaries: Sequence[Canary]) -> tuple[Canary, ...]:
    """Return the first canaries, with answers of at most TOKENS tokens."""
    return tuple(
        canary.model_copy(update={"max_tokens": min(canary.max_tokens or slo.sampling.max_tokens, TOKENS)})
        for canary in canaries[:MOST_CANARIES]
    )


class _Try:
    """Sends requests in parts until every workload is decided or the time is used up."""

    def __init__(
        self, prepared: Prepared, directory: run_directory.RunDirectory, observers: Sequence[Observer], seconds: float
    ) -> None:
        self._prepared, self._seconds = prepared, seconds
        self._slo, self._backend, self._canaries = prepared.inputs.slo, prepared.backend, prepared.inputs.canaries
        trials = prepared.plan.trials
        self._files = {trial.name: directory.writer(trial.file, record_files.ANSWERS) for trial in trials}
        self._records: dict[str, list[Generation]] = {name: [] for name in self._files}
        self._events = directory.writer("events.jsonl", record_files.EVENTS)
        self._observe = EventRecorder(self._events, self._backend.clock, observers)
        self._setting = next(trial.setting for trial in prepared.plan.trials if trial.arm == "candidate")
        self._found: dict[str, TryResult] = {}
        self._begun = self._backend.clock.now_ns()
        self._took = 0.0
        self._others: host.OtherPrograms | None = None
        """What other programs used meanwhile, where that is known."""

    def close(self) -> None:
        self._events.close()
        for file in self._files.values():
            file.close()

    def run(self, remark: str | None) -> None:
        """Measure; *remark* is a warning about the host's lock."""
        if remark is not None:
            self._observe(EventKind.WARNING, {"about": "the host", "because": remark})
        before = host.processor_use()
        settings = {"default": dict(self._setting)}
        self._observe(EventKind.STAGE, {"stage": "probe", "settings": settings, "seconds": self._seconds})
        with Client(self._slo, self._backend, self._observe) as client, host.keep_awake():
            self._measure(client)
            self._took = self._measure_elapsed()
        if self._backend.realtime and self._slo.subject.url is None:  # one that was running would count as another
            self._others = host.used_between(before, host.processor_use())
        for file in self._files.values():
            file.finish()
        self._events.finish()

    def _measure_elapsed(self) -> float:
        return (self._backend.clock.now_ns() - self._begun) / 1e9

    def _measure(self, client: Client) -> None:
        """Sweep part after part, and look at the records after each of the planned counts."""
        # Arms that share a process cost nothing to alternate; others are measured in blocks, a restart each.
        fine = self._backend.shares_process and self._slo.soak.concurrency == 1
        stops = list(range(1, MOST_CANARIES + 1)) if fine else list(LOOKS)
        begin = 0
        for end in stops:
            undecided = [workload for workload in self._slo.workload if not self._is_decided(workload.name)]
            more = tuple(workload for workload in undecided if len(self._canaries[workload.name]) > begin)
            if not more or client.gave_up:
                break
            self._sweep(begin, end, more, client, warm=begin == 0 or not fine)
            begin = end
            if self._measure_elapsed() * (end + 1) / end > self._seconds:
                break
            if end in LOOKS:
                self._look(end)
        self._look(begin)

    def _is_decided(self, workload: str) -> bool:
        return workload in self._found and self._found[workload].word != "unclear"

    def _sweep(self, begin: int, end: int, workloads: tuple[Workload, ...], client: Client, *, warm: bool) -> None:
        """Measure canaries *begin* to *end* of the workloads that are not decided."""
        knobs = self._slo.sweep.model_copy(update={"warmups": int(warm)})
        slo = self._slo.model_copy(update={"workload": workloads, "sweep": knobs})
        plan = sweep_plan.sweep_plan(
            slo, {workload.name: self._canaries[workload.name][begin:end] for workload in workloads},
            shares_process=self._backend.shares_process, restart_knobs=self._backend.restart_knobs,
            seed=self._prepared.plan.seed + begin,
        )  # fmt: skip

        def record(generation: Generation) -> None:
            self._files[generation.trial](generation)
            self._records[generation.trial].append(generation)

        sweep(slo, plan, client, Recorder(record, self._observe), before={})

    def _look(self, count: int) -> None:
        """Decide what is undecided after *count* canaries, unless the last look had the same answers."""
        for workload in self._slo.workload:
            canaries = self._canaries[workload.name]
            answered, before = min(count, len(canaries)), self._found.get(workload.name)
            if self._is_decided(workload.name) or (before is not None and before.looks[-1] == answered):
                continue
            answers = sweep_answers(self._slo, self._prepared.plan, self._records, workload.name, canaries)
            self._found[workload.name] = try_result(answers, answered, before)

    def _speeds(self, workload: str) -> dict[str, float | None]:
        """Return the recent speeds of both arms in tokens per second, as the live view shows them."""
        progress = WorkloadProgress()
        for generation in chain.from_iterable(self._records.values()):
            if generation.workload == workload:
                progress.take(generation)
        row = progress.row(workload)
        return {"plain_tok_s": row.plain, "drafting_tok_s": row.drafting}

    def document(self, again: str, *, out: Path | None) -> dict[str, Any]:
        """Return what was found, per workload, with the next step."""
        return {
            "schema": 1,
            "slo": self._slo.name,
            "setting": setting_document(self._setting),
            "seconds": round(self._took, 3),
            "confidence": self._slo.confidence,
            "tokens_at_most": TOKENS,
            "workloads": {
                name: result.document() | self._speeds(name) | {"next": next_step_text(result, self._took, again)}
                for name, result in self._found.items()
            },
            "notes": self._notes(),
            "run": str(out) if out is not None else None,
        }

    def _notes(self) -> list[str]:
        """Return what makes the figures rough, or the pair unfit."""
        memory = [complaint for complaint in self._prepared.complaints if complaint.about == "memory"]
        notes = [f"{complaint.about}: {complaint.message}" for complaint in memory]
        if self._others is not None and self._others.busy:
            notes.append(f"{self._others.in_words('used')}: close them for figures that decide more")
        return notes
