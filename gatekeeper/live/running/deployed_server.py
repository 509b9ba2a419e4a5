"""The deployed server: requested the way it was certified, one request at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.backends import facts_of, open_backend
from gatekeeper.backends.dialect import Counters
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.backends.server_requests import Server
from gatekeeper.core.backend_registry import SCRIPTED, SERVERS
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.own_limits import OwnLimitError

_START_TIMEOUT_S = 30.0
"""Longest wait for the first answer: a deployed server has already loaded its models."""


def attach(
    slo: Slo, *, url: Address | None, plain_url: Address | None, models: Mapping[str, Path], base: Path, logs: Path
) -> Backend:
    """Return the backend of the running server at *url*, with the requests of the SLO's system under test."""
    subject = slo.subject
    name = facts_of(subject.backend).served_as or subject.backend
    url = url or subject.url
    if name not in {*SERVERS, SCRIPTED}:
        hint = "certify the deployed server itself; the README lists the backends"
        raise InputError(f"backend '{name}' is not a server, so there is no address to watch", hint=hint)
    if url is None and name != SCRIPTED:
        hint = "for example --url http://127.0.0.1:8080"
        raise InputError("watch needs --url, the address of the deployed server", hint=hint)
    changes = {
        "backend": name,
        "url": url,
        "plain_url": plain_url or (subject.plain_url if url == subject.url else None),
        "command": None,
        "plain_command": None,
        "program": None,
        "start_timeout": min(_START_TIMEOUT_S, subject.start_timeout),
    }
    if name != SCRIPTED:
        subject = subject.model_copy(update=changes)
    return open_backend(subject, models=models, base=base, logs=logs)


@dataclass(frozen=True, slots=True)
class CounterGain:
    """The increase of a server's own counters between two rounds, over all requests."""

    at_ns: int
    drafted: int
    accepted: int
    rounds: int | None = None


class DeployedServer:
    """Sends requests, over one RunningSystem for each server process."""

    def __init__(self, backend: Backend, drafts: Sequence[str] = ()) -> None:
        """Send to *backend*, which may speculate with any of *drafts*."""
        self._backend, self._drafts = backend, tuple(drafts)
        self._subjects: dict[str, RunningSystem] = {}
        self._counters: Counters | None = None

    @property
    def name(self) -> str:
        """Return the name of its backend."""
        return self._backend.name

    @property
    def both_arms(self) -> bool:
        """Return whether plain decoding can be requested too: by the request, or at another address."""
        return self._backend.shares_process or Sight.PLAIN in self._backend.sight

    def send(self, request: DecodeRequest) -> Answer:
        """Send one request; a server that cannot be reached or breaks off is a fault of its answer."""
        sent_ns = self._backend.clock.now_ns()
        try:
            subject = self._subject(request)
        except OwnLimitError:
            raise  # ours, and no fault of the server
        except GatekeeperError as error:
            return Answer(sent_ns, self._backend.clock.now_ns(), fault=f"no connection: {error.message}")
        return subject.answer(request)

    def _subject(self, request: DecodeRequest) -> RunningSystem:
        if request.draft is None and self._backend.shares_process:
            subject = next((running for running in self._subjects.values() if running.alive()), None)
            if subject is not None:
                return subject
        residence = self._backend.residence(request.setting)
        subject = self._subjects.get(residence)
        if subject is None or not subject.alive():
            subject = self._subjects[residence] = self._backend.start(request.setting)
        return subject

    def counter_gain(self) -> CounterGain | None:
        """Return the increase of the speculating server's own counters since the last call.

        None if it has no counters, they were reset, or this is the first call.
        """
        server = self._speculating_server()
        before, self._counters = self._counters, None if server is None else server.counters()
        if before is None or self._counters is None:
            return None
        gain = self._counters.since(before)
        if gain.drafted is None or gain.accepted is None:
            return None
        return CounterGain(self._backend.clock.now_ns(), gain.drafted, gain.accepted, gain.rounds)

    def fetch(self, path: str) -> str | None:
        """Return the text of one of the server's own paths; None where there is none, or it has not answered yet."""
        server = self._speculating_server()
        return None if server is None else server.document(path)

    def _speculating_server(self) -> Server | None:
        """Return the server that may draft; None before it was requested.

        A plain server of its own says nothing about speculation: its slots and counters never draft.
        """
        for running in self._subjects.values():
            if isinstance(running, Server) and (running.drafts or self._backend.shares_process):
                return running
        return None

    def versions(self) -> Mapping[str, str]:
        """Return the versions that the server tells."""
        return self._backend.versions()

    def request_fields(self, setting: Setting) -> dict[str, Any]:
        """Return the request fields for *setting* or plain decoding; none if the server accepts no such fields."""
        backend, drafts = self._backend, self._drafts
        if not isinstance(backend, ServerBackend) or not drafts:
            return {}
        opposite = plain_of(setting) if speculates(setting) else (("draft", drafts[0]), ("num_draft_tokens", 1))
        try:
            return backend.fields(setting, opposite)
        except InputError:  # the setting names a draft by a folder that is not on this machine
            return {}

    def close(self) -> None:
        """Close every connection; the deployed servers keep running."""
        for subject in self._subjects.values():
            subject.close()
        self._subjects.clear()
