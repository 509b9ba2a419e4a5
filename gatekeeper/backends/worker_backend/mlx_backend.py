"""The mlx backend: our own mlx-lm worker, in the environment of this process or that of the SLO's program."""

import platform
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.server_process import find_versions, installed_beside
from gatekeeper.backends.worker_backend.worker_backend import READS_TARGET, SEEN_IN_ANSWERS, Commands, WorkerBackend
from gatekeeper.backends.worker_backend.worker_process import WorkerProcess
from gatekeeper.backends.worker_backend.worker_protocol import Greeting
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.slo.subject_table import Subject

_PACKAGES = ("mlx", "mlx-lm", "transformers", "numpy")
"""Packages whose versions identify the worker."""
_GREETING = Greeting(
    "mlx-lm",
    SEEN_IN_ANSWERS | Sight.ROUNDS | Sight.PLAIN | READS_TARGET,
    frozenset({"draft", "num_draft_tokens", "temperature", "max_tokens", "thinking"}),
    shares_process=True,
)
"""The greeting of our own worker, so that a run can be planned without starting it."""
FACTS = BackendFacts(
    name="mlx",
    extra="mlx",
    module="mlx_lm",
    sight=_GREETING.sight,
    switches=True,
    loads="folder",
    served_as="mlx-server",
    one_forward_a_token=True,
)


def open_mlx(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "MlxBackend":
    """Return the mlx backend; raise InputError where mlx-lm is not installed."""
    del base
    if subject.program is None and find_spec("mlx_lm") is None:
        message = "the mlx backend needs mlx-lm, which is not installed here"
        raise InputError(message, hint=FACTS.installed_by)
    options = (("--prefill-chunk", subject.prefill_chunk), ("--kv-bits", subject.kv_bits))
    words = (word for flag, value in options if value is not None for word in (flag, str(value)))
    program = subject.program or (sys.executable, "-P")
    command = (*program, "-m", "gatekeeper.backends.workers.mlx_lm", "{target}", "{draft}", *words)
    return MlxBackend(subject, Commands(command, None, models, Path.cwd()), logs, with_package=True)


class MlxBackend(WorkerBackend):
    """Starts our own mlx-lm worker, which runs in the environment of this process."""

    draft_hint = "check num_draft_tokens, and the vocabularies of target and draft"

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the environment of the workers: this process's, or that of the SLO's program."""
        if self._subject.program is not None:
            return installed_beside(self._subject.program[0], _PACKAGES)
        return {"python": platform.python_version(), **find_versions(*_PACKAGES)}

    def _first_greeting(self, draft: str | None) -> Greeting:
        del draft
        return _GREETING

    def _log_name(self, number: int, draft: str | None) -> str:
        del draft
        return f"mlx-worker-{number}.log"

    def _check_unchanged(self, process: WorkerProcess, greeting: Greeting, draft: str | None) -> None:
        """Accept every greeting: the worker is part of this gatekeeper."""
