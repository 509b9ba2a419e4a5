"""Running a shell script on a remote host over the user's own ssh, with limits on all that comes back."""

import os
import re
import secrets
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Self

from gatekeeper.core.errors import InputError
from gatekeeper.core.system import child_process
from gatekeeper.core.system.environment_variables import GATEKEEPER_SSH
from gatekeeper.core.units import show_bytes
from gatekeeper.run.remote.ssh_errors import (
    SILENT,
    SSH_FAILED,
    RemoteScriptError,
    SshError,
    explain,
    make_malformed_error,
)

COMMAND = "exec /bin/sh -c 'eval \"$(dd bs=1 count={size} 2>/dev/null)\"'"
"""All that the login shell of a remote host reads, be it sh, csh or fish: nothing but a number varies.

The script itself is the first `size` bytes of stdin. `dd` with blocks of one byte leaves the rest for the script, which
may read an archive from it."""
OPTIONS = {
    "BatchMode": "yes",  # never ask for a password
    "ConnectTimeout": "15",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",  # no response for a minute: the connection is lost
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "INFO",  # below it ssh does not print why it failed
}
ALONE = {"ControlMaster": "no", "ControlPath": "none"}
"""A connection that other commands of this user do not share: after a closed laptop a shared one may hang."""
BANNER_MOST = 1 << 20
"""Bytes that login files may write before the script begins."""
GREETING_S = 75.0
"""Until a script begins: the connect timeout, time to touch a security key, slow login files."""
OUTPUT_MOST = 4 << 20
"""Bytes of output of a script that is no stream: the list of some thousand runs."""
STDERR_MOST = 1 << 16
"""The last bytes of stderr that are kept for an error message."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f'\"`$\\;&<>|(){}*?!#]")
"""What no host name needs, and what a user's ProxyCommand has passed into a shell before."""
_URI_ENCODED = re.compile(r"ssh://.*%", re.IGNORECASE)
"""A URI may encode the same characters."""


def check_host_name(host: str) -> str:
    """Return *host* if it is safe to pass to ssh; a name that a shell could interpret is an InputError."""
    if not host or host.startswith("-") or _UNSAFE.search(host) or "@-" in host or _URI_ENCODED.match(host):
        hint = "write NAME, USER@NAME or ssh://USER@NAME:PORT; define other hosts in ~/.ssh/config"
        raise InputError(f"{host!r} is not a valid host name", hint=hint)
    return host


def ssh_words(*, alone: bool = False) -> list[str]:
    """Return the ssh program and its options; `GATEKEEPER_SSH` names another program, whose options win over ours."""
    options = OPTIONS | (ALONE if alone else {})
    program = shlex.split(os.environ.get(GATEKEEPER_SSH, "")) or ["ssh"]
    return [*program, "-T", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


class RemoteScript:
    """A script that runs on a remote host: owns its ssh process, and reads what it prints."""

    def __init__(self, host: str, script: str, *, alone: bool = False, greeting_s: float = GREETING_S) -> None:
        """Connect to *host*, start *script* there and wait until it has begun; raise SshError where it does not."""
        self.host = check_host_name(host)
        self._mark = secrets.token_hex(16)
        # On stderr too: what arrives there before it was written by login files, whenever it is read.
        begin = f"printf '\\n%s\\n' {self._mark}; printf '\\n%s\\n' {self._mark} >&2\n"
        content = f"{begin}{script}".encode("utf-8", "surrogateescape")
        self._buffer, self._stderr = bytearray(), bytearray()
        argv = [*ssh_words(alone=alone), "--", host, COMMAND.format(size=len(content))]
        try:
            # A new session has no terminal to ask for a password, not even for a jump host, and gets no Ctrl-C.
            self._ssh = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                env=os.environ | {"SSH_ASKPASS_REQUIRE": "never"},
            )  # fmt: skip
        except OSError as error:
            hint = f"install OpenSSH, or set {GATEKEEPER_SSH} to its path"
            raise InputError(f"cannot start {argv[0]}: {error.strerror}", hint=hint) from error
        assert self._ssh.stdin is not None
        assert self._ssh.stdout is not None
        self._stdin, self._stdout = self._ssh.stdin, self._ssh.stdout
        self._stderr_reader = threading.Thread(target=self._read_stderr, name="ssh-stderr", daemon=True)
        self._stderr_reader.start()
        try:
            self.send(content)
            self._skip_banner(f"\n{self._mark}\n".encode(), time.monotonic() + greeting_s)
        except BaseException:
            self.close()
            raise

    def send(self, content: bytes) -> None:
        """Write to the script's stdin."""
        try:
            self._stdin.write(content)
            self._stdin.flush()
        except (OSError, ValueError):  # ValueError: it was closed
            raise self._lost_error() from None

    def end_input(self) -> None:
        """Close the script's stdin."""
        with suppress(OSError):  # buffered bytes without a reader; what the script says of them follows
            self._stdin.close()

    def read(self, size: int, silence_s: float) -> bytes:
        """Return at most *size* bytes of output; empty at its end. Raise SshError after *silence_s* without any."""
        if not self._buffer:
            self._fill(time.monotonic() + silence_s)
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def finish(self) -> None:
        """Wait for the script's end, after its whole output was read; raise an error where it failed."""
        code = self._exit_code()
        self.close()
        if code is None or code < 0 or code == SSH_FAILED:  # below 0: a signal ended ssh itself
            raise self._lost_error()
        if code != 0:
            raise RemoteScriptError(self.host, code, self._written_to_stderr())

    def close(self) -> None:
        """End the connection; a run that was started continues."""
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()
        child_process.end(self._ssh, grace=2)
        self._stderr_reader.join(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _skip_banner(self, mark: bytes, end: float) -> None:
        """Read past what login files print, to the line that the script prints first."""
        while (position := self._buffer.find(mark)) < 0:
            if len(self._buffer) > BANNER_MOST:
                raise SshError(
                    "noise",
                    f"{self.host}: its login files print more than {show_bytes(BANNER_MOST)} before a command starts",
                    hint="let them print only in interactive shells: case $- in *i*) … esac",
                )
            if not self._fill(end):
                raise self._lost_error()
        del self._buffer[: position + len(mark)]

    def _fill(self, end: float) -> bool:
        """Read what has arrived; False at the end of the output. Raise SshError where nothing arrives by *end*."""
        if not select.select([self._stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            self.close()
            raise SshError(SILENT, f"{self.host} is connected but does not respond", hint=f"try: ssh {self.host} true")
        content = os.read(self._stdout.fileno(), 1 << 20)
        self._buffer += content
        return bool(content)

    def _lost_error(self) -> SshError:
        code = self._exit_code()
        self.close()
        return explain(self.host, code, self._written_to_stderr())

    def _exit_code(self) -> int | None:
        try:
            code = self._ssh.wait(5)
        except subprocess.TimeoutExpired:
            return None
        self._stderr_reader.join(1)
        return code

    def _written_to_stderr(self) -> str:
        """Return what ssh and the script wrote: what login files complain of does not explain why a script failed."""
        text = self._stderr.decode(errors="replace")
        return text.rpartition(f"\n{self._mark}\n")[2]

    def _read_stderr(self) -> None:
        assert self._ssh.stderr is not None
        with self._ssh.stderr as pipe:
            for line in iter(lambda: pipe.readline(1 << 12), b""):
                self._stderr += line
                del self._stderr[:-STDERR_MOST]


@dataclass(slots=True)
class RemoteHost:
    """A machine that ssh reaches under its *name*; every call of a script is a connection of its own."""

    name: str
    alone: bool = False
    """Share no connection with other commands of this user."""

    def __post_init__(self) -> None:
        check_host_name(self.name)

    def open(self, script: str, variables: Mapping[str, str] | None = None) -> RemoteScript:
        """Start *script* after assignments of *variables*, whatever characters their values hold."""
        assignments = "".join(f"{name}={shlex.quote(value)}\n" for name, value in (variables or {}).items())
        return RemoteScript(self.name, assignments + script, alone=self.alone)

    def run(
        self, script: str, variables: Mapping[str, str] | None = None, *, limit_s: float, sent: IO[bytes] | None = None
    ) -> str:
        """Run *script* to its end and return its output; *sent* is its stdin."""
        output, end = bytearray(), time.monotonic() + limit_s
        with self.open(script, variables) as running:
            while sent is not None and (piece := sent.read(1 << 17)):
                running.send(piece)
            running.end_input()
            while content := running.read(1 << 20, max(0.0, end - time.monotonic())):
                output += content
                if len(output) > OUTPUT_MOST:
                    raise make_malformed_error(self.name, f"more than {show_bytes(OUTPUT_MOST)}")
            running.finish()
        return output.decode(errors="replace")

    def lines(self, script: str, variables: Mapping[str, str], *, silence_s: float, most: int) -> Iterator[bytes]:
        """Run *script* and yield each line that it prints; one of more than *most* bytes is malformed."""
        with self.open(script, variables) as running:
            running.end_input()
            rest = b""
            while content := running.read(1 << 20, silence_s):
                *lines, rest = (rest + content).split(b"\n")
                if len(rest) > most:
                    raise make_malformed_error(self.name, f"a line of more than {show_bytes(most)}")
                yield from lines
            running.finish()
