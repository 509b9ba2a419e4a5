"""`gatekeeper ceiling`: the time of the target's passes by width, and so the most that any draft can give here."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.backends import backends_that_load, open_backend
from gatekeeper.backends.models import artifacts, gguf
from gatekeeper.core.backend_registry import SERVERS, TIMED
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import Backend, RunningSystem, TimesPasses
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import PassTimes, Setting, setting
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.verdict import Missing, rounded
from gatekeeper.run.stages.timed_turns import (
    CONTEXT,
    CountedRounds,
    TimedSystems,
    ceiling_document,
    ceiling_from,
    questions_after,
    take_turns,
)

LENGTH = "num_draft_tokens"
"""The knob that a request names its draft length with, where a server need not be started anew for another one."""


@dataclass(frozen=True, slots=True)
class TimedTarget:
    """A target whose passes are to be timed, as a command names it."""

    target: str
    backend: str
    draft: str | None = None
    url: str | None = None
    """Of a server that is already running."""
    args: tuple[str, ...] = ()
    """Further options of the server, as in `[subject]`."""

    @property
    def in_process(self) -> bool:
        """Return whether the target is timed in the process that decodes, with its draft beside it."""
        return self.backend not in SERVERS

    def subject(self, *, drafting: bool) -> Subject:
        """Return the subject that is started for the target, with its draft or alone."""
        drafts = [self.draft] if self.draft is not None and drafting else []
        keys = {"backend": self.backend, "target": self.target, "drafts": drafts, "args": self.args}
        return Subject.model_validate(
            keys | {"prompt_cache": "as-deployed"} | ({} if self.url is None else {"url": self.url})
        )


def backend_for(target: str) -> str:
    """Return the backend that loads *target*, by whether its name is that of a GGUF file."""
    return backends_that_load("GGUF" if target.endswith(gguf.SUFFIX) else "folder")[0]


def measure_ceiling(timed: TimedTarget, *, seconds: float, context: int = CONTEXT) -> dict[str, Any]:
    """Time passes for about *seconds*; return the document of `ceiling --json`.

    Where they cannot be timed, it says why and holds no figure. Raise InputError for a target or a server that is not
    there, HostLacksError where another run measures on this host.
    """
    clock = SystemClock()
    begun = clock.now_ns()
    turns = time_target(timed, seconds=seconds, context=context)
    took = (clock.now_ns() - begun) / 1e9
    return {
        "schema": 1,
        "target": timed.target,
        "draft": timed.draft,
        "backend": timed.backend,
        "context_tokens": context,
        "seconds": rounded(took),
        "timed": "in process" if timed.in_process else "by requests",
        **ceiling_document(ceiling_from(turns)),
    }


def time_target(timed: TimedTarget, *, seconds: float, context: int = CONTEXT) -> list[PassTimes] | Missing:
    """Start the target, time turns of its passes for about *seconds*, and end it; errors as of `measure_ceiling`."""
    if timed.url is not None and timed.draft is not None:
        hint = "leave out --draft, or --url: a draft of a running server cannot be timed apart from it"
        raise InputError("--draft cannot be timed behind --url", hint=hint)
    _models(timed.subject(drafting=True))  # before anything is started
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gatekeeper-")))
        stack.enter_context(host.hold_host("ceiling"))
        stack.enter_context(host.keep_awake())
        return take_turns(stack.enter_context(started_target(timed, folder, context)), seconds, context)


@contextmanager
def started_target(timed: TimedTarget, folder: Path, context: int = CONTEXT) -> Iterator[TimedSystems]:
    """Start the target, and its draft where it is not in the target's process."""
    with ExitStack() as stack:
        subject = timed.subject(drafting=timed.in_process)
        backend, target = _start(subject, stack, folder / "target")
        alone = TimedSystems(backend, _timeable(target, timed.backend), _setting(subject))
        if timed.draft is None or timed.in_process:
            yield alone
        elif Sight.ROUNDS in backend.sight and LENGTH in backend.knobs and LENGTH not in backend.restart_knobs:
            drafting = _start(timed.subject(drafting=True), stack, folder / "drafting")[1]
            yield replace(alone, drafting=CountedRounds(drafting, timed.draft, questions_after(context)))
        else:
            subject = TimedTarget(timed.draft, timed.backend, args=timed.args).subject(drafting=False)
            draft = _start(subject, stack, folder / "draft")[1]
            yield replace(alone, draft=_timeable(draft, timed.backend))


def _start(subject: Subject, stack: ExitStack, logs: Path) -> tuple[Backend, RunningSystem]:
    logs.mkdir(parents=True)
    backend = open_backend(subject, models=_models(subject), base=Path.cwd(), logs=logs)
    system = stack.enter_context(backend.start(_setting(subject), cache=backend.caches))
    return backend, system


def _models(subject: Subject) -> dict[str, Path]:
    """Return the files of the models that are loaded for *subject*; raise InputError for one that is not there."""
    names = (subject.target, *subject.drafts) if subject.url is None else ()
    models = {name: artifacts.find(name, Path.cwd(), subject.backend) for name in names}
    for name, path in models.items():
        if path.is_dir() and not (path / "config.json").is_file():  # else the traceback of a library says it
            raise InputError(f"model '{name}': {path} has no config.json", hint="download it again, or name another")
    return models


def _timeable(system: RunningSystem, backend: str) -> TimesPasses:
    if not isinstance(system, TimesPasses):
        raise InputError(f"passes of backend {backend} cannot be timed", hint=f"use {', '.join(TIMED)}")
    return system


def _setting(subject: Subject) -> Setting:
    return setting(draft=subject.drafts[0] if subject.drafts else None)
