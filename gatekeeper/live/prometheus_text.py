"""The state of a watch as Prometheus text: over HTTP at /metrics, and as a file for the node exporter."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Thread

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gatekeeper.core.errors import InputError
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.host_names import HostNames
from gatekeeper.core.system.small_server import SmallHandler, SmallServer
from gatekeeper.live.overlay import Overlay

PREFIX = "gatekeeper_watch_"
METRICS = {
    "speculation": "1 while the workload may speculate, else 0.",
    "looked_timestamp_seconds": "Time of the last round.",
    "next_look_before_timestamp_seconds": "Time of the next round at the latest; after it readers decode plainly.",
    "policy_expires_timestamp_seconds": "Time at which the policy expires; after it nothing may speculate.",
    "ended": "1 if the watch has ended, else 0.",
}
"""Every metric, without its prefix, and its help text; all are gauges."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(overlay: Overlay, expires: datetime) -> str:
    """Return the state that *overlay* holds, of a policy that *expires* then."""
    registry = CollectorRegistry()
    registry.register(_WatchState(overlay, expires))
    return generate_latest(registry).decode()


class _WatchState(Collector):
    def __init__(self, overlay: Overlay, expires: datetime) -> None:
        self._overlay, self._expires = overlay, expires

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every metric, in the order of METRICS."""
        overlay = self._overlay
        speculation = _gauge("speculation", "slo", "workload")
        for route in overlay.routes:
            speculation.add_metric([overlay.slo, route.workload], float(route.speculation))
        yield speculation
        for name, value in (
            ("looked_timestamp_seconds", overlay.at.timestamp()),
            ("next_look_before_timestamp_seconds", overlay.next_look_before.timestamp()),
            ("policy_expires_timestamp_seconds", self._expires.timestamp()),
            ("ended", float(overlay.ended is not None)),
        ):
            gauge = _gauge(name, "slo")
            gauge.add_metric([overlay.slo], value)
            yield gauge


def _gauge(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, METRICS[name], labels=labels)


def write(folder: Path, overlay: Overlay, expires: datetime) -> str | None:
    """Replace the watch's file in *folder* whole; return why that failed, else None."""
    return replace_file(folder / f"gatekeeper-{overlay.slo}.prom", render(overlay, expires))


def replace_file(path: Path, text: str) -> str | None:
    """Replace a file that the node exporter may read at any time; return why that failed, else None."""
    try:
        write_atomically(path, text, sync=False)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return None


@contextmanager
def served(host: str, port: int, text: Callable[[], str], *, names: Iterable[str] = ()) -> Iterator[str]:
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
