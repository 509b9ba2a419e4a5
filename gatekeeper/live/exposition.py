"""What a watch and a proxy show of themselves: Prometheus text, a file for the node exporter, OpenTelemetry gauges."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import InputError
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.system.small_server import SmallHandler, SmallServer
from gatekeeper.live.live_evidence import Benefit
from gatekeeper.live.live_records import EndedRequest, LiveRecords
from gatekeeper.live.overlay import Overlay
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.live.running.certified_run import CertifiedRun
from gatekeeper.report.otel import live_export
from gatekeeper.report.otel.metric_names import FIRST_TOKEN_SECONDS, SECONDS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
EVERY_S = 60.0
"""Seconds from one report of the holdout to the next."""
WATCH = "gatekeeper_watch"
WATCH_GAUGES = {
    "speculation": ("1 while the workload may speculate, else 0.", ("slo", "workload")),
    "looked_timestamp_seconds": ("Time of the last round.", ("slo",)),
    "next_look_before_timestamp_seconds": (
        "Time of the next round at the latest; after it readers decode plainly.",
        ("slo",),
    ),
    "policy_expires_timestamp_seconds": ("Time at which the policy expires; after it nothing may speculate.", ("slo",)),
    "ended": ("1 if the watch has ended, else 0.", ("slo",)),
}
"""Every gauge of a watch, without its prefix: its help text and its labels."""
PROXY = "gatekeeper_proxy"
PROXY_GAUGES = {
    "in_flight": ("Generating requests in flight", ()),
    "speculates": ("1 where the route may speculate now", ("workload",)),
    "drawn": ("Answers of each arm in the window", ("workload", "arm")),
    "conversations": ("Conversations of each arm in the window", ("workload", "arm")),
    "in_flight_met": (
        "Answers in flight at the server of an answer, itself included, in the mean of an arm",
        ("workload", "arm"),
    ),
    "ratio": (
        "Speculative over holdout, with the ends of an interval that holds at every moment",
        ("workload", "of", "end"),
    ),
}
"""The same of a proxy; a ratio that is not bounded yet has no value."""
WITHOUT_UNIT = frozenset({"ratio", "speculates"})
"""Gauges that count no requests, for a collector."""


class Point(NamedTuple):
    """The value of a gauge now."""

    gauge: str
    value: float
    labels: Mapping[str, str]


def watch_points(overlay: Overlay, expires: datetime) -> Iterator[Point]:
    """Yield the state that *overlay* holds, of a policy that *expires* then."""
    shared = {"slo": overlay.slo}
    for route in overlay.routes:
        yield Point("speculation", float(route.speculation), {**shared, "workload": route.workload})
    yield Point("looked_timestamp_seconds", overlay.at.timestamp(), shared)
    yield Point("next_look_before_timestamp_seconds", overlay.next_look_before.timestamp(), shared)
    yield Point("policy_expires_timestamp_seconds", expires.timestamp(), shared)
    yield Point("ended", float(overlay.ended is not None), shared)


def proxy_points(routes: RequestRoutes) -> Iterator[Point]:
    """Yield what is in flight, which routes may speculate, and what the holdout shows of every workload."""
    yield Point("in_flight", float(routes.in_flight), {})
    for name, route in routes.routes.items():
        now = route.speculation and not routes.is_stale and not routes.not_plain
        yield Point("speculates", float(now), {"workload": name})
    for benefit in benefits(routes):
        workload = {"workload": benefit.workload}
        for gauge, by_arm in (
            ("drawn", benefit.answers),
            ("conversations", benefit.conversations),
            ("in_flight_met", benefit.in_flight),
        ):
            for arm, value in by_arm.items():
                yield Point(gauge, float(value), {**workload, "arm": arm})
        for measure, end, value in benefit.ends():
            yield Point("ratio", value, {**workload, "of": measure, "end": end})


def benefits(routes: RequestRoutes) -> list[Benefit]:
    """Return what the live requests of each workload show, where any was drawn."""
    shown = (routes.evidence.benefit(workload) for workload in routes.routes)
    return [benefit for benefit in shown if benefit is not None]


class _Gauges(Collector):
    """Gauges whose values are read when the text is fetched."""

    def __init__(
        self, prefix: str, gauges: Mapping[str, tuple[str, tuple[str, ...]]], points: Callable[[], Iterable[Point]]
    ) -> None:
        self._prefix, self._gauges, self._points = prefix, gauges, points

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every gauge, one without a value too."""
        families = {
            name: GaugeMetricFamily(f"{self._prefix}_{name}", about, labels=labels)
            for name, (about, labels) in self._gauges.items()
        }
        for gauge, value, labels in self._points():
            families[gauge].add_metric([labels[name] for name in self._gauges[gauge][1]], value)
        yield from families.values()


def render_watch(overlay: Overlay, expires: datetime) -> str:
    """Return the state of a watch as text."""
    registry = CollectorRegistry()
    registry.register(_Gauges(WATCH, WATCH_GAUGES, lambda: watch_points(overlay, expires)))
    return generate_latest(registry).decode()


class Exposition:
    """Counts the requests of a proxy that have ended."""

    def __init__(self, routes: RequestRoutes, watch_text: Callable[[], str] = str) -> None:
        """Show *routes*; *watch_text* returns the text of the proxy's watch."""
        self._watch_text, self._registry = watch_text, CollectorRegistry()
        counter, histogram = partial(Counter, registry=self._registry), partial(Histogram, registry=self._registry)
        labels = ("workload", "route")
        self._requests = counter(f"{PROXY}_requests", "Requests that have ended", (*labels, "rule", "status"))
        self._faults = counter(f"{PROXY}_faults", "Requests that failed", labels)
        self._tokens = counter(f"{PROXY}_completion_tokens", "Tokens that servers reported", labels)
        about = "Plain answers for which a server drafted tokens, as it says itself"
        self._not_plain = counter(f"{PROXY}_not_plain", about, labels[:1])
        about = "From a request's arrival to its"
        self._ttft = histogram(f"{PROXY}_ttft_seconds", f"{about} first text", labels, buckets=FIRST_TOKEN_SECONDS)
        self._duration = histogram(f"{PROXY}_duration_seconds", f"{about} end", labels, buckets=SECONDS)
        self._registry.register(_Gauges(PROXY, PROXY_GAUGES, lambda: proxy_points(routes)))
        self._child = lru_cache(maxsize=1024)(lambda metric, *labels: metric.labels(*labels))

    def count_request(self, ended: EndedRequest) -> None:
        """Count a request that has ended."""
        workload, target = ended.decision.workload, ended.target
        self._child(self._requests, workload, target, ended.decision.rule, str(ended.status or "none")).inc()
        self._child(self._duration, workload, target).observe(ended.seconds)
        if ended.fault is not None:
            self._child(self._faults, workload, target).inc()
        if ended.is_not_plain:
            self._child(self._not_plain, workload).inc()
        if ended.tokens:
            self._child(self._tokens, workload, target).inc(ended.tokens)
        if ended.ttft is not None:
            self._child(self._ttft, workload, target).observe(ended.ttft)

    def proxy_text(self) -> str:
        """Return what is shown of the requests alone: the watch has a file of its own."""
        return generate_latest(self._registry).decode()

    def text(self) -> str:
        """Return what is shown of the watch and of the requests."""
        return self._watch_text() + self.proxy_text()


def replace_file(path: Path, text: str) -> str | None:
    """Replace a file that the node exporter may read at any time; return why that failed, else None."""
    try:
        write_atomically(path, text, sync=False)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return None


@contextmanager
def serve_metrics(host: str, port: int, text: Callable[[], str], *, names: Iterable[str] = ()) -> Iterator[str]:
    """Serve what *text* returns while the context is open; yield the address, which may have further *names*."""

    class Handler(SmallHandler):
        def get(self) -> None:
            if self.path.partition("?")[0] == "/metrics":
                self.reply(200, CONTENT_TYPE, text().encode())
            else:
                self.reply(404, CONTENT_TYPE, b"see /metrics\n")

    try:
        server = SmallServer((host, port), Handler, names=HostNames((*names, host)))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host}:{port}: {reason}", hint="choose another --listen") from error
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


class HoldoutReports:
    """A thread that reports what the holdout shows, once a minute: a record, gauges for a collector, and a file.

    A collector or a folder that fails is reported once.
    """

    def __init__(
        self,
        certified: CertifiedRun,
        routes: RequestRoutes,
        records: LiveRecords,
        tell: Callable[[str], None],
        *,
        exposition: Exposition,
        folder: Path | None = None,
    ) -> None:
        """Report what *routes* show; *folder* is the node exporter's, for its textfile collector."""
        slo = certified.inputs.slo
        self._config, self._digest = slo.telemetry, certified.manifest_sha256
        self._routes, self._records, self._tell, self._troubles = routes, records, tell, {"telemetry": "", "text": ""}
        self._exposition = exposition
        self._textfile = folder and folder / f"gatekeeper-proxy-{slo.name}.prom"
        self._stopped = threading.Event()
        self._thread = Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def stop(self) -> None:
        """Report once more, and end; without a proxy there is no file, so that old figures do not look current."""
        self._stopped.set()
        self._thread.join(2 * EVERY_S)
        if self._textfile is not None:
            self._textfile.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self.report()
        self.report()

    def report(self) -> None:
        """Write what is known now, and send it."""
        for benefit in benefits(self._routes):
            self._records.write("holdout", **benefit.document())
        points = [
            (
                f"gatekeeper.proxy.{gauge}",
                "1" if gauge in WITHOUT_UNIT else "{request}",
                value,
                {f"gatekeeper.{label}": name for label, name in labels.items()},
            )
            for gauge, value, labels in proxy_points(self._routes)
        ]
        at_ns = round(SystemClock().wall().timestamp() * 1e9)
        self._say_once(
            "telemetry", live_export.live(self._config, points, at_ns, self._digest), "telemetry was not delivered: "
        )
        if self._textfile is not None:
            self._say_once("text", replace_file(self._textfile, self._exposition.proxy_text()))

    def _say_once(self, about: str, trouble: str | None, before: str = "") -> None:
        if trouble and trouble != self._troubles[about]:
            self._tell(f"{before}{trouble}")
        self._troubles[about] = trouble or ""
