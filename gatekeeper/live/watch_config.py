"""Configuration of a watch: the options of the command line on top of the policy."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from gatekeeper.backends.listening_process import is_local
from gatekeeper.core.errors import InputError
from gatekeeper.core.hidden_keys import Address, address_of
from gatekeeper.core.policy import Policy, Watch
from gatekeeper.core.system import inputs, run_directory
from gatekeeper.live.guards import recent_samples

HOOK_LIMIT_S = 30.0
"""Time limit of one command, in seconds."""
_HOST_SAMPLES = 12
"""Host samples in one interval, limited to one per second."""
_SLOWEST_S = 10.0


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """The arguments and options of `gatekeeper watch`."""

    policy: Path
    url: Address | None = None
    """Address of the server; None: the SLO's."""
    plain_url: Address | None = None
    run: Path | None = None
    """The run that certified the policy; None: the policy's folder."""
    slo: Path | None = None
    """The SLO file that was certified, for the paths of its models."""
    interval: float | None = None
    """Seconds from round to round; None, as for `duty`: the policy's."""
    duty: float | None = None
    host: bool | None = None
    """Whether to sample this host; None: if the policy guards it."""
    overlay: Path | None = None
    log: Path | None = None
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands to run on a change, in addition to the policy's."""
    limit: float = HOOK_LIMIT_S
    textfile: Path | None = None
    """Folder of the node exporter's textfile collector."""
    listen: tuple[str, int] | None = None
    """Host and port where Prometheus fetches /metrics."""
    host_names: tuple[str, ...] = ()
    """Further names under which it may do so."""

    def __post_init__(self) -> None:
        """Hide the keys of the addresses, before one is printed or stored."""
        for name in ("url", "plain_url"):
            if (address := getattr(self, name)) is not None:
                object.__setattr__(self, name, Address(address))

    @property
    def overlay_path(self) -> Path:
        """Return where the overlay is written."""
        return self.overlay or self.policy.with_name(run_directory.WATCH_FILES[0])

    @property
    def log_path(self) -> Path:
        """Return where the log is written."""
        return self.log or self.policy.with_name(run_directory.WATCH_FILES[1])

    def check(self) -> None:
        """Raise InputError for a path that is not a policy, and for an address without http."""
        if self.policy.is_dir():
            hint = f"name the policy in it: {self.policy / 'policy.toml'}"
            raise InputError(f"{self.policy} is a folder", hint=hint)
        if self.textfile is not None and not self.textfile.is_dir():
            hint = "create it, and start the node exporter with --collector.textfile.directory"
            raise InputError(f"--textfile {self.textfile} is not a folder", hint=hint)
        if self.host_names and self.listen is None:
            raise InputError("--host-name names this machine at --listen, which is missing", hint="--listen HOST:PORT")
        run = self.policy.parent
        if self.policy.name == "policy.toml" and not self.policy.exists() and run_directory.is_run(run):
            hint = f"see its verdict: gatekeeper report {run} --format text"
            raise InputError(f"the run {run} wrote no policy.toml: there is nothing to deploy", hint=hint)
        inputs.read_text(self.policy, "policy")  # first, so that an error names a mistyped path and not its folder
        for option, address in (("--url", self.url), ("--plain-url", self.plain_url)):
            if address is not None:
                address_of(option, address)
        if self.url is not None and self.plain_url is not None and self.url.at("") == self.plain_url.at(""):
            raise InputError(
                f"--url and --plain-url are both {self.url}",
                hint="name the same server without a draft; one that switches drafting with each request needs no "
                "--plain-url",
            )

    def apply(self, policy: Policy) -> Policy:
        """Return *policy* with its values replaced by the options of the command line."""
        options = {"interval": self.interval, "duty": self.duty}
        changes = {name: value for name, value in options.items() if value is not None}
        commands = (*policy.watch.on_change, *self.commands)
        try:
            watch = Watch.model_validate({**policy.watch.model_dump(), **changes, "on_change": commands})
        except ValidationError as error:
            details = error.errors()[0]
            message = details["msg"].removeprefix("Value error, ").partition("\n")[0]
            message = message.replace("Input should be", "must be")
            wrong = [name for name in changes if details["loc"] == (name,)] or list(changes)
            names = " and ".join(f"--{name}" for name in wrong)
            raise InputError(f"{names}: {message}", hint="the other values come from [watch] of the policy") from error
        guards = policy.guard if self.host is not False else tuple(guard for guard in policy.guard if not guard.of.host)
        return policy.model_copy(update={"watch": watch, "guard": guards})

    def samples_host(self, policy: Policy, url: str | None) -> bool:
        """Return whether to sample this host; raise InputError if *policy* guards the host of a remote *url*."""
        if self.host is not None:
            return self.host
        guarded = [guard.metric for guard in policy.guard if guard.of.host]
        if guarded and url is not None and not is_local(urlsplit(url).hostname or ""):
            message = f"the policy guards {', '.join(guarded)} of the server's host, but {url} is another machine"
            hint = "run the watch on that machine, pass --no-host to skip these guards, or --host to sample this one"
            raise InputError(message, hint=hint)
        return bool(guarded)


def host_interval(policy: Policy) -> float:
    """Return the seconds between two host samples: twelve a round, at most one a second, at least one in ten seconds.

    Less often where a guard's window is so long that not all samples could be kept: dropped ones count as missing.
    """
    longest = max((guard.over or 0.0 for guard in policy.guard if guard.of.host), default=0.0)
    interval = max(1.0, policy.watch.interval / _HOST_SAMPLES)
    return max(min(_SLOWEST_S, interval), longest / (recent_samples.MAX_SAMPLES / 2))
