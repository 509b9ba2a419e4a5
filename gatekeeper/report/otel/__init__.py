"""Telemetry: what a run recorded, sent between its stages by a process of their own.

Nothing here imports OpenTelemetry; `gatekeeper.report.otel.exporter` does, in that process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.core import inputs, run_directory
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.slo import Telemetry
from gatekeeper.core.text import QUOTED, one_line
from gatekeeper.core.verdict import Verdict
from gatekeeper.report.otel.endpoint import Destination, RefusedError, destination

ARGV = (sys.executable, "-P", "-m", "gatekeeper.report.otel.exporter")


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
            self._send(self._to, name, {"whole": False, "outcome": {}})

    def close(self, conclude: Callable[[], Verdict] | None = None) -> None:
        """Send what is left and the run's own span, with the outcome that *conclude* tells, if anybody is told."""
        if self._to is None:
            return
        outcome: dict[str, Any] = {}
        if conclude is not None:
            verdict = conclude()
            outcome = {"outcome": verdict.outcome, "exit_code": verdict.exit_code, "grade": verdict.grade}
        self._send(self._to, "run", {"whole": True, "outcome": outcome})

    def _send(self, to: Destination, stage: str, part: dict[str, Any]) -> None:
        before = {"without": self._files, "samples_from": self._samples, "finished_only": True}
        begun = time.monotonic()
        try:
            said = _send_part(to, self._path, before | part)
        except RefusedError as error:
            self._fail(stage, error.message)
            return
        self._files, self._samples, self.trouble = (*self._files, *said["files"]), said["samples"], None
        seconds = round(time.monotonic() - begun, 3)
        counts = {"spans": said["spans"], "points": said["points"], "seconds": seconds}
        self._observe("telemetry_sent", {"stage": stage, "endpoint": to.shown, **counts})

    def _fail(self, stage: str, because: str) -> None:
        self.trouble = because
        self._observe("telemetry_failed", {"stage": stage, "because": because})


@dataclass(frozen=True, slots=True)
class Sent:
    """What the collector took of a stored run."""

    endpoint: str
    spans: int
    points: int


def export_stored(path: Path) -> Sent:
    """Send a whole stored run, finished or not, with its verdict where there is one.

    Raise InputError where nobody says where to, RefusedError where the collector does not take all of it.
    """
    directory = run_directory.RunDirectory(path)
    manifest = inputs.load_manifest(directory.read("manifest.json"))
    given, _ = inputs.stored_inputs(directory, manifest)
    to = destination(given.slo.telemetry, os.environ)
    if to is None:
        raise InputError(
            "no OTLP endpoint is known", hint="set OTEL_EXPORTER_OTLP_ENDPOINT, or [telemetry] endpoint in the SLO"
        )
    verdict = path / "verdict.json"
    concluded = run_directory.document(verdict.read_bytes(), "verdict.json") if verdict.is_file() else {}
    outcome = {name: concluded.get(name) for name in ("outcome", "exit_code", "grade")}
    said = _send_part(to, path, {"outcome": outcome})
    return Sent(to.shown, said["spans"], said["points"])


def transition(
    asked: Telemetry, attributes: Mapping[str, str | int | float | bool | None], at_ns: int, manifest_sha256: str
) -> str | None:
    """Tell the collector, if anybody named one, of a change of what is served; return why it does not know, else None.

    It is a span without length at *at_ns*, nanoseconds since 1970, with an event, both named `gatekeeper.transition`,
    and *attributes* under `gatekeeper.`; it links to the run of that manifest. Takes at most `asked.timeout` seconds
    and raises nothing.
    """
    try:
        to = destination(asked, os.environ)
        if to is not None and "traces" in to.signals:
            said = {"attributes": dict(attributes), "at_ns": at_ns, "manifest_sha256": manifest_sha256}
            _send(to, {"transition": said})
    except GatekeeperError as error:
        return error.message
    return None


def _send_part(to: Destination, path: Path, part: Mapping[str, Any]) -> dict[str, Any]:
    names = {"rounds": to.rounds, "latest": to.latest}
    return _send(to, {"run": str(path.resolve()), "part": {**part, **names}})


def _send(to: Destination, what: Mapping[str, Any]) -> dict[str, Any]:
    """Have a process of its own send something; raise RefusedError where the collector does not have all of it."""
    begun_ns = time.monotonic_ns()  # one clock for the whole system, so the other process ends just before its limit
    way = {"signals": dict(to.signals), "shown": to.shown, "seconds": to.limit, "begun_ns": begun_ns}
    text = json.dumps({"way": way, **what})
    try:
        done = subprocess.run(
            ARGV, input=text, capture_output=True, text=True, timeout=to.limit, check=False, env=to.environment
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(f"{to.shown}: not done within {to.limit:g} s") from error
    except OSError as error:
        raise _refused(f"cannot start the export: {error.strerror}") from error
    said = _said(done.stdout)
    if done.returncode != 0 or "spans" not in said:
        last = one_line(done.stderr)[-QUOTED:]
        raise _refused(said.get("because") or f"the export ended with code {done.returncode}: {last}")
    return said


def _refused(because: str) -> RefusedError:
    return RefusedError(because, hint="the run is not touched by it; `gatekeeper export` sends it again")


def _said(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
