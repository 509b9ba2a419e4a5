"""The agent: answers requests on the remote host. It is sent through ssh's stdin and needs only a Python.

It answers `hello` on any Python from 3.6 on, so that an old one is reported and does not end in a syntax error. All
input (paths, names, argument lists) arrives as JSON in frames of known length; it starts programs from argument lists,
never through a shell. The same program, kept as a file, supervises a detached job: `PROGRAM supervise FOLDER`.
"""

import contextlib
import errno
import getpass
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from gatekeeper.run.remote.agent.frames import Channel, Disconnected, Header, Refusal
from gatekeeper.run.remote.agent.jobs import Jobs, supervise
from gatekeeper.run.remote.agent.machine import Machine, is_mac
from gatekeeper.run.remote.agent.pythons import Environments, probe, pythons
from gatekeeper.run.remote.agent.state_folder import Files, State

VERSION = 1
OLDEST_PYTHON = (3, 11)


class Agent:
    """Answers one client; all its state is in one folder."""

    def __init__(self, channel: Channel, program: bytes) -> None:
        self._channel, self._state = channel, State()
        self._environments = Environments(self._state, channel)
        jobs = Jobs(self._state, channel, program)
        self._parts = (self, Files(self._state, channel), self._environments, jobs, Machine())

    def serve(self) -> None:
        """Answer until the client disconnects."""
        with contextlib.suppress(Disconnected):
            while True:
                request, _ = self._channel.receive()
                self._answer(str(request.get("verb")), request.get("arguments") or {})

    def _answer(self, verb: str, arguments: Header) -> None:
        try:
            reply = self._method(verb)(**arguments)
            if isinstance(reply, dict):
                self._channel.send({"reply": reply})
                return
            for header, content in reply:
                self._channel.send({"item": header}, content)
            self._channel.send({"end": True})
        except Refusal as refusal:
            self._send_error(refusal.kind, refusal.message, **refusal.more)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            self._send_error("disk_full" if full else "denied" if denied else "os", str(error))
        except (TypeError, ValueError, KeyError) as error:
            self._send_error("bug", type(error).__name__ + ": " + str(error))

    def _method(self, verb: str) -> "Callable[..., Any]":
        for part in self._parts:
            method: Optional[Callable[..., Any]] = getattr(part, "do_" + verb, None)
            if method is not None:
                return method
        raise Refusal("verb", "unknown request " + repr(verb))

    def _send_error(self, kind: str, message: str, **more: Any) -> None:
        self._channel.send({"error": dict(more, kind=kind, message=message)})

    def do_hello(self, home: "Optional[str]" = None, python: "Optional[str]" = None) -> Header:
        """Describe this machine; *home* is where everything is kept, *python* what environments are made with."""
        self._state.settle(home)
        versions: Dict[str, str] = {}
        without_venv: List[str] = []
        for path in [os.path.expanduser(python)] if python else pythons():
            version, has_venv = probe(path)
            if version is not None:
                versions[path] = version
                if tuple(int(part) for part in version.split(".")) >= OLDEST_PYTHON:
                    if has_venv:
                        self._environments.python = path
                        break
                    without_venv.append(path)
        return {
            "agent": VERSION,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "system": "Darwin" if is_mac() else platform.system(),
            "machine": platform.machine(),
            "user": getpass.getuser(),
            "home": str(self._state.home),
            "free_bytes": self._state.free(),
            "capable_python": self._environments.python,
            "pythons": versions,
            "without_venv": without_venv,
        }

    def do_clock(self) -> Header:
        """Return the time of this machine."""
        return {"time_ns": int(time.time() * 1e9)}


def main(program: bytes, nonce: str) -> None:
    """Answer requests on stdin and stdout, or supervise a job; other output goes to stderr."""
    if sys.argv[1:2] == ["supervise"]:
        supervise(Path(sys.argv[2]))
        return
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(("\ngatekeeper-agent " + nonce + "\n").encode())
    out.flush()
    Agent(Channel(sys.stdin.buffer, out), program).serve()
