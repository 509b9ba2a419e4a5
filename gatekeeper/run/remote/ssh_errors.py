"""Errors of a remote host: what ssh wrote when it could not connect, and requests that the remote agent denies."""

import re
import sys
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import printable

SILENT = "silent"
"""Connected, but no response arrives."""
MALFORMED = "malformed"
"""A response has not the shape that the agent gives it: a retry cannot help."""
HINTS = {
    "disk_full": "free disk space on that host: gatekeeper remote list shows its runs, ~/.gatekeeper holds them",
    "denied": "check the owner and permissions of that folder on the remote host",
    "busy": "wait for that run, follow it (gatekeeper remote attach) or end it (gatekeeper remote cancel)",
    "start": "see its output above; if its environment is damaged, remove ~/.gatekeeper/envs there to reinstall it",
    "exists": "attach to it: gatekeeper remote attach",
    "missing": "check the path or the run; gatekeeper remote list shows the runs of that host",
    "environment": "correct `environment` in hosts.toml, or remove it: gatekeeper then installs its own",
    "python": "install one (brew install python, apt-get install python3-venv), or set `python` in hosts.toml",
    "install": "see the output of pip above; check that the remote host reaches the package index",
    "damaged": "retry; if it happens again, check the disk and memory of that host",
    "starting": "retry in a few seconds",
}
"""What to do next, by the reason that the agent gives."""


class SshError(GatekeeperError):
    """There is no connection, or it broke: nothing is proven. `reason` is one word that scripts may rely on."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class AgentError(GatekeeperError):
    """The agent denies a request or fails at it; `kind` is the reason, `more` what else it sent."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, kind: str, message: str, more: dict[str, Any] | None = None) -> None:
        super().__init__(message, hint=HINTS.get(kind, "please report it"))
        self.kind = kind
        self.more = more or {}
        if kind in {"disk_full", "denied", "os", "bug"}:
            self.exit_code = ExitCode.INTERNAL_ERROR


LOCAL_NETWORK = (
    "; on macOS 15 and later an agent of launchd also needs System Settings > Privacy & Security > Local Network, "
    "a daemon does not (docs/reference/nights.md)"
    if sys.platform == "darwin"
    else ""
)
"""Ssh that an agent of launchd starts is refused until its program is allowed; from a terminal it works."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What ssh writes, and what it means; `{host}` is filled in."""

    pattern: str
    reason: str
    message: str
    hint: str
    quotes: str = ""
    """Finds the most useful line, where that is not the one that matches *pattern*."""


SIGNS = (
    Sign(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "host_key_changed",
        "the host key of {host} is not the one that this machine knows",
        "this may be an attack; if the host was reinstalled, compare its fingerprint and remove the line ssh names",
        quotes=r"^Offending .* key in ",
    ),
    Sign(
        r"Host key verification failed|No .* host key is known",
        "host_key_unknown",
        "the host key of {host} is not known on this machine",
        "connect once by hand and compare the fingerprint: ssh {host}",
    ),
    Sign(
        r"Could not resolve hostname",
        "unresolvable",
        "cannot resolve the name {host}",
        "check the spelling; a Mac on the same network is NAME.local; or define the host in ~/.ssh/config",
    ),
    Sign(
        r"Connection refused",
        "refused",
        "{host} refuses ssh connections",
        "turn on Remote Login on that Mac (System Settings > General > Sharing), or correct the port in ~/.ssh/config",
    ),
    Sign(
        r"[Tt]imed out|Timeout, server",
        "timed_out",
        "{host} does not answer",
        "check that it is switched on, awake and on this network, then try: ssh {host}",
    ),
    Sign(
        r"No route to host|Network is (unreachable|down)|Host is down",
        "no_route",
        "there is no route to {host}",
        "check that it is on this network; connect the VPN if it needs one" + LOCAL_NETWORK,
    ),
    Sign(
        r"Too many authentication failures|Permission denied|No more authentication methods|no mutual signature",
        "permission_denied",
        "{host} does not accept the ssh keys of this user",
        "gatekeeper uses no password; run ssh-copy-id {host}, or set User and IdentityFile in ~/.ssh/config",
    ),
    Sign(
        r"Bad configuration option|bad configuration options|Can't open user config file|Bad owner or permissions",
        "configuration",
        "ssh rejects its own configuration for {host}",
        "correct ~/.ssh/config; this shows the error: ssh -G {host}",
    ),
    Sign(
        r"hostname contains invalid characters|remote username contains invalid",
        "name",
        "ssh rejects the host name {host}",
        "define the host under a plain name in ~/.ssh/config",
    ),
    Sign(
        r"Connection (closed|reset)|Broken pipe|kex_exchange_identification|disconnect|closed by remote host",
        "closed",
        "{host} closed the connection",
        "it may be shutting down, or its sshd is at its limit (MaxStartups, MaxSessions); retry in a minute",
    ),
)
"""Tried in this order: the verification of a changed host key has failed, too."""
SSH_FAILED = 255
JUMPED = "UNKNOWN port 65535"
"""How ssh names the host when there is a jump host in between."""
NO_PYTHON = "gatekeeper: no python3"
"""What the command line on the remote host writes where it finds none."""


def explain(host: str, code: int | None, stderr: str) -> SshError:
    """Return what happened to a connection that ended with *code* after ssh wrote *stderr*.

    Only 255 is ssh's own; any other code is that of the remote command, whatever the login files wrote.
    """
    if NO_PYTHON in stderr:
        hint = "gatekeeper needs Python 3.11 or newer there: brew install python, or set `python` in hosts.toml"
        return SshError("no_python", f"{host} has no Python 3 that starts", hint=hint)
    lines = [printable(line, instead="").strip()[:300] for line in stderr.splitlines()]
    lines = [line for line in lines if line]
    for sign in SIGNS if code in {SSH_FAILED, None} else ():
        if re.search(sign.pattern, stderr):
            place = f"{host}, or a jump host before it," if JUMPED in stderr else host
            # The last lines only repeat that ssh failed.
            patterns = [pattern for pattern in (sign.quotes, sign.pattern) if pattern]
            quote = next((line for regex in patterns for line in lines if re.search(regex, line)), "")
            message = f"{sign.message.format(host=place).rstrip(',')} (ssh: {quote.removeprefix('ssh: ')})"
            return SshError(sign.reason, message, hint=sign.hint.replace("{host}", host))
    ended = "the connection ended" if code is None else f"ssh ended with exit code {code}"
    return SshError("ended", ": ".join([host, ended, *lines[-1:]]), hint=f"try: ssh {host} true")
