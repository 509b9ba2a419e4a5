"""The export process: reads a run directory, makes spans and metrics of it, and sends them.

`python -m gatekeeper.report.otel.exporter` reads one JSON object on stdin, prints one on stdout, and is killed when its
time is over. So none of its threads, connections or memory are left when the next stage is measured.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from signal import ITIMER_REAL, setitimer
from typing import Any

from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.records import Generation
from gatekeeper.core.system import inputs, record_files, run_directory
from gatekeeper.report.otel import exported_metrics, spans
from gatekeeper.report.otel.endpoint import Protocol, Signal
from gatekeeper.report.otel.identity import SCOPE, RunIdentity, resource
from gatekeeper.report.otel.transport import Transport

SPANS = 500
"""Spans per request: under a megabyte without the events of rounds."""
NOT_ANSWERS = ("host.jsonl", "events.jsonl")
RESERVE_S = 0.5
"""Kept back from the time limit, so that an error can still be reported."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How it is sent, and how long it may take; the exporters read everything else from the OTEL_* variables."""

    signals: Mapping[Signal, Protocol]
    endpoint: str
    """As shown to people, without secrets."""
    seconds: float
    begun_ns: int | None
    """The monotonic instant at which `seconds` begins; None: each request has so many, and the whole has no limit."""

    @property
    def left(self) -> float:
        """Return how many seconds are left for a request, at least 0.1."""
        if self.begun_ns is None:
            return self.seconds + RESERVE_S
        return max(0.1, self.seconds - (time.monotonic_ns() - self.begun_ns) / 1e9)

    def open(self, signal: Signal) -> Transport:
        """Open the transport of a signal; OTEL_EXPORTER_OTLP_TIMEOUT or else what is left limits each request."""

        def exporter(transport: Transport) -> Any:
            if self.signals[signal] == "grpc":
                from gatekeeper.report.otel.otlp_grpc import exporter  # noqa: PLC0415 (heavy, and unused over HTTP)
            else:
                from gatekeeper.report.otel.otlp_http import exporter  # type: ignore[assignment] # noqa: PLC0415
            names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
            configured = any(name in os.environ for name in names)
            return exporter(signal, None if configured else max(0.1, self.left - RESERVE_S), transport)

        return Transport(self.endpoint, exporter)


@dataclass(frozen=True, slots=True)
class RunPart:
    """Which part of a run is sent."""

    without: Collection[str] = ()
    """Record files that were sent before."""
    samples_from: int = 0
    """How many host samples were sent before."""
    finished_only: bool = False
    """Leave out record files without a closing line."""
    ends_run: bool = True
    """Send the run's own span too: nothing follows."""
    outcome: Mapping[str, str | int | None] = field(default_factory=dict)
    rounds: bool = False
    latest: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """What the collector accepted."""

    files: tuple[str, ...]
    samples: int
    spans: int
    points: int


def export(path: Path, part: RunPart, options: SendOptions) -> Sent:
    """Send *part* of the run at *path*; raise RefusedError where the collector does not take all of it."""
    identity = identity_of(path)
    answers, files = _answers(path, part)
    samples = record_files.read_records(path / "host.jsonl", record_files.SAMPLES).records
    readable_spans = _spans(identity, answers, rounds=part.rounds)
    if part.ends_run:
        events = record_files.read_records(path / "events.jsonl", record_files.EVENTS).records
        root = spans.run(identity, events, part.outcome)
        readable_spans += [root] if root is not None else []
    measured = exported_metrics.of_requests(identity, answers, latest=part.latest)
    measured += exported_metrics.of_host(identity, samples[part.samples_from :])
    spans_sent = send_spans(readable_spans, options)
    return Sent(files, len(samples), spans_sent, _send_metrics(identity.resource, measured, options))


def identity_of(path: Path) -> RunIdentity:
    """Return what all telemetry of the run at *path* shares."""
    directory = run_directory.RunDirectory(path)
    text = directory.text("manifest.json")
    manifest = inputs.load_manifest(text.encode())
    run_inputs, _ = inputs.stored_inputs(directory, manifest)
    canaries = {(name, canary.id): canary for name, group in run_inputs.canaries.items() for canary in group}
    return RunIdentity(manifest, sha256(text), run_inputs.slo, canaries)


def _answers(path: Path, part: RunPart) -> tuple[list[tuple[str, Generation]], tuple[str, ...]]:
    answers: list[tuple[str, Generation]] = []
    files = []
    other_prefixes = tuple(f"{each.name}-" for each in FOLLOW_UPS if each.kind is not Generation)
    for file in sorted(path.glob("*.jsonl")):
        if file.name in part.without or file.name in NOT_ANSWERS or file.name.startswith(other_prefixes):
            continue
        loaded = record_files.read_records(file, record_files.ANSWERS)
        if loaded.trouble is None or not part.finished_only:
            files.append(file.name)
            answers += [(file.name, generation) for generation in loaded.records]
    return answers, tuple(files)


def _spans(identity: RunIdentity, answers: list[tuple[str, Generation]], *, rounds: bool) -> list[ReadableSpan]:
    by_stage: dict[str, list[ReadableSpan]] = {}
    for file, generation in answers:
        span = spans.request(identity, file, generation, rounds=rounds)
        if span is not None:
            by_stage.setdefault(spans.stage_of(file), []).append(span)
    stages = [spans.stage(identity, name, requests) for name, requests in by_stage.items()]
    return [*filter(None, stages), *chain.from_iterable(by_stage.values())]


def send_spans(readable_spans: Sequence[ReadableSpan], options: SendOptions) -> int:
    """Send spans if traces are enabled, and return how many."""
    if not readable_spans or "traces" not in options.signals:
        return 0
    with options.open("traces") as transport:
        for begin in range(0, len(readable_spans), SPANS):
            transport.send(readable_spans[begin : begin + SPANS])
    return len(readable_spans)


def _send_metrics(source: Resource, sdk_metrics: Sequence[sdk.Metric], options: SendOptions) -> int:
    if not sdk_metrics or "metrics" not in options.signals:
        return 0
    scoped = sdk.ScopeMetrics(SCOPE, sdk_metrics, schema_url="")
    with options.open("metrics") as transport:
        transport.send(sdk.MetricsData([sdk.ResourceMetrics(source, [scoped], schema_url="")]))
    return sum(len(metric.data.data_points) for metric in sdk_metrics)


def main() -> int:
    """Serve one request: {options, run, part}, {options, transition} or {options, live}."""
    request = json.load(sys.stdin)
    options = SendOptions(**request["options"])
    if options.begun_ns is not None:
        setitimer(ITIMER_REAL, options.left + RESERVE_S)  # ends this process even where its parent was killed before
    logging.disable()  # the exporters may log headers; errors are reported below
    try:
        if "transition" in request:
            sent = {"spans": send_spans([spans.transition(**request["transition"])], options)}
        elif "live" in request:
            live = request["live"]
            measured = exported_metrics.gauges(live["points"], live["at_ns"])
            source = resource({"gatekeeper.manifest.sha256": live["manifest_sha256"]})
            sent = {"spans": 0, "points": _send_metrics(source, measured, options)}
        else:
            sent = asdict(export(Path(request["run"]), RunPart(**request["part"]), options))
    except GatekeeperError as error:
        sys.stdout.write(json.dumps({"because": error.message}))
        return 1
    sys.stdout.write(json.dumps(sent))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing is open any more, and unloading all these modules would use up a part of the limit
