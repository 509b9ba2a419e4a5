"""The wire: one OTLP request at a time, over HTTP or gRPC, and why a collector did not take it.

No request is sent twice here: the export at the end of the run is the second try.
"""

import gzip
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from gatekeeper.telemetry.destination import Route
from gatekeeper.terms.errors import GatekeeperError

Request = ExportTraceServiceRequest | ExportMetricsServiceRequest
SHOWN = 200
"""Characters of a collector's refusal that are passed on."""
METHODS: dict[type, str] = {
    ExportTraceServiceRequest: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    ExportMetricsServiceRequest: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}


class RefusedError(GatekeeperError):
    """A collector that is down, slow, or does not want what it was sent."""


class Wire:
    """Sends over one route until *deadline_ns*; whoever opens it closes it."""

    def __init__(self, route: Route, deadline_ns: int) -> None:
        self._route, self._deadline_ns = route, deadline_ns
        self._close: list[Callable[[], object]] = []
        try:
            self._post = self._grpc() if route.protocol == "grpc" else self._http()
        except OSError as error:  # a certificate that is not there, or is none
            raise self._refused(f"its certificates: {error.strerror or error}") from error

    def send(self, request: Request) -> None:
        """Send one request; raise RefusedError unless the collector took all of it."""
        seconds = (self._deadline_ns - time.monotonic_ns()) / 1e9
        if seconds <= 0:
            raise self._refused("the time for this export is over")
        answer = self._post(request, seconds).partial_success
        rejected = getattr(answer, "rejected_spans", 0) + getattr(answer, "rejected_data_points", 0)
        if rejected:
            raise self._refused(f"took a part and rejected {rejected}: {_line(answer.error_message)}")

    def _http(self) -> Callable[[Request, float], Any]:
        import httpx2  # noqa: PLC0415 (a route over gRPC has no use for it)

        route = self._route
        # A redirect is not followed: no header with a key goes elsewhere.
        client = httpx2.Client(verify=_trust(route) if route.secure else True, follow_redirects=False)
        self._close.append(client.close)
        headers = {**route.headers, "content-type": "application/x-protobuf"}
        headers |= {"content-encoding": "gzip"} if route.gzip else {}

        def post(request: Request, seconds: float) -> Any:
            body = request.SerializeToString()
            content = gzip.compress(body, 1) if route.gzip else body
            try:
                answer = client.post(route.address, content=content, headers=headers, timeout=seconds)
            except httpx2.TimeoutException as error:
                raise self._refused(f"no answer within {seconds:.1f} s") from error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise self._refused(_line(str(error)) or type(error).__name__) from error
            if not answer.is_success:
                raise self._refused(f"HTTP {answer.status_code} {answer.reason_phrase}".rstrip())
            try:
                return _read(request, answer.content, answer.headers.get("content-type", ""))
            except ValueError as error:
                raise self._refused(f"HTTP {answer.status_code}, but not in OTLP: is it a collector?") from error

        return post

    def _grpc(self) -> Callable[[Request, float], Any]:
        import grpc  # noqa: PLC0415 (a route over HTTP has no use for it)

        route = self._route
        packed = grpc.Compression.Gzip if route.gzip else grpc.Compression.NoCompression
        if route.secure:
            files = (route.certificate, route.client_key, route.client_certificate)
            credentials = grpc.ssl_channel_credentials(*(_bytes(file) for file in files))
            channel = grpc.secure_channel(route.address, credentials, compression=packed)
        else:
            channel = grpc.insecure_channel(route.address, compression=packed)
        self._close.append(channel.close)

        def post(request: Request, seconds: float) -> Any:
            call = channel.unary_unary(
                METHODS[type(request)],
                request_serializer=type(request).SerializeToString,
                response_deserializer=type(_answer(request)).FromString,
            )
            try:
                return call(request, timeout=seconds, metadata=tuple(route.headers.items()))
            except grpc.RpcError as error:
                raise self._refused(f"gRPC {error.code().name}: {_line(error.details() or '')}") from error

        return post

    def _refused(self, because: str) -> RefusedError:
        return RefusedError(
            f"{self._route.shown}: {because}", hint="the run is not touched by it; `gatekeeper export` sends it again"
        )

    def close(self) -> None:
        """Hang up."""
        while self._close:
            self._close.pop()()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self.close()


def _answer(request: Request) -> Any:
    return (
        ExportTraceServiceResponse()
        if isinstance(request, ExportTraceServiceRequest)
        else ExportMetricsServiceResponse()
    )


def _read(request: Request, content: bytes, kind: str) -> Any:
    """Return an HTTP answer as its message; raise ValueError for what no collector says. Nothing at all is consent."""
    from google.protobuf import json_format  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    answer = _answer(request)
    try:
        if kind.startswith("application/json"):
            return json_format.Parse(content, answer, ignore_unknown_fields=True)
        if content and not kind.startswith("application/x-protobuf"):
            raise ValueError(kind)
        answer.ParseFromString(content)
    except (DecodeError, json_format.ParseError) as error:
        raise ValueError(str(error)) from error
    return answer


def _line(text: str) -> str:
    return " ".join(text.split())[:SHOWN]


def _trust(route: Route) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=route.certificate)
    if route.client_certificate is not None:
        context.load_cert_chain(route.client_certificate, route.client_key)
    return context


def _bytes(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file is not None else None
