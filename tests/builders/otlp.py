"""An OTLP collector in this process, over HTTP and gRPC: it decodes protobuf and keeps what it took."""

import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

KINDS: dict[str, tuple[Any, Any]] = {
    "traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
}

STATUS = {"refuse": 400, "busy": 503, "move": 302}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    content = getattr(value, kind)
    return [value_of(value) for value in content.values] if kind == "array_value" else content


def told(attributes: Any) -> dict[str, Any]:
    """Return attributes as a dict."""
    return {attribute.key: value_of(attribute.value) for attribute in attributes}


@dataclass
class Receiver:
    """What a collector took, and how it behaves."""

    manner: str = "take"
    """take | refuse (HTTP 400, gRPC UNAVAILABLE) | busy (HTTP 503) | move (HTTP 302) | hang | trickle (it never ends) |
    partial | chat (an HTML page with status 200)"""
    url: str = ""
    asked: int = 0
    """How many requests came, taken or not."""
    requests: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    look: Callable[[], None] | None = None
    """Called whenever a request came."""

    @property
    def spans(self) -> list[Span]:
        traces = [request for request in self.requests if isinstance(request, ExportTraceServiceRequest)]
        return [s for export in traces for r in export.resource_spans for scoped in r.scope_spans for s in scoped.spans]

    @property
    def metrics(self) -> list[Metric]:
        exports = [request for request in self.requests if isinstance(request, ExportMetricsServiceRequest)]
        return [
            m
            for export in exports
            for r in export.resource_metrics
            for scoped in r.scope_metrics
            for m in scoped.metrics
        ]

    @property
    def resources(self) -> list[dict[str, Any]]:
        attributes = []
        for request in self.requests:
            resources = (
                request.resource_spans if isinstance(request, ExportTraceServiceRequest) else request.resource_metrics
            )
            attributes += [told(each.resource.attributes) for each in resources]
        return attributes

    def points(self, name: str) -> list[Any]:
        """Return every data point of the metrics called *name*."""
        return [
            point
            for metric in self.metrics
            if metric.name == name
            for point in getattr(metric, str(metric.WhichOneof("data"))).data_points
        ]

    def by_id(self) -> dict[bytes, Span]:
        return {span.span_id: span for span in self.spans}

    def answer(self, kind: str) -> Any:
        reply = KINDS[kind][1]()
        if self.manner == "partial":
            name = "rejected_spans" if kind == "traces" else "rejected_data_points"
            setattr(reply.partial_success, name, 2)
            reply.partial_success.error_message = "too old"
        return reply


class Handler(BaseHTTPRequestHandler):
    """Answers as its receiver's manner says."""

    receiver: Receiver

    def do_POST(self) -> None:
        kind = self.path.rpartition("/")[2]
        self.receiver.asked += 1
        if self.receiver.look is not None:
            self.receiver.look()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        if self.receiver.manner == "hang":
            self.receiver.over.wait(60)
            return
        if self.receiver.manner == "trickle":
            self.trickle()
        elif self.receiver.manner in STATUS:
            self.say(STATUS[self.receiver.manner], "text/plain", b"no")
        elif self.receiver.manner == "chat":
            self.say(200, "text/html", b"<h1>Welcome</h1>")
        else:
            assert self.headers["Content-Type"] == "application/x-protobuf"
            self.receiver.requests.append(KINDS[kind][0].FromString(body))
            self.receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.say(200, "application/x-protobuf", self.receiver.answer(kind).SerializeToString())

    def say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", f"{self.receiver.url}/v1/elsewhere")
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def trickle(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):  # we are left
            while not self.receiver.over.wait(0.05):
                self.wfile.write(b" ")

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def over_http(manner: str = "take", certificate: Path | None = None) -> Iterator[Receiver]:
    """Serve /v1/traces and /v1/metrics, over TLS with a certificate."""
    receiver = Receiver(manner)

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Handler,), {"receiver": receiver}))
    server.daemon_threads = True
    if certificate is not None:
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(certificate)
        server.socket = secure.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def over_grpc(manner: str = "take", certificate: Path | None = None) -> Iterator[Receiver]:
    """Serve the two Export methods, over TLS with a certificate."""
    receiver = Receiver(manner)

    def method(kind: str) -> Any:
        def take(request: Any, context: Any) -> Any:
            receiver.asked += 1
            if receiver.manner == "hang":
                receiver.over.wait(60)
            if receiver.manner == "refuse":
                context.abort(grpc.StatusCode.UNAVAILABLE, "come back later")
            receiver.requests.append(request)
            receiver.headers.append(dict(context.invocation_metadata()))
            return receiver.answer(kind)

        message, reply = KINDS[kind]
        return grpc.unary_unary_rpc_method_handler(take, message.FromString, reply.SerializeToString)

    server = grpc.server(ThreadPoolExecutor(4))
    stem = "opentelemetry.proto.collector"
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(f"{stem}.trace.v1.TraceService", {"Export": method("traces")}),
            grpc.method_handlers_generic_handler(f"{stem}.metrics.v1.MetricsService", {"Export": method("metrics")}),
        )
    )
    if certificate is None:
        receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        text = certificate.read_bytes()
        credentials = grpc.ssl_server_credentials([(text, text)])
        receiver.url = f"https://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.stop(None).wait()


def events_of(run: Any, kind: str) -> list[dict[str, Any]]:
    """Return the details of a run's events of one kind."""
    lines = (run / "events.jsonl").read_text().splitlines()
    return [event["detail"] for event in map(json.loads, lines) if event.get("kind") == kind]
