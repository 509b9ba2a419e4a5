"""One ssh connection, with an agent on the remote host that answers requests."""

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
from contextlib import suppress
from importlib import resources
from typing import Any, BinaryIO, Self

from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system import child_process
from gatekeeper.core.system.environment_variables import GATEKEEPER_SSH
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.run.remote import replies
from gatekeeper.run.remote.agent.frames import CHUNK
from gatekeeper.run.remote.ssh_errors import MALFORMED, NO_PYTHON, SILENT, AgentError, SshError, explain

COMMAND = (
    "exec /bin/sh -c '"
    "for name in python3 /opt/homebrew/bin/python3 /usr/local/bin/python3 python; do "
    'found=$(command -v "$name") || continue; '
    # The placeholder of macOS opens a window that offers to install Python.
    'if [ "$found" = /usr/bin/python3 ] && [ -x /usr/bin/xcode-select ]; then '
    "/usr/bin/xcode-select -p >/dev/null 2>&1 || continue; fi; "
    '"$found" -I -c "import sys;sys.exit(sys.version_info<(3,6))" </dev/null >/dev/null 2>&1 || continue; '
    'exec "$found" -I -c "import sys;b=sys.stdin.buffer;n=int(b.readline());p=b.read(n);'
    'exec(p,dict(__name__=__name__,program=p,nonce=b.readline().decode().strip()))"; '
    f"done; echo {NO_PYTHON} >&2; exit 127'"
)
"""All that a remote shell ever reads. It is a constant: everything that varies is sent in frames on stdin.

It holds nothing that sh, csh and fish read differently."""
OPTIONS = {
    "BatchMode": "yes",  # never ask for a password
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
MAGIC = b"gatekeeper-agent "
BANNER_MOST = 1 << 20
"""Bytes that login files may write before the agent answers."""
GREETING_S = 60.0
"""Beyond the connect timeout: time to touch a security key, for slow login files, for a Python on a cold disk."""
SILENCE_S = 900.0
"""Time limit of a response: hashing a model of 100 GB takes minutes."""
STREAM_SILENCE_S = 120.0
"""Time limit of each item of a stream, which has a heartbeat of a few seconds."""
HEADER_MOST = 1 << 24
"""Bytes of JSON in one frame: the list of some thousand runs."""
SLOWEST = 10e3
"""Bytes a second of a download that is still waited for."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f'\"`$\\;&<>|(){}*?!#]")
"""What no host name needs, and what a user's ProxyCommand has passed into a shell before."""
_URI_ENCODED = re.compile(r"ssh://.*%", re.IGNORECASE)
"""A URI may encode the same characters."""

AGENT = "gatekeeper.run.remote.agent"
AGENT_MODULES = ("frames", "state_folder", "processes", "pythons", "jobs", "machine", "agent")
"""Each imports only those before it."""
RUN_AGENT = f"""
import sys, types
names = {AGENT!r}.split(".")
for at in range(len(names)):
    package = types.ModuleType(".".join(names[: at + 1]))
    package.__path__ = []
    sys.modules[package.__name__] = package
for name, text in TEXTS:
    module = types.ModuleType({AGENT!r} + "." + name)
    sys.modules[module.__name__] = module
    exec(compile(text, module.__name__, "exec"), module.__dict__)
module.main(globals().get("program", b""), globals().get("nonce", ""))
"""
"""Writes nothing to the remote disk, which may be full; the modules import each other by their local names."""


def agent_program() -> bytes:
    """Return the agent as one program that any Python can run; the same bytes for the same modules."""
    folder = resources.files(AGENT)
    texts = [(name, folder.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in AGENT_MODULES]
    return f"TEXTS = {texts!a}\n{RUN_AGENT}".encode("ascii")


class Connection:
    """Owns the ssh process. One request at a time; a stream that is not read to its end closes the connection."""

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
        self._stderr = bytearray()
        self._buffer = bytearray()
        options = OPTIONS | {"ConnectTimeout": str(max(1, round(connect_timeout)))} | (ALONE if alone else {})
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        argv = [*ssh_words(), "-T", *words, "--", self.host, COMMAND]
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
            self._greet(connect_timeout + GREETING_S)
            hello = self.request("hello", home=home, python=python)
            self.hello: Mapping[str, Any] = hello | self._compare_clocks()
        except BaseException:
            self.close()
            raise

    def request(self, verb: str, /, **arguments: Any) -> dict[str, Any]:
        """Send one request and return its response, which has the shape that `replies` lists."""
        self._send({"verb": verb, "arguments": arguments})
        return self._response(verb)

    def stream(self, verb: str, /, limit_s: float | None = None, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Send one request and yield the items of its response as they come; `content` holds the bytes of an item.

        After *limit_s* the connection is closed, however much still comes.
        """
        self._send({"verb": verb, "arguments": arguments})
        complete, item = False, dict[str, Any]()
        end = time.monotonic() + limit_s if limit_s is not None else None
        try:
            while True:
                header, content = self._receive(verb, STREAM_SILENCE_S)
                if "item" not in header:
                    break
                item = self._checked(verb, replies.ITEMS[verb], header["item"])
                yield item | ({"content": content} if content else {})
                if end is not None and time.monotonic() > end:
                    silence = f"has not finished `{verb}` after {show_seconds(limit_s or 0.0)}"
                    raise SshError(SILENT, f"{self.host} {silence}", hint=f"check what is running on {self.host}")
            if header.get("end") is not True:
                denial = self._denial(verb, header)
                complete = True
                raise denial
            if (last := replies.LAST_HAS.get(verb)) is not None and item.get(last) is None:
                raise self._malformed(verb, f"it ends without `{last}`")
            complete = True
        finally:
            if not complete:
                self.close()

    def digest(self, path: str) -> str | None:
        """Return the sha256 of the file at *path* below the state folder; None where there is none."""
        digest: str | None = self.request("digest", path=path)["sha256"]
        return digest

    def upload(self, path: str, content: BinaryIO | bytes, *, sha256: str, mode: int = 0o644) -> None:
        """Write a file at *path* below the state folder; it appears whole and with this digest, or not at all."""
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        self._send({"verb": "put", "arguments": {"path": path, "sha256": sha256, "mode": mode}})
        for chunk in iter(lambda: source.read(CHUNK), b""):
            self._send({"more": True}, chunk)
        self._send({"more": False})
        self._response("put")

    def download(self, path: str, into: BinaryIO, size: int) -> str:
        """Copy the file at *path* below the state folder; return the sha256 of the received bytes.

        A host that sends more than the *size* bytes that it announced is refused.
        """
        digest, received = hashlib.sha256(), 0
        for item in self.stream("get", STREAM_SILENCE_S + size / SLOWEST, path=path):
            content = item.get("content", b"")
            received += len(content)
            if received > size:
                raise self._malformed("get", f"it announced {show_bytes(size)} and sends more")
            digest.update(content)
            into.write(content)
        return digest.hexdigest()

    def close(self) -> None:
        """End the connection; a job that was started continues."""
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):  # buffered bytes without a reader
                pipe.close()
        child_process.end(self._ssh, grace=2)
        self._stderr_reader.join(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greet(self, limit_s: float) -> None:
        """Send the agent and skip what login files write before it answers."""
        nonce, program = secrets.token_hex(8), agent_program()
        end = time.monotonic() + limit_s
        self._write(b"%d\n%s%s\n" % (len(program), program, nonce.encode()))
        magic, skipped = b"\n" + MAGIC + nonce.encode() + b"\n", 0
        while (at := self._buffer.find(magic)) < 0:
            useless = max(0, len(self._buffer) - len(magic))
            skipped += useless
            del self._buffer[:useless]
            if skipped > BANNER_MOST:
                raise SshError(
                    "noise",
                    f"{self.host}: its login files print more than {show_bytes(BANNER_MOST)} before a command starts",
                    hint="let them print only in interactive shells: case $- in *i*) … esac",
                )
            self._read(end)
        del self._buffer[: at + len(magic)]
        self._stderr.clear()  # what login files wrote does not explain later errors

    def _compare_clocks(self) -> dict[str, Any]:
        """Compare the two clocks by the fastest of three requests; the skew is known to half its round trip."""
        exchanges = []
        for _ in range(3):
            sent_ns, began = time.time_ns(), time.monotonic_ns()
            remote_ns = self.request("clock")["time_ns"]
            round_trip = time.monotonic_ns() - began
            exchanges.append((round_trip / 1e9, (remote_ns - sent_ns - round_trip / 2) / 1e9))
        round_trip_s, skew_s = min(exchanges)
        return {"round_trip_s": round_trip_s, "skew_s": skew_s}

    def _response(self, verb: str) -> dict[str, Any]:
        header, _ = self._receive(verb, SILENCE_S)
        if "reply" not in header:
            raise self._denial(verb, header)
        return self._checked(verb, replies.REPLIES[verb], header["reply"])

    def _denial(self, verb: str, header: Mapping[str, Any]) -> AgentError:
        error = self._checked(verb, replies.Denial, header.get("error"))
        return AgentError(error.pop("kind"), f"{self.host}: {error.pop('message')}", error)

    def _checked(self, verb: str, kind: type[replies.Reply], value: object) -> dict[str, Any]:
        try:
            return replies.checked(kind, value)
        except ParseError as error:
            raise self._malformed(verb, str(error)) from error

    def _malformed(self, verb: str, fault: str) -> SshError:
        self.close()
        hint = f"something on {self.host} answers in gatekeeper's place, or writes into its answers: check that host"
        return SshError(MALFORMED, f"{self.host}: malformed response to `{verb}`: {fault}", hint=hint)

    def _send(self, header: Mapping[str, Any], content: bytes = b"") -> None:
        text = json.dumps(header).encode()
        self._write(struct.pack("!II", len(text), len(content)) + text + content)

    def _write(self, content: bytes) -> None:
        try:
            self._stdin.write(content)
            self._stdin.flush()
        except (OSError, ValueError):  # ValueError: it was closed
            raise self._lost() from None

    def _receive(self, verb: str, silence_s: float) -> tuple[dict[str, Any], bytes]:
        end = time.monotonic() + silence_s
        header_size, content_size = struct.unpack("!II", self._read_exactly(8, end))
        if header_size > HEADER_MOST or content_size > CHUNK:
            raise self._malformed(verb, "a frame is too large")
        try:
            header = json_object(self._read_exactly(header_size, end), most=HEADER_MOST)
        except ParseError as error:
            raise self._malformed(verb, str(error)) from error
        return header, self._read_exactly(content_size, end)

    def _read_exactly(self, size: int, end: float) -> bytes:
        while len(self._buffer) < size:
            self._read(end)
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def _read(self, end: float) -> None:
        """Read what has arrived; an SshError where the connection is lost or nothing arrives by *end*."""
        if self._stdout.closed:
            raise self._lost()
        if not select.select([self._stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            self.close()
            raise SshError(SILENT, f"{self.host} is connected but does not respond", hint=f"try: ssh {self.host} true")
        content = os.read(self._stdout.fileno(), 1 << 20)
        if not content:
            raise self._lost()
        self._buffer += content

    def _lost(self) -> SshError:
        try:
            code = self._ssh.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        return explain(self.host, code, self._stderr.decode(errors="replace"))

    def _read_stderr(self) -> None:
        assert self._ssh.stderr is not None
        with self._ssh.stderr as pipe:
            for line in iter(lambda: pipe.readline(1 << 12), b""):
                self._stderr += line
                del self._stderr[: -(1 << 16)]


def checked(host: str) -> str:
    """Return *host* if it is safe to pass to ssh; a name that a shell could interpret is an InputError."""
    if not host or host.startswith("-") or _UNSAFE.search(host) or "@-" in host or _URI_ENCODED.match(host):
        hint = "write NAME, USER@NAME or ssh://USER@NAME:PORT; define other hosts in ~/.ssh/config"
        raise InputError(f"{host!r} is not a valid host name", hint=hint)
    return host


def ssh_words() -> list[str]:
    """Return the ssh program and its first options."""
    return shlex.split(os.environ.get(GATEKEEPER_SSH, "")) or ["ssh"]
