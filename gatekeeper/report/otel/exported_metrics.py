"""The metrics: histograms and counters of a stage's requests, and the host's values, all computed from the records.

A stage is a stream of its own, complete when it is sent and cumulative from its first request to its last, so sending
it again changes nothing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opentelemetry.sdk.metrics import export as sdk

from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.core.records import Generation, HostSample
from gatekeeper.report.otel import metric_names
from gatekeeper.report.otel.answer_attributes import error_type, shift_ns, span_of, speculation, wall_ns
from gatekeeper.report.otel.identity import RunIdentity, Value, drop_unknown
from gatekeeper.report.otel.metric_names import Counter, Histogram
from gatekeeper.report.otel.spans import stage_of

CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE
Attributes = Mapping[str, Value]
Measured = tuple[Histogram | Counter, Attributes, Sequence[float]]
"""What one answer adds to a metric: values for a histogram, or one number for a counter."""


def of_requests(identity: RunIdentity, answers: Iterable[tuple[str, Generation]], *, latest: bool) -> list[sdk.Metric]:
    """Return the metrics of requests (record file, record), each stage within its own times.

    A request whose times are unknown has no span and is not counted.
    """
    stages: dict[str, list[tuple[Generation, int]]] = {}
    for file, generation in answers:
        if (shift := shift_ns(generation)) is not None:
            stages.setdefault(stage_of(file), []).append((generation, shift))
    names = metric_names.request_metrics(latest=latest)
    histograms: dict[Histogram, list[sdk.HistogramDataPoint]] = {}
    counters: dict[Counter, list[sdk.NumberDataPoint]] = {}
    for stage, requests in stages.items():
        times = span_of(
            (generation.answer.sent_ns + shift, generation.answer.ended_ns + shift) for generation, shift in requests
        )
        if times is None:
            continue
        gathered: dict[tuple[Histogram | Counter, tuple[tuple[str, Value], ...]], list[float]] = {}
        for generation, _ in requests:
            for metric, attributes, values in _measure_answer(identity, names, stage, generation):
                gathered.setdefault((metric, tuple(attributes.items())), []).extend(values)
        for (metric, key), every in gathered.items():
            if isinstance(metric, Histogram):
                histograms.setdefault(metric, []).append(_histogram_point(metric, dict(key), times, every))
            else:
                point = sdk.NumberDataPoint(drop_unknown(dict(key)), *times, round(sum(every)))
                counters.setdefault(metric, []).append(point)
    return [
        *(
            sdk.Metric(metric.name, None, metric.unit, sdk.Histogram(points, CUMULATIVE))
            for metric, points in histograms.items()
        ),
        *(
            sdk.Metric(metric.name, None, metric.unit, sdk.Sum(points, CUMULATIVE, is_monotonic=True))
            for metric, points in counters.items()
        ),
    ]


def _measure_answer(
    identity: RunIdentity, names: metric_names.RequestMetrics, stage: str, generation: Generation
) -> Iterator[Measured]:
    """Yield what one answer adds to each metric."""
    answer = generation.answer
    shared: dict[str, Value] = {
        **drop_unknown({**identity.model, **identity.server(generation.arm)}),
        "gatekeeper.stage": stage,
        "gatekeeper.trial": generation.trial,
        "gatekeeper.arm": generation.arm,
        "gatekeeper.workload": generation.workload,
        "gatekeeper.role": generation.role.value,
    }
    failed: dict[str, Value] = {} if answer.fault is None else {"error.type": error_type(answer.fault)}
    yield names.duration, shared | failed, [answer.seconds]
    if (first := ttft(answer)) is not None:
        yield names.first_chunk, shared, [first]
        if gaps := [gap / 1e9 for gap in answer.columns.gaps_ns()]:
            yield names.output_chunk, shared, gaps
        if identity.in_process and answer.fault is None:
            yield names.first_token, shared, [first]
            if answer.output_tokens is not None and answer.output_tokens > 1:
                yield names.output_token, shared, [answer.columns.seconds() / (answer.output_tokens - 1)]
    for tokens, count in ((names.input_tokens, answer.prompt_tokens), (names.output_tokens, answer.output_tokens)):
        if count is not None:
            yield tokens.histogram, {**shared, **dict(tokens.attributes)}, [count]
            if tokens.usage is not None:
                yield tokens.usage, {**shared, "gen_ai.token.modality": "text"}, [count]
    counted = speculation(generation, identity.manifest.backend)
    sourced = {**shared, "gatekeeper.speculative.source": counted.get("source")}
    for name, counter in metric_names.SPECULATION.items():
        if isinstance(number := counted.get(name), int):
            yield counter, sourced, [number]


def _histogram_point(
    histogram: Histogram, attributes: Mapping[str, Value], times: tuple[int, int], values: Sequence[float]
) -> sdk.HistogramDataPoint:
    counts = [0] * (len(histogram.bounds) + 1)
    for value in values:
        counts[bisect_left(histogram.bounds, value)] += 1  # a bucket includes its upper bound
    return sdk.HistogramDataPoint(
        attributes=drop_unknown(attributes),
        start_time_unix_nano=times[0],
        time_unix_nano=times[1],
        count=len(values),
        sum=sum(values, 0.0),
        bucket_counts=counts,
        explicit_bounds=histogram.bounds,
        min=min(values),
        max=max(values),
    )


def of_host(identity: RunIdentity, samples: Sequence[HostSample]) -> list[sdk.Metric]:
    """Return the host's values, one point per sample; a missing value has no point, never a zero."""
    points_by_name: dict[str, tuple[metric_names.HostMetric, list[sdk.NumberDataPoint]]] = {}
    frozen = wall_ns(identity.manifest.frozen_at) or 0
    for sample in samples:
        at_ns = wall_ns(sample.at)
        if at_ns is None:
            continue
        for value, reading in sample.values.items():
            if reading.status != "ok" or not isinstance(reading.value, int | float):
                continue
            metric = metric_names.host_metric(value, reading.unit)
            attributes: dict[str, Value] = {**dict(metric.attributes), "gatekeeper.stage": sample.phase or None}
            point = sdk.NumberDataPoint(
                attributes=drop_unknown({**attributes, "gatekeeper.host.sources": reading.source}),
                # A level counts from the beginning of the run; a gauge has no beginning.
                start_time_unix_nano=min(frozen, at_ns) if metric.kind == "level" else 0,
                time_unix_nano=at_ns,
                value=float(reading.value),
            )
            points_by_name.setdefault(metric.name, (metric, []))[1].append(point)
    return [
        sdk.Metric(
            metric.name,
            None,
            metric.unit,
            sdk.Gauge(points) if metric.kind == "gauge" else sdk.Sum(points, CUMULATIVE, is_monotonic=False),
        )
        for metric, points in points_by_name.values()
    ]


def gauges(points: Iterable[tuple[str, str, float, Mapping[str, str]]], at_ns: int) -> list[sdk.Metric]:
    """Return one gauge a name, with a point for each value and its attributes."""
    by_gauge: dict[tuple[str, str], list[sdk.NumberDataPoint]] = {}
    for name, unit, value, attributes in points:
        point = sdk.NumberDataPoint(dict(attributes), 0, at_ns, value)
        by_gauge.setdefault((name, unit), []).append(point)
    return [sdk.Metric(name, None, unit, sdk.Gauge(gauge_points)) for (name, unit), gauge_points in by_gauge.items()]
