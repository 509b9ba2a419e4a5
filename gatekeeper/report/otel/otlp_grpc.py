"""The exporters over gRPC, with an interceptor that checks the collector's responses."""

from typing import Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

from gatekeeper.core.text import quote
from gatekeeper.report.otel.endpoint import Signal
from gatekeeper.report.otel.transport import POINTS, Transport


def exporter(signal: Signal, seconds: float | None, transport: Transport) -> "_SpanExporter | _MetricExporter":
    """Return the exporter of a signal, which passes every response to *transport*."""
    if signal == "traces":
        return _SpanExporter(transport, timeout=seconds)
    return _MetricExporter(transport, timeout=seconds, max_export_batch_size=POINTS)


class _Interceptor(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Raises RefusedError for all but success: an exporter does not retry after an error that it does not know."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Pass a call on and check its response."""
        call = continuation(details, request)
        if call.code() is not grpc.StatusCode.OK:
            raise self._transport.refuse(f"gRPC {call.code().name}: {quote(call.details() or '')}")
        self._transport.accept(call.result())
        return call


class _Intercepted:
    """Adds the interceptor to the channel. If a later exporter opens its channel elsewhere, every export fails."""

    _stub: Any
    _channel: Any

    def __init__(self, transport: Transport, **options: Any) -> None:
        self._interceptor = _Interceptor(transport)
        super().__init__(**options)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[misc]
        self._client = self._stub(grpc.intercept_channel(self._channel, self._interceptor))


class _SpanExporter(_Intercepted, OTLPSpanExporter):
    pass


class _MetricExporter(_Intercepted, OTLPMetricExporter):
    pass
