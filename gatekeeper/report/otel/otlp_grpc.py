"""The exporters over gRPC, with an interceptor that hears what a collector answers."""

from typing import Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

from gatekeeper.core.text import quote
from gatekeeper.report.otel.endpoint import Signal
from gatekeeper.report.otel.transport import POINTS, Wire


def exporter(signal: Signal, seconds: float | None, wire: Wire) -> "_Spans | _Metrics":
    """Return the exporter of a signal, which tells the wire every answer."""
    if signal == "traces":
        return _Spans(wire, timeout=seconds)
    return _Metrics(wire, timeout=seconds, max_export_batch_size=POINTS)


class _Ear(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Raises RefusedError for all but consent: an exporter tries nothing again after an error that it does not know."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Pass a call on and look at its answer."""
        call = continuation(details, request)
        if call.code() is not grpc.StatusCode.OK:
            raise self._wire.refuse(f"gRPC {call.code().name}: {quote(call.details() or '')}")
        self._wire.take(call.result())
        return call


class _Overheard:
    """Puts the ear into the channel. Should a later exporter open its channel elsewhere, nothing counts as taken."""

    _stub: Any
    _channel: Any

    def __init__(self, wire: Wire, **how: Any) -> None:
        self._ear = _Ear(wire)
        super().__init__(**how)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[misc]
        self._client = self._stub(grpc.intercept_channel(self._channel, self._ear))


class _Spans(_Overheard, OTLPSpanExporter):
    pass


class _Metrics(_Overheard, OTLPMetricExporter):
    pass
