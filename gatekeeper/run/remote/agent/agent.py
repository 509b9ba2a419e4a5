"""The agent: the far end of a link. It is sent through ssh's stdin and needs a Python alone.

It answers `hello` on any Python from 3.6 on, so that an old one is told and not met as a syntax error. Everything it
is told (paths, names, words of commands) arrives as JSON in frames of known length; it starts programs with lists of
words, never a shell. The same program, kept as a file, supervises a detached job: `PROGRAM supervise FOLDER`.
"""

import contextlib
import errno
import getpass
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from gatekeeper.run.remote.agent.environments import Environments
from gatekeeper.run.remote.agent.files import Parcels
from gatekeeper.run.remote.agent.frames import Channel, Gone, Header, Refusal
from gatekeeper.run.remote.agent.jobs import Jobs
from gatekeeper.run.remote.agent.machine import boot_id, probe, pythons
from gatekeeper.run.remote.agent.state import State
from gatekeeper.run.remote.agent.supervisor import supervise

VERSION = 1
OLDEST_PYTHON = (3, 11)


class Agent:
    """Answers one near side; its state lies in one folder."""

    def __init__(self, channel: Channel, program: bytes) -> None:
        self._channel, self._state = channel, State()
        self._environments = Environments(self._state, channel)
        jobs = Jobs(self._state, channel, self._environments, program)
        self._parts = (self, Parcels(self._state, channel), self._environments, jobs)

    def serve(self) -> None:
        """Answer until the near side goes away."""
        with contextlib.suppress(Gone):
            while True:
                asked, _ = self._channel.receive()
                self._answer(str(asked.get("verb")), asked.get("arguments") or {})

    def _answer(self, verb: str, arguments: Header) -> None:
        try:
            reply = self._verb(verb)(**arguments)
            if isinstance(reply, dict):
                self._channel.send({"reply": reply})
                return
            for header, content in reply:
                self._channel.send({"item": header}, content)
            self._channel.send({"end": True})
        except Refusal as refusal:
            self._fault(refusal.kind, refusal.message, refusal.hint, refusal.more)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            self._fault("disk_full" if full else "denied" if denied else "os", str(error), "", {"errno": error.errno})
        except (TypeError, ValueError, KeyError) as error:
            self._fault("bug", type(error).__name__ + ": " + str(error), "", {})

    def _verb(self, verb: str) -> "Callable[..., Any]":
        for part in self._parts:
            call: Optional[Callable[..., Any]] = getattr(part, "do_" + verb, None)
            if call is not None:
                return call
        raise Refusal("verb", "the agent does not know how to " + repr(verb))

    def _fault(self, kind: str, message: str, hint: str, more: Header) -> None:
        self._channel.send({"fault": dict(more, kind=kind, message=message, hint=hint)})

    def do_hello(self, home: "Optional[str]" = None, python: "Optional[str]" = None) -> Header:
        """Say what this machine is; *home* is where everything is kept, *python* what environments are made with."""
        self._state.settle(home)
        tried: Dict[str, str] = {}
        capable = None
        lacking = []
        for path in [os.path.expanduser(python)] if python else pythons():
            version, has_venv = probe(path)
            if version is None:
                continue
            tried[path] = version
            if tuple(int(part) for part in version.split(".")) >= OLDEST_PYTHON:
                if has_venv:
                    capable = path
                    break
                lacking.append(path)
        self._environments.python = capable
        return {
            "agent": VERSION,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "executable": sys.executable,
            "platform": "darwin"
            if sys.platform == "darwin"
            else "linux"
            if sys.platform.startswith("linux")
            else sys.platform,
            "machine": platform.machine(),
            "user": getpass.getuser(),
            "hostname": socket.gethostname(),
            "home": str(self._state.home),
            "boot_id": boot_id(),
            "free_bytes": self._state.free(),
            "capable_python": capable,
            "pythons": tried,
            "without_venv": lacking,
        }

    def do_clock(self) -> Header:
        """Say what time it is here."""
        return {"time_ns": int(time.time() * 1e9)}


def main(program: bytes, nonce: str) -> None:
    """Speak frames on stdin and stdout, or supervise; what anything else prints goes to stderr."""
    if sys.argv[1:2] == ["supervise"]:
        supervise(Path(sys.argv[2]))
        return
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(("\ngatekeeper-agent " + nonce + "\n").encode())
    out.flush()
    Agent(Channel(sys.stdin.buffer, out), program).serve()
