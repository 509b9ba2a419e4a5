"""The outfit: all that a watch needs, found from a policy's path and the options of the command line."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from gatekeeper import host
from gatekeeper.backends.http import control
from gatekeeper.core import files, inputs, run_directory
from gatekeeper.core.clock import Clock
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.policy import Policy, Watch
from gatekeeper.core.records import HostSample
from gatekeeper.deploy.watch import certified_run, model_identity, recent
from gatekeeper.deploy.watch.certified_run import Certificate, Edits
from gatekeeper.deploy.watch.model_identity import Witness
from gatekeeper.deploy.watch.outputs import Ears, Places
from gatekeeper.deploy.watch.route_state import Change
from gatekeeper.deploy.watch.server import Post, attached
from gatekeeper.deploy.watch.session import Orders, Ports, Sampling, Session
from gatekeeper.report import otel

_SAMPLES = 12
"""Samples of the host between two looks, as far as that is not more than one a second."""
_SLOWEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    url: str | None = None
    plain_url: str | None = None
    run: Path | None = None
    """Where the run lies that certified the policy; beside the policy where it is not named."""
    slo: Path | None = None
    """The SLO file that was certified, for the paths of its models."""
    interval: float | None = None
    duty: float | None = None
    host: bool | None = None
    """None: where the policy guards it."""
    overlay: Path | None = None
    journal: Path | None = None
    commands: tuple[tuple[str, ...], ...] = ()
    limit: float = 30.0


@contextmanager
def session(path: Path, options: Options, ears: Ears, clock: Clock | None = None) -> Iterator[Session]:
    """Open the session that watches the policy at *path*, by the server's own clock or another *clock*."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint=f"name the policy in it: gatekeeper watch {path / 'policy.toml'}")
    inputs.read_text(path, "policy")  # a mistyped path is told as one, before a run is looked for beside it
    for option, address in (("--url", options.url), ("--plain-url", options.plain_url)):
        if address is not None and urlsplit(address).scheme not in {"http", "https"}:
            raise InputError(f"{option} {address} is no address", hint=f"for example {option} http://127.0.0.1:8080")
    certified = certified_run.certificate(options.run or path.parent)
    slo = certified.given.slo
    orders = Orders(lambda policy: _as_ordered(policy, options), options.commands, options.limit)
    read = certified_run.read(path, certified)
    effective = orders.policy(read.policy)
    url = options.url or slo.subject.url
    overlay, journal = (path.with_name(name) for name in run_directory.AFTERWARDS)
    places = Places(options.overlay or overlay, options.journal or journal, path, url or "no address")
    base = certified_run.home(certified, options.slo)
    models = certified_run.places(certified, base)
    with tempfile.TemporaryDirectory(prefix="gatekeeper-watch-") as logs:
        backend = attached(
            slo,
            url=options.url,
            plain_url=options.plain_url,
            models=models,
            base=base,
            logs=Path(logs),
        )
        witness = Witness(
            certified.manifest,
            url=url,
            places=models,
            names=certified.names,
            hashes=files.HashCache(files.user_hash_cache()),
            listing=lambda: _listing(url),
        )
        interval = host_interval(effective)
        sampler = _sampler(effective, options, url, backend.clock, witness, interval)
        ports = Ports(
            clock or backend.clock, Post(backend, slo.subject.drafts), witness, sampler, interval, _exporter(certified)
        )
        with Session(certified, Edits(path, certified, read), orders, ports, places, ears) as made:
            yield made


def host_interval(policy: Policy) -> float:
    """Return the seconds between two samples of the host: twelve a look, at most one a second, at least one in ten.

    Less often where a guard looks back for so long that they would not all be kept: it would miss what was dropped.
    """
    longest = max((guard.over or 0.0 for guard in policy.guard if guard.of.host), default=0.0)
    return max(min(_SLOWEST_S, max(1.0, policy.watch.interval / _SAMPLES)), longest / (recent.SAMPLES / 2))


def _as_ordered(policy: Policy, options: Options) -> Policy:
    """Return *policy* as the command line wants it watched."""
    asked = {"interval": options.interval, "duty": options.duty}
    changes = {name: value for name, value in asked.items() if value is not None}
    try:
        watch = Watch.model_validate({**policy.watch.model_dump(), **changes})
    except ValidationError as error:
        said = error.errors()[0]
        message = said["msg"].removeprefix("Value error, ").partition("\n")[0]
        names = " and ".join(f"--{name}" for name in changes)
        raise InputError(f"{names}: {message}", hint="the policy's [watch] holds the other values") from error
    guards = policy.guard if options.host is not False else tuple(one for one in policy.guard if not one.of.host)
    return policy.model_copy(update={"watch": watch, "guard": guards})


def _listing(url: str | None) -> str | None:
    if url is None:
        return None
    return control.fetch(url.rstrip("/").removesuffix("/v1") + "/v1/models", {})


def _exporter(certified: Certificate) -> Callable[[Change], str | None]:
    """Return what tells the SLO's collector of a change, linked to the run that certified."""
    asked = certified.given.slo.telemetry
    manifest = sha256(certified.manifest.text())

    def export(change: Change) -> str | None:
        said: dict[str, str | int | float | bool | None] = {
            "workload": change.workload,
            "change": change.kind,
            "from_rung": change.before,
            "to_rung": change.after,
            "because": change.because,
        }
        said |= {f"setting.{knob}": value for knob, value in change.setting.items()}
        at_ns = round(datetime.fromisoformat(change.at).timestamp() * 1e9)
        return otel.transition(asked, said, at_ns, manifest)

    return export


def _sampler(
    policy: Policy, options: Options, url: str | None, clock: Clock, witness: Witness, interval: float
) -> Callable[[Callable[[HostSample], None]], Sampling] | None:
    guarded = [one.metric for one in policy.guard if one.of.host]
    wanted = options.host if options.host is not None else bool(guarded)
    if not wanted:
        return None
    if options.host is None and url is not None and not model_identity.is_local(urlsplit(url).hostname or ""):
        raise InputError(
            f"the policy guards {', '.join(guarded)} of the server's host, and {url} is another machine",
            hint="run the watch on that machine; or --no-host leaves these guards unwatched, --host samples this one",
        )

    def make(record: Callable[[HostSample], None]) -> Sampling:
        return host.Sampler(None, clock=clock, pids=witness.pids, record=record, interval=interval, phase="watch")

    return make
