"""Errors of a remote host: what ssh wrote when it could not connect, and what the agent there denies."""

import re
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.errors import ExitCode, GatekeeperError
from gatekeeper.core.text import printable

SILENT = "silent"
"""Connected, and nothing comes."""
HINTS = {
    "disk_full": "make room there: gatekeeper remote list shows its runs, and ~/.gatekeeper holds them",
    "denied": "check the owner and permissions of the folder there",
    "busy": "wait for it, or: gatekeeper remote attach, gatekeeper remote cancel",
    "start": "what it said is above; is its environment whole? Remove ~/.gatekeeper/envs there to have it made anew",
    "exists": "attach to it: gatekeeper remote attach",
    "missing": "gatekeeper remote list shows what lies there",
    "environment": "let gatekeeper install its own: leave `environment` out of hosts.toml",
    "python": "install one (brew install python, apt-get install python3-venv), or name it in hosts.toml: python",
    "install": "the lines above are pip's own; is the machine connected to the package index?",
    "damaged": "try again; if it happens again, its disk or memory is bad",
}
"""What to do next, by the agent's word for why it denied a request."""


class SshError(GatekeeperError):
    """There is no connection, or it broke: nothing is proven. `reason` is one word that a script may rely on."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class AgentError(GatekeeperError):
    """The agent denies a request or fails at it; `kind` is its word for why, `more` what else it sent."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, kind: str, message: str, more: dict[str, Any] | None = None) -> None:
        super().__init__(message, hint=HINTS.get(kind, "please report it"))
        self.kind = kind
        self.more = more or {}
        if kind in {"disk_full", "denied", "os", "bug"}:
            self.exit_code = ExitCode.INTERNAL_ERROR


@dataclass(frozen=True, slots=True)
class Sign:
    """What ssh writes, and what it means; `{host}` is filled in."""

    pattern: str
    reason: str
    message: str
    hint: str
    quotes: str = ""
    """The line that says most, where it is not the one that matches."""


SIGNS = (
    Sign(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "host_key_changed",
        "{host} shows another host key than the one this machine knows",
        "somebody may stand between; if the machine was set up anew, compare its fingerprint, then remove that line",
        quotes=r"^Offending .* key in ",
    ),
    Sign(
        r"Host key verification failed|No .* host key is known",
        "host_key_unknown",
        "the host key of {host} is not known here",
        "connect once by hand and compare the fingerprint: ssh {host}",
    ),
    Sign(
        r"Could not resolve hostname",
        "unresolvable",
        "the name {host} can not be resolved",
        "check the spelling; a Mac on the same network is NAME.local; or name it in ~/.ssh/config",
    ),
    Sign(
        r"Connection refused",
        "refused",
        "{host} refuses ssh connections",
        "on the Mac: System Settings > General > Sharing > Remote Login; and check the port",
    ),
    Sign(
        r"[Tt]imed out|Timeout, server",
        "timed_out",
        "{host} does not answer",
        "is it switched on, awake and on this network? Try by hand: ssh {host}",
    ),
    Sign(
        r"No route to host|Network is (unreachable|down)|Host is down",
        "no_route",
        "there is no route to {host}",
        "is it on this network, or is a VPN needed?",
    ),
    Sign(
        r"Too many authentication failures|Permission denied|No more authentication methods|no mutual signature",
        "permission_denied",
        "{host} does not accept the keys of this user",
        "a password is never asked for: ssh-copy-id {host}, or name User and IdentityFile in ~/.ssh/config",
    ),
    Sign(
        r"Bad configuration option|bad configuration options|Can't open user config file|Bad owner or permissions",
        "configuration",
        "ssh does not understand its configuration",
        "try: ssh -G {host}",
    ),
    Sign(
        r"hostname contains invalid characters|remote username contains invalid",
        "name",
        "ssh does not take '{host}' as a name",
        "give the host a plain name in ~/.ssh/config",
    ),
    Sign(
        r"Connection (closed|reset)|Broken pipe|kex_exchange_identification|disconnect|closed by remote host",
        "closed",
        "{host} closed the connection",
        "is it going down, or is its sshd full (MaxStartups, MaxSessions)? Try again in a minute",
    ),
)
"""In the order they are tried: a changed host key is also one whose verification failed."""
SSH_FAILED = 255
JUMPED = "UNKNOWN port 65535"
"""What ssh calls the machine at the other end where there is a jump host in between."""
NO_PYTHON = "gatekeeper: no python3"
"""What the constant command line on the remote host writes where it finds none."""


def explain(host: str, code: int | None, stderr: str) -> SshError:
    """Return what happened to a connection that ended with *code* after ssh wrote *stderr*.

    Only 255 is ssh's own; any other code is that of the command there, whatever its login files wrote.
    """
    if NO_PYTHON in stderr:
        hint = "gatekeeper needs Python 3.11 or newer there: brew install python, or name one in hosts.toml: python"
        return SshError("no_python", f"{host} has no Python 3 that starts", hint=hint)
    lines = [printable(line, instead="").strip()[:300] for line in stderr.splitlines()]
    lines = [line for line in lines if line]
    for sign in SIGNS if code in {SSH_FAILED, None} else ():
        if re.search(sign.pattern, stderr):
            named = f"{host}, or a jump host before it," if JUMPED in stderr else host
            # The last lines only say that the rest did not work either.
            patterns = [pattern for pattern in (sign.quotes, sign.pattern) if pattern]
            quote = next((line for one in patterns for line in lines if re.search(one, line)), "")
            message = f"{sign.message.format(host=named).rstrip(',')} (ssh: {quote.removeprefix('ssh: ')})"
            return SshError(sign.reason, message, hint=sign.hint.replace("{host}", host))
    ended = "the connection ended" if code is None else f"ssh ended with {code}"
    return SshError("ended", ": ".join([host, ended, *lines[-1:]]), hint=f"try by hand: ssh {host} true")
