"""The mlx-server backend: the real mlx_lm.server over HTTP, one process per arm."""

import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Self

from gatekeeper.backends.asked import PLAIN, settle
from gatekeeper.backends.chat import Said, body, understand
from gatekeeper.backends.launch import HOST, Launched, free_port, health, installed, last_words, launch
from gatekeeper.backends.rounds import rounds_from
from gatekeeper.backends.stream import hear
from gatekeeper.terms.clock import Clock, SystemClock
from gatekeeper.terms.errors import GatekeeperError, InputError
from gatekeeper.terms.metrics import Sight
from gatekeeper.terms.ports import Ask
from gatekeeper.terms.records import Answer, Rounds, Setting
from gatekeeper.terms.slo import Subject

_INSTALL = 'pip install "gatekeeper[mlx]" (or name a server of another environment in subject.command)'
_PATH = "/v1/chat/completions"
_ENDING_S = 0.5
"""After a torn connection: as long as a killed server may take to be gone."""
_TORN = ("connection broken", "no connection", "cut off", "empty answer")


def open_backend(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "MlxServerBackend":
    """Return the mlx-server backend; raise InputError where there is no mlx_lm.server to start."""
    del base
    if find_spec("mlx_lm") is None and not (subject.command and subject.plain_command):
        raise InputError("the mlx-server backend needs mlx-lm, which is not installed here", hint=_INSTALL)
    return MlxServerBackend(subject, models, logs)


class MlxServerBackend:
    """Starts mlx_lm.server, unmodified for plain decoding and through our tap for a draft."""

    name = "mlx-server"
    # One process cannot serve both: without drafting it still prefills the draft and decodes in a slower loop.
    shares_process = False
    streams = 64
    restart_knobs: tuple[str, ...] = ("draft",)
    knobs = frozenset({"draft", "num_draft_tokens", "temperature", "max_tokens", "thinking", "concurrency"})
    realtime = True

    def __init__(self, subject: Subject, models: Mapping[str, Path], logs: Path) -> None:
        self.clock: Clock = SystemClock()
        self.sight = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.MEMORY | Sight.PLAIN
        if subject.command is None:
            self.sight |= Sight.ROUNDS
        # The command of another environment is the user's own: whether its cache is on stands in there.
        self.caches = subject.command is None
        self._subject, self._models, self._logs = subject, models, logs
        self._starts = count(1)

    def residence(self, setting: Setting) -> str:
        """Return the draft, or `plain`: each has a server of its own."""
        return str(dict(setting).get("draft") or PLAIN)

    def start(self, setting: Setting, *, cache: bool = False) -> "MlxServerSubject":
        """Start a server and wait until its models are loaded; *cache* leaves its prompt cache on, as deployed.

        Raise InputError where it does not come up, quoting the tail of its log.
        """
        draft = dict(setting).get("draft")
        port = free_port()
        log = self._logs / f"mlx-server-{next(self._starts)}-{PLAIN if draft is None else 'draft'}.log"
        launched = launch(
            self.command(draft, port, cache=cache),
            log=log,
            ready=lambda: health(port) is not None,
            start_timeout=self._subject.start_timeout,
            install=_INSTALL,
            ours=draft is not None and self._subject.command is None,
        )
        try:
            _await_loaded(launched, port, self._subject)
        except BaseException:
            launched.close()
            raise
        return MlxServerSubject(launched, port, draft, self._subject.timeout)

    def command(self, draft: str | None, port: int, *, cache: bool) -> tuple[str, ...]:
        """Return the command line of one arm's server."""
        subject = self._subject
        written = subject.plain_command if draft is None else subject.command
        target = str(self._folder(subject.target))
        if written is not None:
            places = {"target": target, "draft": "" if draft is None else str(self._folder(draft)), "port": str(port)}
            return (*(_filled(word, places) for word in written), *subject.args)
        module = ("gatekeeper.backends.mlx_tap",) if draft is not None else ("mlx_lm", "server")
        return (
            *(sys.executable, "-P", "-m", *module, "--model", target, "--host", HOST, "--port", str(port)),
            *(() if draft is None else ("--draft-model", str(self._folder(draft)))),
            *(() if cache else ("--prompt-cache-size", "0")),
            *subject.args,
        )

    def versions(self) -> Mapping[str, str]:
        """Return the versions of this environment where it serves an arm, and the commands that start another's."""
        subject = self._subject
        named = {"command": subject.command, "plain_command": subject.plain_command}
        found = {name: " ".join(words) for name, words in named.items() if words is not None}
        if len(found) < len(named):
            found |= installed("mlx", "mlx-lm", "transformers")
        return found

    def _folder(self, name: str) -> Path:
        if name not in self._models:
            raise InputError(f"model '{name}' has no local folder", hint=f"fetch it: hf download {name}")
        return self._models[name]


class MlxServerSubject:
    """One server; answers may be asked for from many threads."""

    def __init__(self, launched: Launched, port: int, draft: str | None, timeout: float) -> None:
        self._launched, self._draft, self._timeout = launched, draft, timeout
        self._url = f"http://{HOST}:{port}{_PATH}"
        self._closing = threading.Lock()

    def answer(self, ask: Ask) -> Answer:
        """Answer one request; a dead server, a torn or senseless stream and silence are the answer's fault."""
        asked, knobs = settle(ask), dict(ask.setting)
        if asked.draft != self._draft:
            message = f"asked the server of '{self._draft or PLAIN}' to decode with '{asked.draft or PLAIN}'"
            raise GatekeeperError(message, hint="this is a bug; please report it")
        if (knobs.get("concurrency") or 1) > 1:
            asked = replace(asked, seed=None)
        thinking = None if asked.thinking is None else {"enable_thinking": asked.thinking}
        request = body(asked, num_draft_tokens=asked.draft_tokens, chat_template_kwargs=thinking)
        heard = hear(self._url, json.dumps(request).encode(), headers={}, timeout=self._timeout)
        answer, said = understand(heard)
        if answer.fault is None:
            return replace(answer, rounds=_rounds(said, answer) if self._draft else None)
        ended = self._launched.ending(_ENDING_S if answer.fault.startswith(_TORN) else 0.0)
        return answer if ended is None else replace(answer, fault=f"server died: {ended} ({answer.fault})")

    def pids(self) -> tuple[int, ...]:
        """Return the server's process, without its leash."""
        return (self._launched.pid,)

    def alive(self) -> bool:
        """Tell whether the server runs."""
        return self._launched.alive()

    def close(self) -> None:
        """End the server and wait for it."""
        self._launched.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _rounds(said: Said, answer: Answer) -> Rounds | None:
    """Return the tap's count; None where there is no tap, or it counted other tokens than were sent."""
    told = said.usage.get("speculative")
    if not isinstance(told, dict) or told.get("tokens") != answer.output_tokens:
        return None
    try:
        return rounds_from(told)
    except KeyError:
        return None


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _await_loaded(launched: Launched, port: int, subject: Subject) -> None:
    """Wait until a request is served: mlx_lm.server says `ok` before its models are loaded, and if loading fails."""
    ping = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "stream": True}
    heard = hear(f"http://{HOST}:{port}{_PATH}", json.dumps(ping).encode(), headers={}, timeout=subject.start_timeout)
    answer, _ = understand(heard)
    if health(port) == 200 and not (answer.fault or "").startswith("timeout"):
        # What it answers is the subject's affair: a draft that cannot work shows in the records.
        return
    ended = launched.ending(0.0)
    said = f"it ended: {ended}" if ended else answer.fault or "its /health says unavailable"
    raise InputError(f"mlx_lm.server cannot serve {subject.target}: {said}", hint=last_words(launched.log))
