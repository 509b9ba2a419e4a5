"""The link: one ssh connection with an agent at its far end."""

import hashlib
import io
import json
import os
import re
import secrets
import select
import shlex
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, BinaryIO, Self

from gatekeeper.core.errors import InputError
from gatekeeper.core.text import printable
from gatekeeper.run.remote.agent_program import program
from gatekeeper.run.remote.ssh_errors import NO_PYTHON, SILENT, FarError, LinkError, trouble

SSH = "GATEKEEPER_SSH"
"""The ssh program and its first options, as words: what stands there wins over the options below."""
COMMAND = (
    "exec /bin/sh -c '"
    "for name in python3 /opt/homebrew/bin/python3 /usr/local/bin/python3 python; do "
    'found=$(command -v "$name") || continue; '
    # What macOS keeps in a Python's place opens a window that asks to install one.
    'if [ "$found" = /usr/bin/python3 ] && [ -x /usr/bin/xcode-select ]; then '
    "/usr/bin/xcode-select -p >/dev/null 2>&1 || continue; fi; "
    '"$found" -I -c "import sys;sys.exit(sys.version_info<(3,6))" </dev/null >/dev/null 2>&1 || continue; '
    'exec "$found" -I -c "import sys;b=sys.stdin.buffer;n=int(b.readline());p=b.read(n);'
    'exec(p,dict(__name__=__name__,program=p,nonce=b.readline().decode().strip()))"; '
    f"done; echo {NO_PYTHON} >&2; exit 127'"
)
"""All that a far shell ever reads. It is the same for everybody: whatever varies travels in frames on stdin.

It holds nothing that sh, csh and fish read differently."""
OPTIONS = {
    "BatchMode": "yes",  # a password is never asked for
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",  # a minute of silence is a lost connection
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "INFO",  # below it ssh does not say why it failed
}
ALONE = {"ControlMaster": "no", "ControlPath": "none"}
MAGIC = b"gatekeeper-agent "
BANNER_MOST = 1 << 20
"""Bytes that login files may write before the agent speaks."""
GREETING_S = 60.0
"""Beyond the connect timeout: a touch on a security key, slow login files, a Python that starts from a cold disk."""
SILENCE_S = 900.0
"""An agent that says nothing for so long is given up: hashing a model of 100 GB takes minutes."""
STREAM_SILENCE_S = 120.0
"""A stream has something to say every few seconds, if only that there is nothing to say."""
CHUNK = 1 << 18
HEADER_MOST = 1 << 26
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f'\"`$\\;&<>|(){}*?!#]")
"""What no host name needs, and what has slipped through a user's ProxyCommand into a shell before."""
_URI_ENCODED = re.compile(r"ssh://.*%", re.IGNORECASE)
"""A URI may spell the same characters in another way."""


class Link:
    """Owns the ssh process. One question at a time; a stream that is left early closes the link."""

    def __init__(
        self,
        host: str,
        *,
        home: str | None = None,
        python: str | None = None,
        connect_timeout: float = 15.0,
        alone: bool = False,
    ) -> None:
        """Connect; *alone* uses no connection that other commands of this user share (ControlMaster)."""
        self.host = checked(host)
        self._said = bytearray()
        self._buffer = bytearray()
        self._streaming = False
        argv = [*ssh_words(), *_options(connect_timeout, alone=alone), "--", self.host, COMMAND]
        try:
            # A session of its own: no terminal to ask a password on, not even for a jump host, and Ctrl-C is ours.
            self._ssh = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=os.environ | {"SSH_ASKPASS_REQUIRE": "never"},
            )
        except OSError as error:
            raise InputError(
                f"{argv[0]}: ssh can not be started: {error.strerror}", hint=f"install OpenSSH, or name it in {SSH}"
            ) from error
        self._listener = threading.Thread(target=self._listen, name="ssh-stderr", daemon=True)
        self._listener.start()
        try:
            self.hello: Mapping[str, Any] = self._greet(connect_timeout + GREETING_S, home, python)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, /, **arguments: Any) -> dict[str, Any]:
        """Ask one question and return its answer."""
        self._send({"verb": verb, "arguments": arguments})
        return self._reply()

    def stream(self, verb: str, /, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Ask one question and return its answers as they come; `content` holds bytes where some came along."""
        self._send({"verb": verb, "arguments": arguments})
        self._streaming = True
        try:
            while True:
                header, content = self._receive(STREAM_SILENCE_S)
                if header.get("end"):
                    break
                if "item" not in header:
                    self._streaming = False
                    raise self._fault(header)
                yield header["item"] | ({"content": content} if content else {})
            self._streaming = False
        finally:
            if self._streaming:
                self.close()

    def put(self, path: str, content: BinaryIO | bytes, *, sha256: str, mode: int = 0o644) -> None:
        """Write a file at *path* below the far home; it appears whole and with this digest, or not at all."""
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        self._send({"verb": "put", "arguments": {"path": path, "sha256": sha256, "mode": mode}})
        for chunk in iter(lambda: source.read(CHUNK), b""):
            self._send({"more": True}, chunk)
        self._send({"more": False})
        self._reply()

    def get(self, path: str, into: BinaryIO, *, offset: int = 0) -> str:
        """Read the file at *path* below the far home from *offset* on; return the sha256 of what came."""
        digest, told = hashlib.sha256(), ""
        for item in self.stream("get", path=path, offset=offset):
            content = item.get("content", b"")
            digest.update(content)
            into.write(content)
            told = item.get("sha256", told)
        if told != digest.hexdigest():
            raise LinkError("damaged", f"{self.host}: {path} came damaged", hint="ask for it again")
        return told

    def close(self) -> None:
        """End the connection; a job that was started goes on."""
        for pipe in (self._ssh.stdin, self._ssh.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what was still to be written has no reader any more
        if self._ssh.poll() is None:
            self._ssh.terminate()
            try:
                self._ssh.wait(2)
            except subprocess.TimeoutExpired:
                self._ssh.kill()
        self._ssh.wait()
        self._listener.join(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # How the two ends speak.

    def _greet(self, limit_s: float, home: str | None, python: str | None) -> dict[str, Any]:
        nonce = secrets.token_hex(8)
        sent = program()
        end = time.monotonic() + limit_s
        self._write(b"%d\n%s%s\n" % (len(sent), sent, nonce.encode()))
        magic, heard = b"\n" + MAGIC + nonce.encode() + b"\n", 0
        while (at := self._buffer.find(magic)) < 0:
            dropped = max(0, len(self._buffer) - len(magic))
            heard += dropped
            del self._buffer[:dropped]
            if heard > BANNER_MOST:
                raise LinkError(
                    "noise",
                    f"{self.host}: its login files write without end before a command starts",
                    hint="let them write only where a terminal is: case $- in *i*) … esac",
                )
            self._read(end)
        del self._buffer[: at + len(magic)]
        self._said.clear()  # what login files complained of explains nothing that happens later
        hello = self.ask("hello", home=home, python=python)
        return hello | self._clocks()

    def _clocks(self) -> dict[str, Any]:
        """Compare the two clocks over the quickest of three questions; the skew is known to half its round trip."""
        best: dict[str, Any] = {}
        for _ in range(3):
            sent, began = time.time_ns(), time.monotonic_ns()
            far = self.ask("clock")["time_ns"]
            round_trip = time.monotonic_ns() - began
            if not best or round_trip / 1e9 < best["round_trip_s"]:
                skew = (far - sent - round_trip / 2) / 1e9
                best = {"time_ns": far, "round_trip_s": round_trip / 1e9, "skew_s": skew}
        return best

    def _reply(self) -> dict[str, Any]:
        header, _ = self._receive(SILENCE_S)
        if "reply" not in header:
            raise self._fault(header)
        reply: dict[str, Any] = header["reply"]
        return reply

    def _fault(self, header: Mapping[str, Any]) -> FarError:
        fault = dict(header.get("fault") or {"kind": "bug", "message": "an answer that is none"})
        kind, message, hint = (_shown(fault.pop(key, "")) for key in ("kind", "message", "hint"))
        return FarError(kind, f"{self.host}: {message}", hint=hint or _HINTS.get(kind, _HINTS["bug"]), more=fault)

    def _send(self, header: Mapping[str, Any], content: bytes = b"") -> None:
        text = json.dumps(header).encode()
        self._write(struct.pack("!II", len(text), len(content)) + text + content)

    def _write(self, content: bytes) -> None:
        try:
            if self._ssh.stdin is None or self._ssh.stdin.closed:
                raise BrokenPipeError
            self._ssh.stdin.write(content)
            self._ssh.stdin.flush()
        except OSError:
            raise self._lost() from None

    def _receive(self, silence_s: float) -> tuple[dict[str, Any], bytes]:
        end = time.monotonic() + silence_s
        header_size, content_size = struct.unpack("!II", self._exactly(8, end))
        if max(header_size, content_size) > HEADER_MOST:
            self.close()
            raise LinkError("damaged", f"{self.host}: what came is no frame", hint="try again")
        header: dict[str, Any] = json.loads(self._exactly(header_size, end))
        return header, self._exactly(content_size, end)

    def _exactly(self, size: int, end: float) -> bytes:
        while len(self._buffer) < size:
            self._read(end)
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _read(self, end: float) -> None:
        """Take what has arrived; a LinkError where nothing comes any more or not by *end*."""
        pipe = self._ssh.stdout
        if pipe is None or pipe.closed:
            raise self._lost()
        if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            self.close()
            raise LinkError(
                SILENT, f"{self.host} is connected but says nothing", hint=f"try by hand: ssh {self.host} true"
            )
        got = os.read(pipe.fileno(), 1 << 20)
        if not got:
            raise self._lost()
        self._buffer += got

    def _lost(self) -> LinkError:
        try:
            code = self._ssh.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        return trouble(self.host, code, self._said.decode(errors="replace"))

    def _listen(self) -> None:
        pipe = self._ssh.stderr
        if pipe is None:
            return
        with pipe:
            for line in iter(lambda: pipe.readline(1 << 12), b""):
                self._said += line
                del self._said[: -(1 << 16)]


_HINTS = {
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
    "bug": "please report it",
}


def checked(host: str) -> str:
    """Return *host* if ssh may be given it; a name with a meaning to any shell is an InputError."""
    if not host or host.startswith("-") or _UNSAFE.search(host) or "@-" in host or _URI_ENCODED.match(host):
        raise InputError(
            f"{host!r} is no host", hint="NAME, USER@NAME or ssh://USER@NAME:PORT; give others a name in ~/.ssh/config"
        )
    return host


def _shown(text: object) -> str:
    """Return what another machine wrote without what a terminal would obey."""
    return printable(str(text), instead="")


def ssh_words() -> list[str]:
    """Return the ssh program and its first options."""
    return shlex.split(os.environ.get(SSH, "")) or ["ssh"]


def _options(connect_timeout: float, *, alone: bool) -> list[str]:
    options = OPTIONS | {"ConnectTimeout": str(max(1, round(connect_timeout)))} | (ALONE if alone else {})
    return ["-T", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
