"""The user's commands that a watch runs when a route changes: what they are given, how long they may take."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

from gatekeeper.core.system import child_process
from gatekeeper.live.watch_config import HOOK_LIMIT_S

HOOK_GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that exceeds its limit."""


OUTPUT_KEPT = 2000
"""Characters kept of a command's output."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """How one command ended."""

    argv: tuple[str, ...]
    code: int | None
    """None: it did not start, or was stopped at the limit."""
    seconds: float
    output: str
    """The end of its output, stdout and stderr."""
    fault: str | None
    """Why it failed; None for exit code 0."""

    def document(self) -> dict[str, Any]:
        """Return it as the log holds it."""
        return asdict(self) | {"argv": list(self.argv), "seconds": round(self.seconds, 3)}


def run_hook(argv: Sequence[str], transition: Mapping[str, Any], *, limit: float = HOOK_LIMIT_S) -> HookResult:
    """Run *argv* with the transition in its environment and, as JSON, on its stdin; its failure is never raised.

    After *limit* seconds its process group is stopped. A program that it left in the background keeps running.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as stdin:
        # Files, not pipes: a server that the command starts may keep a pipe open.
        stdin.write(json.dumps(transition).encode() + b"\n")
        stdin.seek(0)
        try:
            environment = _environment(transition)
            process = subprocess.Popen(
                list(argv), stdin=stdin, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return HookResult(tuple(argv), None, 0.0, "", f"cannot be started: {reason}")
        try:
            code: int | None = _wait(process, limit)
        except BaseException:  # an interrupt ends the watch and the command
            child_process.end(process, grace=HOOK_GRACE_S)
            raise
        fault = None if code == 0 else f"exit code {code}"
        if code is None:
            child_process.end(process, grace=HOOK_GRACE_S)
            fault = f"stopped at its time limit of {limit:g} s"
        elif code < 0:
            fault = f"killed by signal {-code}"
        return HookResult(tuple(argv), code, time.monotonic() - begun, _tail(output), fault)


def _environment(transition: Mapping[str, Any]) -> dict[str, str]:
    """Return our environment plus each simple value of the transition as GATEKEEPER_NAME; long values are cut."""
    variables = {
        f"GATEKEEPER_{name.upper()}": (str(value).lower() if isinstance(value, bool) else str(value))[:OUTPUT_KEPT]
        for name, value in transition.items()
        if isinstance(value, str | int | float)
    }
    return {**os.environ, **variables}


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None


def _tail(out: IO[bytes]) -> str:
    size = out.seek(0, os.SEEK_END)
    out.seek(max(0, size - 4 * OUTPUT_KEPT))
    return out.read().decode("utf-8", "replace")[-OUTPUT_KEPT:]
