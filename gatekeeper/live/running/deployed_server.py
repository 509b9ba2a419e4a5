"""The deployed server: requested the way it was certified, one request at a time, and what it shows of itself."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from gatekeeper.analysis.plan.settings import plain_of, sampling_for, speculates, with_conditions
from gatekeeper.backends import facts_of, open_backend
from gatekeeper.backends.dialect import Counters
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.launch_line import shown_environment
from gatekeeper.backends.listening_process import ListeningProcess, find_lossy_process
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.backends.server_process import installed_beside
from gatekeeper.backends.server_requests import Server
from gatekeeper.core.backend_registry import SCRIPTED, SERVERS
from gatekeeper.core.clock import Clock
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.policy import Policy
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.files import HashCache, user_hash_cache
from gatekeeper.core.system.own_limits import OwnLimitError
from gatekeeper.live.running import certified_run
from gatekeeper.live.running.certified_run import CertifiedRun
from gatekeeper.live.running.model_identity import ModelIdentity, drafting_plain
from gatekeeper.live.running.server_differences import (
    Compared,
    SeenProcess,
    compare,
    compare_answers,
    compare_versions,
)

_START_TIMEOUT_S = 30.0
"""Longest wait for the first answer: a deployed server has already loaded its models."""
PROBE_TOKENS = 16
"""Tokens of each of the two answers: enough to draft, and soon done."""
_OWN = frozenset({"gatekeeper", "python", "numpy", "url", "plain_url", "program", "command", "plain_command"})
"""Entries of the manifest's versions that are not the server's."""
FRAMEWORK_PYTHON = "/Python.app/Contents/MacOS/"


def _open_backend(
    slo: Slo, *, url: Address | None, plain_url: Address | None, models: Mapping[str, Path], base: Path, logs: Path
) -> Backend:
    """Return the backend of the running server at *url*, with the requests of the SLO's system under test."""
    subject = slo.subject
    name = facts_of(subject.backend).served_as or subject.backend
    url = url or subject.url
    if name not in {*SERVERS, SCRIPTED}:
        hint = "certify the deployed server itself; gatekeeper explain servers lists the backends"
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
    def clock(self) -> Clock:
        """Return the clock of its answers."""
        return self._backend.clock

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


@contextmanager
def attach(
    certified: CertifiedRun, slo: Path | None, *, url: Address | None, plain_url: Address | None = None
) -> Iterator[tuple[DeployedServer, ModelIdentity]]:
    """Return the running server at *url*, and the one at *plain_url*, to be compared with what *certified* it.

    *slo* is the SLO file, for the paths of the models. Raise InputError for a plain server that drafts, or is lossy.
    """
    base = certified.base(slo)
    models, hashes = certified.model_paths(base), HashCache(user_hash_cache())
    subject = certified.inputs.slo.subject
    if plain_url is not None and (reason := drafting_plain(certified.manifest, plain_url, hashes)) is not None:
        raise InputError(f"--plain-url {plain_url}: {reason}", hint="start the same server without a draft there")
    with tempfile.TemporaryDirectory(prefix="gatekeeper-live-") as logs:
        backend = _open_backend(
            certified.inputs.slo, url=url, plain_url=plain_url, models=models, base=base, logs=Path(logs)
        )
        if plain_url is not None and isinstance(backend, ServerBackend):
            lossy = backend.find_lossy_at(plain_url)
            if lossy is not None:
                raise InputError(f"--plain-url {plain_url}: {lossy.message}", hint=f"{lossy.hint}, and start it again")
        server = DeployedServer(backend, subject.drafts)
        identity = ModelIdentity(
            certified.manifest, url=url or subject.url, paths=models, names=certified.names, hashes=hashes
        )
        try:
            yield server, identity
        finally:
            server.close()


def check_server(run: Path, slo_path: Path, url: Address) -> list[Compared]:
    """Compare the server at *url* with the certified *run*; two short requests show its cache and whether it drafts."""
    certified = certified_run.load(run)
    with attach(certified, slo_path, url=url) as (server, identity):
        return [*_compare_server(certified, certified.policy, server, identity)]


def _compare_server(
    certified: CertifiedRun, policy: Policy, server: DeployedServer, identity: ModelIdentity
) -> Iterator[Compared]:
    """Send the two requests first: until the server has answered, it tells nothing."""
    answers, setting = _answers(certified, policy, server)
    model = identity.check() or identity.check_answer(answers[-1].claims.model, sound=answers[-1].fault is None)
    description = identity.describe().removeprefix("server: ")
    if model is not None:
        yield Compared("models", "differs", model)
    elif identity.seen:
        yield Compared("models", "as certified", description)
    else:
        yield Compared("models", "not checked", description)
    yield from compare_answers(policy.conditions, answers, speculating=speculates(setting))
    yield from compare(policy, seen_process(identity.process, server.name), server.fetch)
    yield compare_versions(certified.manifest.versions, running_versions(certified.manifest, server, identity.process))


def _answers(certified: CertifiedRun, policy: Policy, server: DeployedServer) -> tuple[list[Answer], Setting]:
    """Send one canary twice, with the setting of the first route that speculates."""
    slo = certified.inputs.slo
    route = next((candidate for candidate in policy.route if candidate.speculation), policy.route[0])
    setting = route.steps[0]
    canary = certified.inputs.canaries[route.workload][0]
    knobs = with_conditions(slo, setting)
    sampling = sampling_for(slo, canary, knobs, 1)
    request = DecodeRequest(canary, knobs, replace(sampling, max_tokens=min(sampling.max_tokens, PROBE_TOKENS)))
    return [server.send(request) for _ in range(2)], setting


def seen_process(process: ListeningProcess | None, backend: str) -> SeenProcess | None:
    """Return what the process of a *backend* shows of how it was started."""
    if process is None:
        return None
    try:
        environment: Mapping[str, str] | None = shown_environment(psutil.Process(process.pid).environ())
    except (psutil.Error, OSError):
        environment = None
    lossy = find_lossy_process((process.pid,), dialect_of(backend).lossy) if backend in SERVERS else None
    return SeenProcess(process.argv, environment, lossy)


def program_of(process: ListeningProcess) -> str:
    """Return the program of a process, or the Python of its environment where the program is a bare interpreter.

    Python of Homebrew and python.org starts itself again as `Python.app/Contents/MacOS/Python`, which knows no
    environment: the variable `__PYVENV_LAUNCHER__` of the process names it.
    """
    program = process.argv[0]
    if FRAMEWORK_PYTHON not in program:
        return program
    try:
        environment = psutil.Process(process.pid).environ()
    except (psutil.Error, OSError):
        return program
    folder = environment.get("VIRTUAL_ENV")
    return environment.get("__PYVENV_LAUNCHER__") or (f"{folder}/bin/python" if folder else program)


def running_versions(manifest: Manifest, server: DeployedServer, process: ListeningProcess | None) -> Mapping[str, str]:
    """Return the versions in the environment of a local Python server, and else the one that the server tells."""
    names = [name for name in manifest.versions if name not in _OWN]
    program = program_of(process) if process is not None and process.argv else ""
    beside = installed_beside(program, names) if Path(program).is_absolute() else {}  # else it may be another Python
    try:
        return {name: text for name, text in server.versions().items() if name in names} | beside
    except GatekeeperError:
        return beside
