"""The export: what a run directory holds, read back, made into spans and points, and sent.

`python -m gatekeeper.report.otel.exporter` does it in a process of its own: it reads one JSON object on stdin, prints
one on stdout, and is killed when its time is over. So nothing of it is left, no thread, no connection, no memory,
when the next stage is measured.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import ITIMER_REAL, setitimer
from typing import Any

from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.trace import ReadableSpan

from gatekeeper.core import inputs, run_directory
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.records import Generation
from gatekeeper.report.otel import metrics as points
from gatekeeper.report.otel import spans
from gatekeeper.report.otel.endpoint import Protocol, Signal
from gatekeeper.report.otel.identity import SCOPE, Frame
from gatekeeper.report.otel.transport import Wire

SPANS = 500
"""In one request: under a megabyte, round events apart."""
NOT_ANSWERS = ("host.jsonl", "events.jsonl")
RESERVE_S = 0.5
"""Kept back from the time limit, so that what went wrong can still be said."""


@dataclass(frozen=True, slots=True)
class Way:
    """How it is sent, and until when; the exporters read everything else from the OTEL_* variables."""

    signals: Mapping[Signal, Protocol]
    shown: str
    seconds: float
    begun_ns: int
    """The monotonic instant that the seconds count from."""

    @property
    def left(self) -> float:
        """Return how many seconds are left, a moment at least."""
        return max(0.1, self.seconds - (time.monotonic_ns() - self.begun_ns) / 1e9)

    def open(self, signal: Signal) -> Wire:
        """Open the wire of a signal; each request may take what is left of the time, or OTEL_EXPORTER_OTLP_TIMEOUT."""
        named = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
        own = any(name in os.environ for name in named)
        seconds = None if own else lambda: max(0.1, self.left - RESERVE_S)
        return Wire(signal, self.signals[signal], self.shown, seconds)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a run is sent."""

    without: Collection[str] = ()
    """Record files that were sent before."""
    samples_from: int = 0
    """How many host samples were sent before."""
    finished_only: bool = False
    """Leave out record files without a closing line."""
    whole: bool = True
    """Send the run's own span too: nothing follows."""
    outcome: Mapping[str, str | int | None] = field(default_factory=dict)
    rounds: bool = False
    latest: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """What the collector took."""

    files: tuple[str, ...]
    samples: int
    spans: int
    points: int


def export(path: Path, part: Part, way: Way) -> Sent:
    """Send *part* of the run at *path*; raise RefusedError where the collector does not take all of it."""
    frame = frame_of(path)
    made, files = _answers(path, part)
    samples = run_directory.load(path / "host.jsonl", run_directory.SAMPLES).records
    found = _spans(frame, made, rounds=part.rounds)
    if part.whole:
        events = run_directory.load(path / "events.jsonl", run_directory.EVENTS).records
        root = spans.run(frame, events, part.outcome)
        found += [root] if root is not None else []
    metrics = points.of_requests(frame, made, latest=part.latest)
    metrics += points.of_host(frame, samples[part.samples_from :])
    traced = send_spans(found, way)
    measured = _send_metrics(frame, metrics, way)
    return Sent(files, len(samples), traced, measured)


def frame_of(path: Path) -> Frame:
    """Return what all telemetry of the run at *path* shares."""
    directory = run_directory.RunDirectory(path)
    text = directory.text("manifest.json")
    manifest = inputs.load_manifest(text.encode())
    given, _ = inputs.stored_inputs(directory, manifest)
    return Frame.of(given, manifest, sha256(text))


def _answers(path: Path, part: Part) -> tuple[list[tuple[str, Generation]], tuple[str, ...]]:
    made: list[tuple[str, Generation]] = []
    files = []
    for file in sorted(path.glob("*.jsonl")):
        if file.name in part.without or file.name in NOT_ANSWERS or file.name.startswith("ties-"):
            continue
        loaded = run_directory.load(file, run_directory.ANSWERS)
        if loaded.trouble is None or not part.finished_only:
            files.append(file.name)
            made += [(file.name, one) for one in loaded.records]
    return made, tuple(files)


def _spans(frame: Frame, made: list[tuple[str, Generation]], *, rounds: bool) -> list[ReadableSpan]:
    by_stage: dict[str, list[ReadableSpan]] = {}
    for file, one in made:
        span = spans.request(frame, file, one, rounds=rounds)
        if span is not None:
            by_stage.setdefault(spans.stage_of(file), []).append(span)
    stages = [spans.stage(frame, name, requests) for name, requests in by_stage.items()]
    return [*(one for one in stages if one is not None), *(one for some in by_stage.values() for one in some)]


def send_spans(found: Sequence[ReadableSpan], way: Way) -> int:
    """Send spans where spans are wanted, and return how many."""
    if not found or "traces" not in way.signals:
        return 0
    with way.open("traces") as wire:
        for begin in range(0, len(found), SPANS):
            wire.send(found[begin : begin + SPANS])
    return len(found)


def _send_metrics(frame: Frame, found: Sequence[sdk.Metric], way: Way) -> int:
    if not found or "metrics" not in way.signals:
        return 0
    scoped = sdk.ScopeMetrics(SCOPE, found, schema_url="")
    with way.open("metrics") as wire:
        wire.send(sdk.MetricsData([sdk.ResourceMetrics(frame.resource, [scoped], schema_url="")]))
    return sum(len(one.data.data_points) for one in found)


def answer(asked: Mapping[str, Any], way: Way) -> Mapping[str, Any]:
    """Send what was asked for: a part of a run, or a transition."""
    if "transition" in asked:
        return {"spans": send_spans([spans.transition(**asked["transition"])], way)}
    return asdict(export(Path(asked["run"]), Part(**asked["part"]), way))


def main() -> int:
    """Serve one request: {way, run, part} or {way, transition}."""
    asked = json.load(sys.stdin)
    way = Way(**asked["way"])
    setitimer(ITIMER_REAL, way.left + RESERVE_S)  # should whoever started us be killed before it ends us, we still end
    logging.disable()  # what the exporters log may quote headers; what matters of it is an error here
    try:
        sent = answer(asked, way)
    except GatekeeperError as error:
        sys.stdout.write(json.dumps({"because": error.message}))
        return 1
    sys.stdout.write(json.dumps(sent))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing is open any more, and taking all these modules down costs the run a part of its limit
