"""OTLP over gRPC: the SDK's public encoders on a channel of grpcio, which the extra `grpc` brings.

The SDK's own gRPC exporter shows no response to its caller, and would bring nothing else that is needed.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.re import parse_env_headers

from gatekeeper.core.text import quote
from gatekeeper.report.otel.endpoint import LOCAL, Signal
from gatekeeper.report.otel.transport import POINTS, Transport

TIMEOUT_S = 10.0
"""The limit of a request where neither a variable nor the caller sets it, as the exporters' specification says."""


def exporter(signal: Signal, seconds: float | None, transport: Transport) -> "_Exporter":
    """Return the exporter of a signal, which passes every response to *transport*."""
    return _Exporter(signal, seconds, transport)


class _Exporter:
    """Sends spans or metrics of one signal; a request is never sent twice."""

    def __init__(self, signal: Signal, seconds: float | None, transport: Transport) -> None:
        self._transport = transport
        option = _options(signal)
        self._seconds = seconds if seconds is not None else float(option("TIMEOUT") or TIMEOUT_S)
        self._metadata = tuple(parse_env_headers(option("HEADERS") or "", liberal=True).items())
        self._channel = _channel(option)
        self._stub = (TraceServiceStub if signal == "traces" else MetricsServiceStub)(self._channel)

    def export(self, batch: Any) -> None:
        """Send spans or metrics data; raise RefusedError unless the collector accepted all of it."""
        for request in _requests(batch):
            try:
                response = self._stub.Export(request, timeout=self._seconds, metadata=self._metadata)
            except grpc.RpcError as error:
                raise self._transport.refuse(f"gRPC {error.code().name}: {quote(error.details() or '')}") from error
            self._transport.accept(response)

    def shutdown(self) -> None:
        """Close the channel."""
        self._channel.close()


def _options(signal: Signal) -> Callable[[str], str | None]:
    """Return how a variable is read: that of the signal, or else the one of all signals."""

    def option(suffix: str) -> str | None:
        names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{suffix}", f"OTEL_EXPORTER_OTLP_{suffix}")
        return next((os.environ[name].strip() for name in names if os.environ.get(name)), None)

    return option


def _channel(option: Callable[[str], str | None]) -> grpc.Channel:
    endpoint = option("ENDPOINT") or LOCAL["grpc"]
    url = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    compression = grpc.Compression.Gzip if option("COMPRESSION") == "gzip" else grpc.Compression.NoCompression
    if url.scheme == "http" or (url.scheme != "https" and (option("INSECURE") or "").lower() == "true"):
        return grpc.insecure_channel(url.netloc, compression=compression)
    files = [_content(option(name)) for name in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")]
    return grpc.secure_channel(url.netloc, grpc.ssl_channel_credentials(*files), compression=compression)


def _content(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path is not None else None


def _requests(batch: Sequence[ReadableSpan] | sdk.MetricsData) -> Iterator[Any]:
    """Encode a batch; metrics as several requests of at most POINTS points each."""
    if not isinstance(batch, sdk.MetricsData):
        yield encode_spans(batch)
        return
    for resource in batch.resource_metrics:
        for scope in resource.scope_metrics:
            points = [(metric, point) for metric in scope.metrics for point in metric.data.data_points]
            for begin in range(0, len(points), POINTS):
                part = dataclasses.replace(scope, metrics=_group_points(points[begin : begin + POINTS]))
                yield encode_metrics(sdk.MetricsData([dataclasses.replace(resource, scope_metrics=[part])]))


def _group_points(points: Sequence[tuple[sdk.Metric, Any]]) -> list[sdk.Metric]:
    """Return metrics with these points of theirs."""
    by_metric: dict[str, tuple[Any, list[Any]]] = {}
    for metric, point in points:
        by_metric.setdefault(metric.name, (metric, []))[1].append(point)
    return [
        dataclasses.replace(metric, data=dataclasses.replace(metric.data, data_points=metric_points))
        for metric, metric_points in by_metric.values()
    ]
