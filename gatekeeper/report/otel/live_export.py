"""OpenTelemetry export: what a run recorded, sent between its stages by a separate process.

Nothing here imports OpenTelemetry; `gatekeeper.report.otel.exporter` does, in that process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.records import EventKind
from gatekeeper.core.slo import Telemetry
from gatekeeper.core.system import inputs, run_directory
from gatekeeper.core.text import QUOTED, one_line
from gatekeeper.report.otel.endpoint import Destination, RefusedError, Signal, UnsentError, destination

ARGV = (sys.executable, "-P", "-m", "gatekeeper.report.otel.exporter")
OUTCOME = ("outcome", "exit_code", "grade")
"""What the run's own span reports of the verdict."""


class LiveExport:
    """Sends what is finished and not sent yet.

    A collector that fails costs the run one time limit, and one more at its end; nothing is sent in between.
    """

    def __init__(self, path: Path, config: Telemetry, observe: Callable[[EventKind, dict[str, Any]], None]) -> None:
        self._path, self._observe = path, observe
        self._files: tuple[str, ...] = ()
        self._samples = 0
        self.trouble: str | None = None
        """Why the collector does not have everything; None where it has, or none is configured."""
        self._to = None
        try:
            self._to = destination(config, os.environ)
        except InputError as error:
            self.trouble = error.message

    def begin(self) -> None:
        """Report at once that telemetry is configured but cannot be sent."""
        if self.trouble is not None:
            self._fail("begin", self.trouble)

    def stage(self, name: str) -> None:
        """Send what the stage *name* has finished; only ever called while nothing is measured."""
        if self._to is not None and self.trouble is None:
            self._send(self._to, name, ends_run=False, outcome={})

    def close(self, conclude: Callable[[], Verdict] | None = None) -> None:
        """Send what is left and the run's own span, with the outcome of the verdict that *conclude* returns."""
        if self._to is None:
            return
        verdict = conclude() if conclude is not None else None
        outcome = {name: getattr(verdict, name) for name in OUTCOME} if verdict is not None else {}
        self._send(self._to, "run", ends_run=True, outcome=outcome)

    def _send(self, to: Destination, stage: str, **part: Any) -> None:
        begun = time.monotonic()
        try:
            sent = _send_part(
                to, self._path, without=self._files, samples_from=self._samples, finished_only=True, **part
            )
        except UnsentError as error:
            self._fail(stage, error.message)
            return
        self._files, self._samples, self.trouble = (*self._files, *sent["files"]), sent["samples"], None
        counts = {"spans": sent["spans"], "points": sent["points"], "seconds": round(time.monotonic() - begun, 3)}
        self._observe(EventKind.TELEMETRY_SENT, {"stage": stage, "endpoint": to.endpoint, **counts})

    def _fail(self, stage: str, because: str) -> None:
        self.trouble = because
        self._observe(EventKind.TELEMETRY_FAILED, {"stage": stage, "because": because})


def export_stored(path: Path, url: str | None = None) -> dict[str, Any]:
    """Send a whole stored run, finished or not, with its verdict where there is one; return what was accepted.

    The collector is at *url*, else where the SLO or the environment says. Raise InputError where no endpoint is
    configured, RefusedError where the collector does not take all of it, UnsentError where the export itself fails.
    """
    directory = run_directory.RunDirectory(path)
    with run_directory.unreadable_as_no_proof(path):
        manifest = inputs.load_manifest(directory.read("manifest.json"))
        run_inputs, _ = inputs.stored_inputs(directory, manifest)
        verdict = path / "verdict.json"
        concluded = run_directory.parse_json(verdict.read_bytes(), "verdict.json") if verdict.is_file() else {}
    config = run_inputs.slo.telemetry
    to = destination(config if url is None else config.model_copy(update={"endpoint": Address(url)}), os.environ)
    if to is None:
        raise InputError(
            "no OTLP endpoint is set",
            hint="name it: --to http://127.0.0.1:4318; or set OTEL_EXPORTER_OTLP_ENDPOINT, or [telemetry] endpoint",
        )
    try:
        sent = _send_part(to, path, measuring=False, outcome={name: concluded.get(name) for name in OUTCOME})
    except RefusedError as error:
        raise RefusedError(f"the collector does not have the whole run: {error.message}") from None
    return {"schema": 1, "endpoint": to.endpoint, "spans": sent["spans"], "points": sent["points"]}


def transition(
    config: Telemetry, attributes: Mapping[str, str | int | float | bool | None], at_ns: int, manifest_sha256: str
) -> str | None:
    """Send a change of what is served to the collector, if there is one; return why it was not delivered, else None.

    It is a span without length at *at_ns*, nanoseconds since 1970, with an event, both named `gatekeeper.transition`,
    and *attributes* under `gatekeeper.`; it links to the run of that manifest. Takes at most `config.timeout` seconds
    and raises nothing.
    """
    change = {"attributes": dict(attributes), "at_ns": at_ns, "manifest_sha256": manifest_sha256}
    return _deliver(config, "traces", {"transition": change})


def live(
    config: Telemetry, points: Sequence[tuple[str, str, float, Mapping[str, str]]], at_ns: int, manifest_sha256: str
) -> str | None:
    """Send gauges (name, unit, value, attributes) of live requests, if there is a collector; return why it failed."""
    gauges = {"points": list(points), "at_ns": at_ns, "manifest_sha256": manifest_sha256}
    return _deliver(config, "metrics", {"live": gauges})


def _deliver(config: Telemetry, signal: Signal, request: Mapping[str, Any]) -> str | None:
    try:
        to = destination(config, os.environ)
        if to is not None and signal in to.signals:
            _send(to, request)
    except GatekeeperError as error:
        return error.message
    return None


def _send_part(to: Destination, path: Path, *, measuring: bool = True, **part: Any) -> dict[str, Any]:
    request = {"run": str(path.resolve()), "part": {**part, "rounds": to.rounds, "latest": to.latest}}
    return _send(to, request, measuring=measuring)


def _send(to: Destination, request: Mapping[str, Any], *, measuring: bool = True) -> dict[str, Any]:
    """Send something from a separate process; raise UnsentError where the collector does not have all of it.

    Of a run that is *measuring* the limit holds for all of it, with the start of that process; else for each request.
    """
    # The same clock in the other process, which so ends just before its limit.
    begun_ns = time.monotonic_ns() if measuring else None
    options = {"signals": dict(to.signals), "endpoint": to.endpoint, "seconds": to.limit, "begun_ns": begun_ns}
    text = json.dumps({"options": options, **request})
    try:
        done = subprocess.run(
            ARGV, input=text, capture_output=True, text=True, timeout=to.limit if measuring else None, check=False,
            env=to.environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RefusedError(f"{to.endpoint}: not done within {to.limit:g} s") from error
    except OSError as error:
        raise UnsentError(f"cannot start the export: {error.strerror}") from error
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        result = {}
    if done.returncode != 0 or "spans" not in result:
        if because := result.get("because"):
            raise RefusedError(because)
        raise UnsentError(f"the export ended with code {done.returncode}: {one_line(done.stderr)[-QUOTED:]}")
    return result
