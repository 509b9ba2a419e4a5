"""The mlx backend: real mlx-lm in a worker process, so that its death is an answer's fault and not ours."""

import json
import mmap
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Self

from gatekeeper.backends.asked import PLAIN, settle
from gatekeeper.backends.launch import end, environment, how_it_ended, installed, tail
from gatekeeper.backends.rounds import rounds_from
from gatekeeper.terms.clock import Clock, SystemClock
from gatekeeper.terms.errors import GatekeeperError, InputError
from gatekeeper.terms.metrics import Sight
from gatekeeper.terms.ports import Ask
from gatekeeper.terms.records import Answer, Arrival, Setting
from gatekeeper.terms.slo import Subject

_INSTALL = 'pip install "gatekeeper[mlx]"'
_LOOK_S = 0.5
"""How often a silent worker is looked at; it is never asked."""


def open_backend(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "MlxBackend":
    """Return the mlx backend; raise InputError where mlx-lm is not installed."""
    del base
    if find_spec("mlx_lm") is None:
        raise InputError("the mlx backend needs mlx-lm, which is not installed here", hint=_INSTALL)
    return MlxBackend(subject, models, logs)


class MlxBackend:
    """Starts workers, each with the target and one draft."""

    name = "mlx"
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

    def start(self, setting: Setting, *, cache: bool = False) -> "MlxSubject":
        """Start a worker and wait until its models are loaded; raise InputError naming a folder that is broken."""
        if cache:
            raise GatekeeperError("the mlx worker has no prompt cache to leave on", hint='use backend = "mlx-server"')
        draft = dict(setting).get("draft")
        folders = [self._folder(name) for name in (self._subject.target, draft) if name is not None]
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"mlx-worker-{next(self._starts)}.log"
        return MlxSubject(folders, draft, log, self._subject.timeout, self._subject.start_timeout)

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the environment this process and its workers share."""
        return {"python": platform.python_version(), **installed("mlx", "mlx-lm", "transformers", "numpy")}

    def _folder(self, name: str) -> Path:
        if name not in self._models:
            raise InputError(f"model '{name}' has no local folder", hint=f"fetch it: hf download {name}")
        return self._models[name]


class MlxSubject:
    """One worker and its pipe."""

    def __init__(self, folders: list[Path], draft: str | None, log: Path, timeout: float, start_timeout: float) -> None:
        self._draft, self._timeout, self._log = draft, timeout, log
        self._numbers = count(1)
        self._turn = threading.Lock()
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        # The worker counts its tokens here: the parent sees progress without a word on the pipe.
        with tempfile.TemporaryFile() as page:
            page.truncate(mmap.PAGESIZE)
            self._beat = mmap.mmap(page.fileno(), mmap.PAGESIZE)
            with log.open("wb") as errors:
                # A session of its own: Ctrl-C reaches the parent alone, which then ends the worker in order.
                self._worker = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "gatekeeper.backends.mlx_worker"),
                        *(str(folder) for folder in folders),
                        *("--beat", str(page.fileno())),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    pass_fds=(page.fileno(),),
                    start_new_session=True,
                    env=environment(ours=True),
                )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._await_ready(folders, start_timeout)
        except BaseException:
            self.close()
            raise

    def answer(self, ask: Ask) -> Answer:
        """Answer one request; the worker's death or silence is the answer's fault."""
        asked = settle(ask)
        if asked.draft is not None and asked.draft != self._draft:
            message = f"asked a worker that holds '{self._draft or PLAIN}' to draft with '{asked.draft}'"
            raise GatekeeperError(message, hint="this is a bug; please report it")
        with self._turn:
            sent = time.monotonic_ns()
            reply, fault = self._exchange({"ask": asdict(asked)})
        if reply is None:
            return Answer(sent, time.monotonic_ns(), fault=fault)
        return _answer(reply)

    def logit_gap(self, ask: Ask, tokens: tuple[int, ...]) -> float | None:
        """Return how far the target's best logit lies above its second after the prompt and *tokens*.

        An untimed pass that explains near-ties; None where the worker cannot tell.
        """
        with self._turn:
            reply, _ = self._exchange({"gap": {"ask": asdict(settle(ask)), "tokens": list(tokens)}})
        return None if reply is None else reply["gap"]

    def pids(self) -> tuple[int, ...]:
        """Return the worker's process."""
        return (self._worker.pid,)

    def alive(self) -> bool:
        """Tell whether the worker still runs."""
        return self._worker.poll() is None

    def close(self) -> None:
        """End the worker and wait for it."""
        end(self._worker)
        self._reader.join()
        for pipe in (self._worker.stdin, self._worker.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    # What was still to be written has nobody left to read it.
                    continue

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _read(self) -> None:
        assert self._worker.stdout is not None
        for line in self._worker.stdout:
            try:
                self._lines.put(json.loads(line))
            except ValueError:
                # Only a worker that died in the middle of a line leaves half of one.
                break
        self._lines.put(None)

    def _await_ready(self, folders: list[Path], start_timeout: float) -> None:
        try:
            line = self._lines.get(timeout=start_timeout)
        except queue.Empty:
            hint = "raise start_timeout in [subject], or look at what the machine is busy with"
            raise InputError(f"{folders[0]}: the mlx worker was not ready in {start_timeout:g} s", hint=hint) from None
        if line is not None and "ready" in line:
            return
        where = (line or {}).get("loading") or [", ".join(str(folder) for folder in folders)]
        said = (line or {}).get("failed") or f"the worker ended: {how_it_ended(self._worker.wait())}"
        hint = f"is the folder complete? Fetch the model again. The worker's last words:\n{tail(self._log)}"
        raise InputError(f"{where[0]}: mlx-lm cannot load this model: {said}", hint=hint)

    def _exchange(self, request: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """Return the reply to *request*, or None and what happened to the worker."""
        number = next(self._numbers)
        try:
            assert self._worker.stdin is not None
            self._worker.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
            self._worker.stdin.flush()
        except (OSError, ValueError):
            return None, f"worker died: {how_it_ended(self._worker.wait())}"
        beat, since = self._tokens(), time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=min(_LOOK_S, self._timeout / 4))
            except queue.Empty:
                if self._tokens() != beat:
                    beat, since = self._tokens(), time.monotonic()
                elif time.monotonic() - since > self._timeout:
                    end(self._worker)
                    return None, f"timeout: no token within {self._timeout:g} s; the worker was ended"
                continue
            if line is None:
                self._lines.put(None)
                return None, f"worker died: {how_it_ended(self._worker.wait())}"
            if line.get("id") == number:
                return line, ""

    def _tokens(self) -> bytes:
        return self._beat[:8]


def _answer(reply: dict[str, Any]) -> Answer:
    told = reply["rounds"]
    return Answer(
        reply["sent_ns"],
        reply["ended_ns"],
        arrivals=tuple(
            Arrival(at, 1, drafted, token)
            for at, drafted, token in zip(reply["times"], reply["drafted"], reply["tokens"], strict=True)
        ),
        text=reply["text"],
        tool_calls=tuple(reply["tool_calls"]),
        finish=reply["finish"],
        prompt_tokens=reply["prompt_tokens"],
        output_tokens=len(reply["times"]) if reply["fault"] is None else None,
        rounds=rounds_from(told) if told and reply["fault"] is None else None,
        memory_active=reply["memory_active"],
        memory_peak=reply["memory_peak"],
        fault=reply["fault"],
    )
