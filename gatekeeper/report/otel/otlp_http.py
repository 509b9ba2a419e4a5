"""The exporters over HTTP, on a session that understands what a collector answers."""

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
from gatekeeper.report.otel.transport import POINTS, Wire

Answer = ExportTraceServiceResponse | ExportMetricsServiceResponse


def exporter(signal: Signal, seconds: float | None, wire: Wire) -> OTLPSpanExporter | OTLPMetricExporter:
    """Return the exporter of a signal, which tells the wire every answer."""
    if signal == "traces":
        return OTLPSpanExporter(timeout=seconds, session=_Session(ExportTraceServiceResponse, wire))
    session = _Session(ExportMetricsServiceResponse, wire)
    return OTLPMetricExporter(timeout=seconds, session=session, max_export_batch_size=POINTS)


class _Session(requests.Session):
    """Raises RefusedError for all but consent: an exporter tries nothing again after an error that it does not know."""

    def __init__(self, kind: type[Answer], wire: Wire) -> None:
        super().__init__()
        self._kind, self._wire = kind, wire

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request and return an answer that took all of it."""
        if self.verify is not True:  # a session's own trust counts less to requests than REQUESTS_CA_BUNDLE
            kwargs["verify"] = self.verify
        try:
            answer = super().request(*args, **kwargs)
        except requests.Timeout as error:
            raise self._wire.refuse(f"no answer within {kwargs.get('timeout') or 0:.1f} s") from error
        except (OSError, ValueError) as error:  # requests' own are OSErrors; their text shows the whole address
            raise self._wire.refuse(_cause(error)) from error
        if not 200 <= answer.status_code < 300:
            raise self._wire.refuse(f"HTTP {answer.status_code} {quote(answer.reason or '')}".rstrip())
        try:
            said = _read(self._kind(), answer.content, answer.headers.get("content-type", ""))
        except ValueError as error:
            raise self._wire.refuse(f"HTTP {answer.status_code}, but not in OTLP: is it a collector?") from error
        self._wire.take(said)
        return answer


def _cause(error: BaseException) -> str:
    """Return what the system said at the bottom of a chain of errors, else the error's kind."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
        below = below.__cause__ or below.__context__
    return type(error).__name__


def _read(answer: Answer, content: bytes, kind: str) -> Answer:
    """Return an answer as its message; raise ValueError for what no collector says. Nothing at all is consent."""
    try:
        if kind.startswith("application/json"):
            json_format.Parse(content, answer, ignore_unknown_fields=True)
        elif content and not kind.startswith("application/x-protobuf"):
            raise ValueError(kind)
        else:
            answer.ParseFromString(content)
    except (DecodeError, json_format.ParseError) as error:
        raise ValueError(str(error)) from error
    return answer
