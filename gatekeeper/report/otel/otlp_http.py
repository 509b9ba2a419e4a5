"""The exporters over HTTP, on a session that checks the collector's responses."""

from typing import Any

import requests
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gatekeeper.core.text import quote
from gatekeeper.report.otel.endpoint import Signal
from gatekeeper.report.otel.transport import POINTS, Transport

Response = ExportTraceServiceResponse | ExportMetricsServiceResponse


def exporter(signal: Signal, seconds: float | None, transport: Transport) -> OTLPSpanExporter | OTLPMetricExporter:
    """Return the exporter of a signal, which passes every response to *transport*."""
    if signal == "traces":
        return OTLPSpanExporter(timeout=seconds, session=_Session(ExportTraceServiceResponse, transport))
    session = _Session(ExportMetricsServiceResponse, transport)
    return OTLPMetricExporter(timeout=seconds, session=session, max_export_batch_size=POINTS)


class _Session(requests.Session):
    """Raises RefusedError for all but success: an exporter does not retry after an error that it does not know."""

    def __init__(self, kind: type[Response], transport: Transport) -> None:
        super().__init__()
        self._kind, self._transport = kind, transport

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request and return a response that accepted all of it."""
        if self.verify is not True:  # in requests, REQUESTS_CA_BUNDLE overrides the session's own `verify`
            kwargs["verify"] = self.verify
        try:
            response = super().request(*args, **kwargs)
        except requests.Timeout as error:
            raise self._transport.refuse(f"no response within {kwargs.get('timeout') or 0:.1f} s") from error
        except (OSError, ValueError) as error:  # errors of requests are OSErrors; their text has the whole address
            raise self._transport.refuse(_cause(error)) from error
        if not 200 <= response.status_code < 300:
            raise self._transport.refuse(f"HTTP {response.status_code} {quote(response.reason or '')}".rstrip())
        try:
            message = _read(self._kind(), response.content, response.headers.get("content-type", ""))
        except ValueError as error:
            refusal = f"HTTP {response.status_code}, but the response is not OTLP: is this a collector?"
            raise self._transport.refuse(refusal) from error
        self._transport.accept(message)
        return response


def _cause(error: BaseException) -> str:
    """Return the system's message at the bottom of a chain of errors, else the error's class."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
        below = below.__cause__ or below.__context__
    return type(error).__name__


def _read(response: Response, content: bytes, content_type: str) -> Response:
    """Return a response as its message; raise ValueError where it is not OTLP. An empty one is success."""
    try:
        if content_type.startswith("application/json"):
            json_format.Parse(content, response, ignore_unknown_fields=True)
        elif content and not content_type.startswith("application/x-protobuf"):
            raise ValueError(content_type)
        else:
            response.ParseFromString(content)
    except (DecodeError, json_format.ParseError) as error:
        raise ValueError(str(error)) from error
    return response
