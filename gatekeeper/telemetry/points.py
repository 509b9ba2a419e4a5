"""The points: histograms and counters of a stage's requests, and the host's values, all computed from the records.

A stage is a stream of its own, complete when it is sent: cumulative from the stage's first request to its last, so
sending it again changes nothing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from gatekeeper.telemetry import conventions
from gatekeeper.telemetry.conventions import Histogram, Histograms, HostMetric
from gatekeeper.telemetry.frame import (
    Frame,
    Value,
    attributes,
    error_type,
    shift_ns,
    span_of,
    speculation,
    wall_ns,
)
from gatekeeper.telemetry.spans import stage_of
from gatekeeper.terms.records import Generation, HostSample

Key = tuple[tuple[str, Value], ...]
CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE


@dataclass(slots=True)
class _Buckets:
    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")

    def add(self, value: float) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1  # a bucket includes its upper bound
        self.total, self.least, self.most = self.total + value, min(self.least, value), max(self.most, value)


class _Tally:
    """The sums of one stage, by metric and attributes."""

    def __init__(self) -> None:
        self.buckets: dict[Histogram, dict[Key, _Buckets]] = {}
        self.counters: dict[str, dict[Key, int]] = {}

    def note(self, histogram: Histogram, key: Mapping[str, Value], *values: float) -> None:
        mine = self.buckets.setdefault(histogram, {})
        buckets = mine.setdefault(tuple(key.items()), _Buckets(histogram.bounds))
        for value in values:
            buckets.add(value)

    def count(self, name: str, key: Mapping[str, Value], number: int) -> None:
        mine = self.counters.setdefault(name, {})
        mine[tuple(key.items())] = mine.get(tuple(key.items()), 0) + number


def of_requests(frame: Frame, made: Iterable[tuple[str, Generation]], *, latest: bool) -> list[pb.Metric]:
    """Return the metrics of requests (record file, record), each stage within its own times.

    A request whose times can not be told has no span and counts nowhere.
    """
    stages: dict[str, list[tuple[Generation, int]]] = {}
    for file, one in made:
        if (shift := shift_ns(one)) is not None:
            stages.setdefault(stage_of(file), []).append((one, shift))
    names = conventions.histograms(latest=latest)
    found: dict[str, pb.Metric] = {}
    for name, requests in stages.items():
        times = span_of((one.answer.sent_ns + shift, one.answer.ended_ns + shift) for one, shift in requests)
        if times is not None:
            tally = _Tally()
            for one, _ in requests:
                _take(frame, tally, names, name, one)
            _write(found, tally, times)
    return list(found.values())


def _take(frame: Frame, tally: _Tally, names: Histograms, stage: str, one: Generation) -> None:
    answer = one.answer
    key: dict[str, Value] = {
        **{name: value for name, value in frame.model.items() if value is not None},
        "gatekeeper.stage": stage,
        "gatekeeper.trial": one.trial,
        "gatekeeper.arm": one.arm,
        "gatekeeper.workload": one.workload,
        "gatekeeper.role": one.role.value,
    }
    failed: dict[str, Value] = {} if answer.fault is None else {"error.type": error_type(answer.fault)}
    tally.note(names.duration, key | failed, (answer.ended_ns - answer.sent_ns) / 1e9)
    times = [piece.at_ns for piece in answer.arrivals]
    if times:
        tally.note(names.first_chunk, key, (times[0] - answer.sent_ns) / 1e9)
        if len(times) > 1:
            tally.note(names.output_chunk, key, *((after - before) / 1e9 for before, after in pairwise(times)))
    if times and frame.in_process and answer.fault is None:
        tally.note(names.first_token, key, (times[0] - answer.sent_ns) / 1e9)
        if answer.output_tokens is not None and answer.output_tokens > 1:
            tally.note(names.output_token, key, (times[-1] - times[0]) / 1e9 / (answer.output_tokens - 1))
    for histogram, kind, count in (
        (names.input_tokens, "input", answer.prompt_tokens),
        (names.output_tokens, "output", answer.output_tokens),
    ):
        if count is not None:
            typed: dict[str, Value] = {"gen_ai.token.type": kind} if names.token_type else {}
            tally.note(histogram, key | typed, count)
    said = speculation(one, frame.manifest.backend)
    counted = {} if said is None else asdict(said)
    sourced = key | {"gatekeeper.speculative.source": counted.get("source")}
    for name in conventions.COUNTERS:
        if counted.get(name) is not None:
            tally.count(name, sourced, counted[name])


def _write(found: dict[str, pb.Metric], tally: _Tally, times: tuple[int, int]) -> None:
    start, end = times
    for histogram, by_key in tally.buckets.items():
        metric = found.setdefault(histogram.name, pb.Metric(name=histogram.name, unit=histogram.unit))
        metric.histogram.aggregation_temporality = CUMULATIVE
        for key, buckets in by_key.items():
            metric.histogram.data_points.add(
                attributes=attributes(dict(key)),
                start_time_unix_nano=start,
                time_unix_nano=end,
                count=sum(buckets.counts),
                sum=buckets.total,
                min=buckets.least,
                max=buckets.most,
                bucket_counts=buckets.counts,
                explicit_bounds=buckets.bounds,
            )
    for counter, numbers in tally.counters.items():
        name = f"gatekeeper.speculative.{counter}"
        metric = found.setdefault(name, pb.Metric(name=name, unit=conventions.COUNTERS[counter]))
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = CUMULATIVE, True
        for key, number in numbers.items():
            metric.sum.data_points.add(
                attributes=attributes(dict(key)), start_time_unix_nano=start, time_unix_nano=end, as_int=number
            )


def of_host(frame: Frame, samples: Sequence[HostSample]) -> list[pb.Metric]:
    """Return the host's values, one point a sample; a value that was not there has no point, never a zero."""
    found: dict[str, pb.Metric] = {}
    frozen = wall_ns(frame.manifest.frozen_at) or 0
    for sample in samples:
        at = wall_ns(sample.at)
        if at is None:
            continue
        for value, reading in sample.values.items():
            if reading.status != "ok" or not isinstance(reading.value, int | float):
                continue
            named = conventions.host_metric(value, reading.unit)
            said: dict[str, Value] = {**dict(named.attributes), "gatekeeper.stage": sample.phase or None}
            points = _host_points(found, named)
            points.add(
                attributes=attributes({**said, "gatekeeper.host.source": reading.source}),
                # A level is what it is since the run began to watch it; a gauge has no beginning.
                start_time_unix_nano=min(frozen, at) if named.kind == "level" else 0,
                time_unix_nano=at,
                as_double=float(reading.value),
            )
    return list(found.values())


def _host_points(found: dict[str, pb.Metric], named: HostMetric) -> Any:
    metric = found.setdefault(named.name, pb.Metric(name=named.name, unit=named.unit))
    if named.kind == "gauge":
        return metric.gauge.data_points
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = CUMULATIVE, False
    return metric.sum.data_points


def size(metric: pb.Metric) -> int:
    """Return how many points a metric holds."""
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)


def batches(metrics: Iterable[pb.Metric], most: int) -> list[list[pb.Metric]]:
    """Share metrics out so that no batch holds more than *most* points; a long one is cut."""
    out: list[list[pb.Metric]] = [[]]
    room = most
    for metric in metrics:
        kind = str(metric.WhichOneof("data"))
        points = getattr(metric, kind).data_points
        begun = 0
        while begun < len(points):
            taken = min(room, len(points) - begun)
            part = pb.Metric()
            part.CopyFrom(metric)
            kept = getattr(part, kind).data_points
            del kept[begun + taken :]
            del kept[:begun]
            out[-1].append(part)
            begun, room = begun + taken, room - taken
            if room == 0:
                out.append([])
                room = most
    return [batch for batch in out if batch]
