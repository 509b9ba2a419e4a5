"""Errors of a remote host: what ssh wrote when it could not connect, and a script that failed there."""

import re
import sys

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import printable

SILENT = "silent"
"""Connected, but no response arrives."""
MALFORMED = "malformed"
"""An answer that our scripts do not give: a retry cannot help."""
SSH_FAILED = 255
"""Ssh's own exit code; any other is that of the remote command."""
FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large", re.IGNORECASE)
"""What programs write where a disk is full."""


class SshError(GatekeeperError):
    """There is no connection, or it broke: nothing is proven. `reason` is one word that scripts may rely on."""

    exit_code = ExitCode.UNPROVEN

    def __init__(self, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class RemoteScriptError(GatekeeperError):
    """A script of ours failed on the remote host, for instance on a full disk."""

    def __init__(self, host: str, code: int, stderr: str) -> None:
        lines = _last_lines(stderr)
        full = [line for line in lines if FULL.search(line)]
        message = ": ".join([f"{host}: a command failed there with exit code {code}", *(full or lines)[-1:]])
        hint = f"try: ssh {host} true"
        if full:
            hint = f"free disk space there: ~/.gatekeeper holds runs, gatekeeper remote list --on {host} shows them"
        super().__init__(message, hint=hint)


LOCAL_NETWORK = (
    "; on macOS 15 and later an agent of launchd also needs System Settings > Privacy & Security > Local Network, "
    "a daemon does not (gatekeeper explain nights)"
    if sys.platform == "darwin"
    else ""
)
"""Ssh that an agent of launchd starts is refused until its program is allowed; from a terminal it works."""


SIGNS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED|^Offending .* key in ",
        "host_key_changed",
        "this may be an attack; if the host was reinstalled, compare its fingerprint and remove the line ssh names",
    ),
    (
        r"Host key verification failed|No .* host key is known",
        "host_key_unknown",
        "connect once by hand and compare the fingerprint: ssh {host}",
    ),
    (
        r"Could not resolve hostname",
        "unresolvable",
        "check the spelling; a Mac on the same network is NAME.local; or define the host in ~/.ssh/config",
    ),
    (
        r"Connection refused",
        "refused",
        "turn on Remote Login on that Mac (System Settings > General > Sharing), or correct the port in ~/.ssh/config",
    ),
    (
        r"[Tt]imed out|Timeout, server",
        "timed_out",
        "check that it is switched on, awake and on this network, then try: ssh {host}",
    ),
    (
        r"No route to host|Network is (?:unreachable|down)|Host is down",
        "no_route",
        "check that it is on this network; connect the VPN if it needs one" + LOCAL_NETWORK,
    ),
    (
        r"Too many authentication failures|Permission denied|No more authentication methods|no mutual signature",
        "permission_denied",
        "gatekeeper uses no password; run ssh-copy-id {host}, or set User and IdentityFile in ~/.ssh/config",
    ),
    (
        r"Bad configuration option|bad configuration options|Can't open user config file|Bad owner or permissions",
        "configuration",
        "correct ~/.ssh/config; this shows the error: ssh -G {host}",
    ),
    (
        r"hostname contains invalid characters|remote username contains invalid",
        "name",
        "define the host under a plain name in ~/.ssh/config",
    ),
    (
        r"Connection (?:closed|reset)|Broken pipe|kex_exchange_identification|disconnect|closed by remote host",
        "closed",
        "it may be shutting down, or its sshd is at its limit (MaxStartups, MaxSessions); retry in a minute",
    ),
)
"""What ssh writes, the reason that it means, and what to do; `{host}` is filled in. Tried in this order: of a changed
host key ssh also writes that its verification failed."""


def explain(host: str, code: int | None, stderr: str) -> SshError:
    """Return what happened to a connection that ended with *code* after ssh wrote *stderr*, in ssh's own words."""
    lines = _last_lines(stderr)
    # With any other code it is the command on the host that ended, and what it wrote is no word of ssh's.
    signs = SIGNS if code in {SSH_FAILED, None} else ()
    for pattern, reason, hint in signs:
        quotes = [line for line in lines if re.search(pattern, line)]
        if quotes:  # the last one tells most of a changed host key, and the first of anything else
            quote = (quotes[-1] if reason == "host_key_changed" else quotes[0]).removeprefix("ssh: ")
            return SshError(reason, f"no connection to {host}: {quote}", hint=hint.replace("{host}", host))
    ended = "the connection ended" if code is None else f"ssh ended with exit code {code}"
    return SshError("ended", ": ".join([host, ended, *lines[-1:]]), hint=f"try: ssh {host} true")


def make_malformed_error(host: str, fault: str) -> SshError:
    """Return the error of an answer that no script of ours gives."""
    hint = f"something on {host} answers in gatekeeper's place, or changes its answers: check that host"
    return SshError(MALFORMED, f"{host}: malformed answer: {printable(fault)[:300]}", hint=hint)


def _last_lines(stderr: str) -> list[str]:
    """Return the lines of *stderr* that hold something, without control characters, each cut to a readable length."""
    lines = (printable(line, instead="").strip()[:300] for line in stderr.splitlines())
    return [line for line in lines if line]
