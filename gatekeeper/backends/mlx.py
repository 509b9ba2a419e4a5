"""The mlx backend: real mlx-lm in a worker of ours, so that its death is an answer's fault and not ours."""

import platform
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from gatekeeper.backends.asked import PLAIN
from gatekeeper.backends.launch import installed
from gatekeeper.backends.worker import WorkerSubject, start_worker
from gatekeeper.terms.clock import Clock, SystemClock
from gatekeeper.terms.errors import GatekeeperError, InputError
from gatekeeper.terms.metrics import Sight
from gatekeeper.terms.records import Setting
from gatekeeper.terms.subject import Subject

_INSTALL = 'pip install "gatekeeper[mlx]"'


def open_backend(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "MlxBackend":
    """Return the mlx backend; raise InputError where mlx-lm is not installed."""
    del base
    if find_spec("mlx_lm") is None:
        raise InputError("the mlx backend needs mlx-lm, which is not installed here", hint=_INSTALL)
    return MlxBackend(subject, models, logs)


class MlxBackend:
    """Starts workers, each with the target and one draft."""

    name = "mlx"
    # What our own worker greets with; known here, so that nothing has to be started to plan a run.
    sight = (Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.TOKEN_IDS) | (
        Sight.ROUNDS | Sight.MEMORY | Sight.PLAIN | Sight.LOGITS | Sight.COLD
    )
    shares_process = True
    streams = 1
    restart_knobs: tuple[str, ...] = ("draft",)
    knobs = frozenset({"draft", "num_draft_tokens", "temperature", "max_tokens", "thinking"})
    realtime = True
    caches = False
    uncached = True
    silent = "look at num_draft_tokens and the pair's vocabularies"

    def __init__(self, subject: Subject, models: Mapping[str, Path], logs: Path) -> None:
        self.clock: Clock = SystemClock()
        self._subject, self._models, self._logs = subject, models, logs
        self._starts = count(1)

    def residence(self, setting: Setting) -> str:
        """Return the draft; `plain` names a worker without one, though every worker answers plain asks."""
        return str(dict(setting).get("draft") or PLAIN)

    def start(self, setting: Setting, *, cache: bool = False) -> WorkerSubject:
        """Start a worker and wait until its models are loaded; raise InputError naming a folder that is broken."""
        if cache:
            raise GatekeeperError("the mlx worker has no prompt cache to leave on", hint='use backend = "mlx-server"')
        draft = dict(setting).get("draft")
        folders = [self._folder(name) for name in (self._subject.target, draft) if name is not None]
        return start_worker(
            [sys.executable, "-P", "-m", "gatekeeper.backends.mlx_worker", *(str(folder) for folder in folders)],
            log=self._logs / f"mlx-worker-{next(self._starts)}.log",
            folder=Path.cwd(),
            ours=True,
            draft=draft,
            shares_process=True,
            timeout=self._subject.timeout,
            start_timeout=self._subject.start_timeout,
        )

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the environment this process and its workers share."""
        return {"python": platform.python_version(), **installed("mlx", "mlx-lm", "transformers", "numpy")}

    def _folder(self, name: str) -> Path:
        if name not in self._models:
            raise InputError(f"model '{name}' has no local folder", hint=f"fetch it: hf download {name}")
        return self._models[name]
