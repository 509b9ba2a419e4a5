"""What a running server shows of itself, for the check against its certificate: process, documents, two answers."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from gatekeeper.analysis.plan.settings import sampling_for, speculates, with_conditions
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.launch_line import shown_environment
from gatekeeper.backends.listening_process import ListeningProcess, find_lossy_process
from gatekeeper.backends.server_process import installed_beside
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.policy import Policy
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.system.files import HashCache, user_hash_cache
from gatekeeper.live.running import certified_run
from gatekeeper.live.running.certified_run import CertifiedRun
from gatekeeper.live.running.deployed_server import DeployedServer, attach
from gatekeeper.live.running.model_identity import ModelIdentity
from gatekeeper.live.running.server_differences import (
    Compared,
    SeenProcess,
    compare,
    compare_answers,
    compare_versions,
)

PROBE_TOKENS = 16
"""Tokens of each of the two answers: enough to draft, and soon done."""
_OWN = frozenset({"gatekeeper", "python", "numpy", "url", "plain_url", "program", "command", "plain_command"})
"""Entries of the manifest's versions that are not the server's."""


def check_server(run: Path, slo_path: Path, url: Address) -> list[Compared]:
    """Compare the server at *url* with the certified *run*; two short requests show its cache and whether it drafts."""
    certified = certified_run.load(run)
    policy = certified.policy
    if policy is None:
        raise InputError(f"{run} has no policy.toml", hint="certify again: there is nothing to deploy")
    base = certified.base(slo_path)
    models = certified.model_paths(base)
    with tempfile.TemporaryDirectory(prefix="gatekeeper-admit-") as logs:
        backend = attach(certified.inputs.slo, url=url, plain_url=None, models=models, base=base, logs=Path(logs))
        hashes = HashCache(user_hash_cache())
        identity = ModelIdentity(certified.manifest, url=url, paths=models, names=certified.names, hashes=hashes)
        server = DeployedServer(backend, certified.inputs.slo.subject.drafts)
        try:
            return [*_compared(certified, policy, server, identity)]
        finally:
            server.close()


def _compared(
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


FRAMEWORK_PYTHON = "/Python.app/Contents/MacOS/"


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
