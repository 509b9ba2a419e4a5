"""The switch: commands of the user's own that run when a workload changes its rung."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from gatekeeper.core import child_process

LIMIT_S = 30.0
"""What one command may take, unless --limit says otherwise."""
GRACE_S = 2.0
"""Between SIGTERM and SIGKILL, for a command that took too long."""
TAIL = 2000
"""Characters of its output that are kept."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How one command ended."""

    argv: tuple[str, ...]
    code: int | None
    """None: it never ran, or was ended by us."""
    seconds: float
    output: str
    """The end of what it printed, both streams."""
    fault: str | None
    """Why it did not do what it is for; None for exit code 0."""

    def document(self) -> dict[str, Any]:
        """Return it as the journal writes it."""
        return {
            "argv": list(self.argv),
            "code": self.code,
            "seconds": round(self.seconds, 3),
            "output": self.output,
            "fault": self.fault,
        }


def run(argv: Sequence[str], transition: Mapping[str, Any], *, limit: float = LIMIT_S) -> Ran:
    """Run *argv* with the transition in its environment and, as JSON, on its stdin; never raise for what it does.

    After *limit* seconds it is ended with its process group. A program that it leaves in the background is not waited
    for.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as given:
        # Files, not pipes: a server that the command starts may hold them open for ever, and nobody waits for it.
        given.write(json.dumps(transition).encode() + b"\n")
        given.seek(0)
        try:
            process = subprocess.Popen(
                list(argv), stdin=given, stdout=out, stderr=out, env=_environment(transition), start_new_session=True
            )
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error)
            return Ran(tuple(argv), None, 0.0, "", f"cannot be started: {said}")
        try:
            code: int | None = _wait(process, limit)
        except BaseException:  # an interrupt ends the watch, and what it started with it
            child_process.end(process, grace=GRACE_S)
            raise
        fault = None if code == 0 else f"ended with code {code}"
        if code is None:
            child_process.end(process, grace=GRACE_S)
            fault = f"took longer than {limit:g} s and was ended"
        elif code < 0:
            fault = f"ended by signal {-code}"
        return Ran(tuple(argv), code, time.monotonic() - begun, _tail(out), fault)


def _environment(transition: Mapping[str, Any]) -> dict[str, str]:
    """Return ours, with each plain value of the transition as GATEKEEPER_NAME; a long one is cut."""
    told = {
        f"GATEKEEPER_{name.upper()}": (str(value).lower() if isinstance(value, bool) else str(value))[:TAIL]
        for name, value in transition.items()
        if isinstance(value, str | int | float)
    }
    return {**os.environ, **told}


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None


def _tail(out: IO[bytes]) -> str:
    size = out.seek(0, os.SEEK_END)
    out.seek(max(0, size - 4 * TAIL))
    return out.read().decode("utf-8", "replace")[-TAIL:]
