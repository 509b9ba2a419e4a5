"""The export: what a run directory holds, read back, turned into OTLP and sent.

`python -m gatekeeper.telemetry.export` does it in a process of its own for a run that goes on: it reads one JSON
object on stdin, prints one on stdout, and is killed when its time is over. So nothing of it is left, no thread, no
connection, no memory, when the next stage is measured.
"""

import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import ITIMER_REAL, setitimer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from gatekeeper import casefile, store
from gatekeeper.telemetry import points, spans
from gatekeeper.telemetry.destination import Signal, destination, pairs
from gatekeeper.telemetry.frame import SCOPE, Frame, resource
from gatekeeper.telemetry.wire import Request, Wire
from gatekeeper.terms.errors import GatekeeperError, InputError
from gatekeeper.terms.manifest import sha256
from gatekeeper.terms.records import Generation

SPANS = 500
"""In one request: under a megabyte, round events apart."""
POINTS = 2000
"""In one request: under a megabyte."""
NOT_ANSWERS = ("host.jsonl", "events.jsonl")
RESERVE_S = 0.3
"""Kept back from the time limit, so that what went wrong can still be said."""


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


@dataclass(frozen=True, slots=True)
class Sent:
    """What the collector took."""

    endpoint: str
    files: tuple[str, ...]
    samples: int
    spans: int
    points: int


def export(path: Path, part: Part, environment: Mapping[str, str], *, begun_ns: int, reserve: float = 0.0) -> Sent:
    """Send *part* of the run at *path* to where its SLO or the environment says.

    The time limit counts from *begun_ns*, a monotonic instant, and ends *reserve* seconds early. Raise InputError where
    nobody says where to, RefusedError where the collector does not take all of it.
    """
    frame = frame_of(path)
    to = destination(frame.slo.telemetry, environment)
    if to is None:
        raise InputError(
            "no OTLP endpoint is known", hint="set OTEL_EXPORTER_OTLP_ENDPOINT, or [telemetry] endpoint in the SLO"
        )
    made, files = _answers(path, part)
    samples = store.load(path / "host.jsonl", store.SAMPLES).records
    found = _spans(frame, made, rounds=to.rounds)
    if part.whole:
        events = store.load(path / "events.jsonl", store.EVENTS).records
        root = spans.run(frame, events, part.outcome)
        found += [root] if root is not None else []
    metrics = points.of_requests(frame, made, latest=to.latest)
    metrics += points.of_host(frame, samples[part.samples_from :])
    added = pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""), "OTEL_RESOURCE_ATTRIBUTES")
    speaker = resource(frame, added, environment.get("OTEL_SERVICE_NAME", "").strip() or None)
    requests: dict[Signal, Iterator[Request]] = {
        "traces": _trace_requests(found, speaker),
        "metrics": _metric_requests(metrics, speaker),
    }
    deadline_ns = begun_ns + round(max(0.1, to.limit - reserve) * 1e9)
    for signal, route in to.routes.items():
        with Wire(route, deadline_ns) as wire:
            for request in requests[signal]:
                wire.send(request)
    traced = len(found) if "traces" in to.routes else 0
    measured = sum(map(points.size, metrics)) if "metrics" in to.routes else 0
    return Sent(to.shown, files, len(samples), traced, measured)


def frame_of(path: Path) -> Frame:
    """Return what all telemetry of the run at *path* shares."""
    directory = store.RunDirectory(path)
    text = directory.text("manifest.json")
    manifest = casefile.load_manifest(text.encode())
    given, _ = casefile.stored_inputs(directory, manifest)
    return Frame.of(given, manifest, sha256(text))


def _answers(path: Path, part: Part) -> tuple[list[tuple[str, Generation]], tuple[str, ...]]:
    made: list[tuple[str, Generation]] = []
    files = []
    for file in sorted(path.glob("*.jsonl")):
        if file.name in part.without or file.name in NOT_ANSWERS or file.name.startswith("ties-"):
            continue
        loaded = store.load(file, store.ANSWERS)
        if loaded.trouble is None or not part.finished_only:
            files.append(file.name)
            made += [(file.name, one) for one in loaded.records]
    return made, tuple(files)


def _spans(frame: Frame, made: list[tuple[str, Generation]], *, rounds: bool) -> list[Span]:
    by_stage: dict[str, list[Span]] = {}
    for file, one in made:
        span = spans.request(frame, file, one, rounds=rounds)
        if span is not None:
            by_stage.setdefault(spans.stage_of(file), []).append(span)
    stages = [spans.stage(frame, name, requests) for name, requests in by_stage.items()]
    return [*(one for one in stages if one is not None), *(one for some in by_stage.values() for one in some)]


def _trace_requests(found: list[Span], speaker: Resource) -> Iterator[ExportTraceServiceRequest]:
    for begin in range(0, len(found), SPANS):
        scoped = ScopeSpans(scope=SCOPE, spans=found[begin : begin + SPANS])
        yield ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=speaker, scope_spans=[scoped])])


def _metric_requests(found: list[Metric], speaker: Resource) -> Iterator[ExportMetricsServiceRequest]:
    for batch in points.batches(found, POINTS):
        scoped = ScopeMetrics(scope=SCOPE, metrics=batch)
        yield ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=speaker, scope_metrics=[scoped])])


def export_stored(path: Path) -> Sent:
    """Send a whole stored run, finished or not, with its verdict where there is one."""
    verdict = path / "verdict.json"
    said = store.document(verdict.read_bytes(), "verdict.json") if verdict.is_file() else {}
    outcome = {name: said.get(name) for name in ("outcome", "exit_code", "grade")}
    return export(path, Part(outcome=outcome), os.environ, begun_ns=time.monotonic_ns())


def main() -> int:
    """Serve one request of a run that goes on: {run, part, seconds}."""
    begun_ns = time.monotonic_ns()
    asked = json.load(sys.stdin)
    setitimer(ITIMER_REAL, float(asked["seconds"]))  # should whoever started us be killed, we still end
    try:
        part = Part(**asked["part"])
        sent = export(Path(asked["run"]), part, os.environ, begun_ns=begun_ns, reserve=RESERVE_S)
    except GatekeeperError as error:
        sys.stdout.write(json.dumps({"because": error.message}))
        return 1
    sys.stdout.write(json.dumps(asdict(sent)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
