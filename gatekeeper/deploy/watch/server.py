"""The post: the deployed server, reached as it was certified, and asked one canary at a time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.backends import open_backend
from gatekeeper.backends.dialects.dialect import Counters
from gatekeeper.backends.server import Server
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.slo import Slo

SERVED_AS = {"mlx": "mlx-server"}
"""Which server speaks for a backend that was certified inside a worker: the same library, over HTTP."""
_WITHOUT_URL = frozenset({"scripted"})
_PATIENCE_S = 30.0
"""Longest wait for the first answer of a server that is there: it was deployed, so it is loaded."""


def attached(
    slo: Slo, *, url: str | None, plain_url: str | None, models: Mapping[str, Path], base: Path, logs: Path
) -> Backend:
    """Return the backend of the running server at *url*, spoken to as the SLO's subject is."""
    subject, name = slo.subject, SERVED_AS.get(slo.subject.backend, slo.subject.backend)
    url = url or subject.url
    if name not in {*SERVERS, *_WITHOUT_URL}:
        raise InputError(
            f"{name} is no server, so there is nothing to watch at an address",
            hint="certify the server that is deployed: its backends stand in the README",
        )
    if url is None and name not in _WITHOUT_URL:
        raise InputError(
            "watch needs --url: where the server that was promoted answers",
            hint="for example --url http://127.0.0.1:8080",
        )
    patience = min(_PATIENCE_S, subject.start_timeout)
    started = {"command": None, "plain_command": None, "program": None, "start_timeout": patience}
    places = {"url": url, "plain_url": plain_url or (subject.plain_url if url == subject.url else None)}
    changes = {"backend": name, **places, **started} if name not in _WITHOUT_URL else {}
    return open_backend(subject.model_copy(update=changes), models=models, base=base, logs=logs)


class Post:
    """Keeps one subject for each process that is asked; one that can not be reached is an answer's fault."""

    def __init__(self, backend: Backend, drafts: Sequence[str] = ()) -> None:
        """Reach *backend*, which may be asked to speculate with any of *drafts*."""
        self._backend, self._drafts = backend, tuple(drafts)
        self._subjects: dict[str, RunningSystem] = {}
        self._counted: Counters | None = None

    @property
    def name(self) -> str:
        """Return the name of the backend that speaks to it."""
        return self._backend.name

    @property
    def both_arms(self) -> bool:
        """Tell whether a plain twin of an answer can be asked for: with the request, or at an address of its own."""
        return self._backend.shares_process or Sight.PLAIN in self._backend.sight

    def answer(self, ask: DecodeRequest) -> Answer:
        """Answer one request; a server that is gone is a fault, whether it went before or between."""
        begun = self._backend.clock.now_ns()
        try:
            subject = self._subject(ask)
        except GatekeeperError as error:
            now = self._backend.clock.now_ns()
            return Answer(begun, now, fault=f"no connection: {error.message}")
        return subject.answer(ask)

    def _subject(self, ask: DecodeRequest) -> RunningSystem:
        if ask.draft is None and self._backend.shares_process:
            subject = next((one for one in self._subjects.values() if one.alive()), None)
            if subject is not None:
                return subject
        residence = self._backend.residence(ask.setting)
        subject = self._subjects.get(residence)
        if subject is None or not subject.alive():
            subject = self._subjects[residence] = self._backend.start(ask.setting)
        return subject

    def gained(self) -> tuple[int, int] | None:
        """Return what the server's own counters gained since this was asked last: drafted and accepted tokens.

        None where it has none, they were reset, or nothing was asked before.
        """
        server = next((one for one in self._subjects.values() if isinstance(one, Server)), None)
        before, self._counted = self._counted, None if server is None else server.counters()
        if before is None or self._counted is None:
            return None
        gained = self._counted.since(before)
        return None if gained.drafted is None or gained.accepted is None else (gained.drafted, gained.accepted)

    def fields(self, setting: Setting) -> dict[str, Any]:
        """Return what a request says for *setting*, or for plain decoding; nothing where the server takes neither."""
        backend, drafts = self._backend, self._drafts
        if not isinstance(backend, ServerBackend) or not drafts:
            return {}
        other = plain_of(setting) if speculates(setting) else (("draft", drafts[0]), ("num_draft_tokens", 1))
        try:
            return backend.fields(setting, other)
        except InputError:  # it calls a draft by the folder it lies in, which is not here
            return {}

    def close(self) -> None:
        """Let go of every server; they are not ours and go on."""
        for subject in self._subjects.values():
            subject.close()
        self._subjects.clear()
