"""The points: histograms and counters of a stage's requests, and the host's values, all computed from the records.

A stage is a stream of its own, complete when it is sent: cumulative from the stage's first request to its last, so
sending it again changes nothing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from opentelemetry.sdk.metrics import export as sdk

from gatekeeper.core.records import Generation, HostSample
from gatekeeper.report.otel import names as conventions
from gatekeeper.report.otel.identity import Frame, Value, error_type, known, shift_ns, span_of, speculation, wall_ns
from gatekeeper.report.otel.names import Counter, Histogram, HostMetric, Names
from gatekeeper.report.otel.spans import stage_of

Key = tuple[tuple[str, Value], ...]
CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE


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
        self.counters: dict[Counter, dict[Key, int]] = {}

    def note(self, histogram: Histogram, key: Mapping[str, Value], *values: float) -> None:
        mine = self.buckets.setdefault(histogram, {})
        buckets = mine.setdefault(tuple(key.items()), _Buckets(histogram.bounds))
        for value in values:
            buckets.add(value)

    def count(self, counter: Counter, key: Mapping[str, Value], number: int) -> None:
        mine = self.counters.setdefault(counter, {})
        mine[tuple(key.items())] = mine.get(tuple(key.items()), 0) + number


def of_requests(frame: Frame, made: Iterable[tuple[str, Generation]], *, latest: bool) -> list[sdk.Metric]:
    """Return the metrics of requests (record file, record), each stage within its own times.

    A request whose times can not be told has no span and counts nowhere.
    """
    stages: dict[str, list[tuple[Generation, int]]] = {}
    for file, one in made:
        if (shift := shift_ns(one)) is not None:
            stages.setdefault(stage_of(file), []).append((one, shift))
    names = conventions.names(latest=latest)
    histograms: dict[Histogram, list[sdk.HistogramDataPoint]] = {}
    counters: dict[Counter, list[sdk.NumberDataPoint]] = {}
    for name, requests in stages.items():
        times = span_of((one.answer.sent_ns + shift, one.answer.ended_ns + shift) for one, shift in requests)
        if times is not None:
            tally = _Tally()
            for one, _ in requests:
                _take(frame, tally, names, name, one)
            for histogram, buckets in tally.buckets.items():
                histograms.setdefault(histogram, []).extend(_distributions(buckets, times))
            for counter, numbers in tally.counters.items():
                counters.setdefault(counter, []).extend(_numbers(numbers, times))
    return [
        *(sdk.Metric(one.name, None, one.unit, sdk.Histogram(some, CUMULATIVE)) for one, some in histograms.items()),
        *(sdk.Metric(one.name, None, one.unit, _counted(some)) for one, some in counters.items()),
    ]


def _take(frame: Frame, tally: _Tally, names: Names, stage: str, one: Generation) -> None:
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
    for tokens, count in ((names.input_tokens, answer.prompt_tokens), (names.output_tokens, answer.output_tokens)):
        if count is not None:
            tally.note(tokens.histogram, {**key, **dict(tokens.attributes)}, count)
            if tokens.usage is not None:
                tally.count(tokens.usage, {**key, "gen_ai.token.modality": "text"}, count)
    said = speculation(one, frame.manifest.backend)
    counted = {} if said is None else asdict(said)
    sourced = key | {"gatekeeper.speculative.source": counted.get("source")}
    for name, counter in conventions.SPECULATION.items():
        if counted.get(name) is not None:
            tally.count(counter, sourced, counted[name])


def _distributions(by_key: Mapping[Key, _Buckets], times: tuple[int, int]) -> list[sdk.HistogramDataPoint]:
    return [
        sdk.HistogramDataPoint(
            attributes=known(dict(key)),
            start_time_unix_nano=times[0],
            time_unix_nano=times[1],
            count=sum(buckets.counts),
            sum=buckets.total,
            bucket_counts=buckets.counts,
            explicit_bounds=buckets.bounds,
            min=buckets.least,
            max=buckets.most,
        )
        for key, buckets in by_key.items()
    ]


def _numbers(by_key: Mapping[Key, int], times: tuple[int, int]) -> list[sdk.NumberDataPoint]:
    return [sdk.NumberDataPoint(known(dict(key)), *times, number) for key, number in by_key.items()]


def _counted(points: Sequence[sdk.NumberDataPoint]) -> sdk.Sum:
    return sdk.Sum(points, CUMULATIVE, is_monotonic=True)


def of_host(frame: Frame, samples: Sequence[HostSample]) -> list[sdk.Metric]:
    """Return the host's values, one point a sample; a value that was not there has no point, never a zero."""
    found: dict[str, tuple[HostMetric, list[sdk.NumberDataPoint]]] = {}
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
            point = sdk.NumberDataPoint(
                attributes=known({**said, "gatekeeper.host.sources": reading.source}),
                # A level is what it is since the run began to watch it; a gauge has no beginning.
                start_time_unix_nano=min(frozen, at) if named.kind == "level" else 0,
                time_unix_nano=at,
                value=float(reading.value),
            )
            found.setdefault(named.name, (named, []))[1].append(point)
    return [sdk.Metric(named.name, None, named.unit, _of_kind(named, points)) for named, points in found.values()]


def _of_kind(named: HostMetric, points: Sequence[sdk.NumberDataPoint]) -> sdk.Gauge | sdk.Sum:
    return sdk.Gauge(points) if named.kind == "gauge" else sdk.Sum(points, CUMULATIVE, is_monotonic=False)
