"""The telemetry of a run that goes on: its records, sent between stages by a process of their own.

Nothing here imports OpenTelemetry; `gatekeeper.telemetry.export` does, in that process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gatekeeper.telemetry.destination import destination
from gatekeeper.terms.errors import InputError
from gatekeeper.terms.outcome import Verdict
from gatekeeper.terms.slo import Telemetry

ARGV = (sys.executable, "-P", "-m", "gatekeeper.telemetry.export")
SHOWN = 200
"""Characters of what a process that broke down said last."""


class Live:
    """Sends what is finished and not sent yet.

    A collector that fails costs the run one time limit, and one more at its end: nothing is tried in between.
    """

    def __init__(self, path: Path, asked: Telemetry, observe: Callable[[str, dict[str, Any]], None]) -> None:
        self._path, self._observe = path, observe
        self._files: tuple[str, ...] = ()
        self._samples = 0
        self.trouble: str | None = None
        """Why the collector does not have everything, None where it has, or nobody asked."""
        self._to = None
        try:
            self._to = destination(asked, os.environ)
        except InputError as error:
            self.trouble = error.message

    def begin(self) -> None:
        """Say it where telemetry is wanted and can not be sent at all."""
        if self.trouble is not None:
            self._fail("begin", self.trouble)

    def stage(self, name: str) -> None:
        """Send what the stage *name* has finished; only ever called while no subject is measured."""
        if self._to is not None and self.trouble is None:
            self._send(name, {"whole": False, "outcome": {}})

    def close(self, conclude: Callable[[], Verdict] | None = None) -> None:
        """Send what is left and the run's own span, with the outcome that *conclude* tells, if anybody is told."""
        if self._to is None:
            return
        outcome: dict[str, Any] = {}
        if conclude is not None:
            verdict = conclude()
            outcome = {"outcome": verdict.outcome, "exit_code": verdict.exit_code, "grade": verdict.grade}
        self._send("run", {"whole": True, "outcome": outcome})

    def _send(self, stage: str, part: dict[str, Any]) -> None:
        assert self._to is not None
        before = {"without": self._files, "samples_from": self._samples, "finished_only": True}
        asked = {
            "run": str(self._path.resolve()),
            "part": before | part,
            "seconds": self._to.limit,
        }
        begun = time.monotonic()
        try:
            done = subprocess.run(
                ARGV, input=json.dumps(asked), capture_output=True, text=True, timeout=self._to.limit, check=False
            )
        except subprocess.TimeoutExpired:
            self._fail(stage, f"{self._to.shown}: not done within {self._to.limit:g} s")
            return
        except OSError as error:
            self._fail(stage, f"cannot start the export: {error.strerror}")
            return
        said = _said(done.stdout)
        if done.returncode != 0 or "files" not in said:
            last = " ".join(done.stderr.split())[-SHOWN:]
            self._fail(stage, said.get("because") or f"the export ended with code {done.returncode}: {last}")
            return
        self._files, self._samples, self.trouble = (*self._files, *said["files"]), said["samples"], None
        seconds = round(time.monotonic() - begun, 3)
        counts = {"spans": said["spans"], "points": said["points"], "seconds": seconds}
        self._observe("telemetry_sent", {"stage": stage, "endpoint": self._to.shown, **counts})

    def _fail(self, stage: str, because: str) -> None:
        self.trouble = because
        self._observe("telemetry_failed", {"stage": stage, "because": because})


def _said(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
