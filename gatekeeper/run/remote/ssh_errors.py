"""Trouble on the way: what ssh said when it could not connect, in one word, one sentence and one next step."""

import re
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.errors import ExitCode, GatekeeperError
from gatekeeper.core.text import printable

DISK_FULL = "disk_full"
SILENT = "silent"
"""Connected, and nothing comes."""


class LinkError(GatekeeperError):
    """There is no connection, or it broke: nothing is proven. `reason` is one word that a script may rely on."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class FarError(GatekeeperError):
    """The far side will not or can not do what it was asked; `kind` is the agent's word for why."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, kind: str, message: str, *, hint: str, more: dict[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.more = more or {}
        if kind in {DISK_FULL, "denied", "os", "bug"}:
            self.exit_code = ExitCode.INTERNAL_ERROR


@dataclass(frozen=True, slots=True)
class Sign:
    """What ssh writes, and what it means; `{host}` is filled in."""

    pattern: str
    reason: str
    message: str
    hint: str
    quotes: str = ""
    """The line that says most, where it is not the one that was looked for."""

    def quote(self, stderr: str) -> str:
        """Return the line a person would quote: the last ones only say that the rest did not work either."""
        lines = _lines(stderr)
        found = (line for sought in (self.quotes, self.pattern) if sought for line in lines if re.search(sought, line))
        return next(found, "")


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
"""In the order they are looked for: a changed host key is also one whose verification failed."""
SSH_FAILED = 255
JUMPED = "UNKNOWN port 65535"
"""What ssh calls the machine at the other end where there is a jump host in between."""
NO_PYTHON = "gatekeeper: no python3"
"""What the constant command line of the far side says where it finds none."""


def trouble(host: str, code: int | None, stderr: str) -> LinkError:
    """Return what happened to a connection that ended with *code* after ssh wrote *stderr*.

    Only 255 is ssh's own; any other code is that of the command there, whatever words its login files wrote.
    """
    if NO_PYTHON in stderr:
        return LinkError(
            "no_python",
            f"{host} has no Python 3 that starts",
            hint="gatekeeper needs Python 3.11 or newer there: brew install python, or name one in hosts.toml: python",
        )
    for sign in SIGNS if code in {SSH_FAILED, None} else ():
        if re.search(sign.pattern, stderr):
            whom = f"{host}, or a jump host before it," if JUMPED in stderr else host
            told = f"{sign.message.format(host=whom).rstrip(',')} (ssh: {sign.quote(stderr).removeprefix('ssh: ')})"
            return LinkError(sign.reason, told, hint=sign.hint.replace("{host}", host))
    said = next(iter(_lines(stderr)[::-1]), "")
    ended = "the connection ended" if code is None else f"ssh ended with {code}"
    return LinkError("ended", f"{host}: {ended}{f': {said}' if said else ''}", hint=f"try by hand: ssh {host} true")


def _lines(stderr: str) -> list[str]:
    """Return the lines that say something, without control characters."""
    lines = (printable(line, instead="").strip() for line in stderr.splitlines())
    return [line[:300] for line in lines if line]
