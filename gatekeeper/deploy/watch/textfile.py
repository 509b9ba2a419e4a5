"""The state of a watch as Prometheus text, for the textfile collector of the node exporter."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from gatekeeper.core.system.files import write_atomically
from gatekeeper.deploy.watch.overlay import Overlay

PREFIX = "gatekeeper_watch_"
METRICS = {
    "speculation": "1 while the workload may speculate, else 0.",
    "looked_timestamp_seconds": "Time of the last round.",
    "next_look_before_timestamp_seconds": "Time of the next round at the latest; after it readers decode plainly.",
    "policy_expires_timestamp_seconds": "Time at which the policy expires; after it nothing may speculate.",
    "ended": "1 if the watch has ended, else 0.",
}
"""Every metric, without its prefix, and its help text; all are gauges."""


def render(overlay: Overlay, expires: datetime) -> str:
    """Return the overlay's state in the exposition format."""
    slo = {"slo": overlay.slo}
    values: dict[str, list[tuple[Mapping[str, str], float]]] = {
        "speculation": [(slo | {"workload": one.workload}, float(one.speculation)) for one in overlay.routes],
        "looked_timestamp_seconds": [(slo, overlay.at.timestamp())],
        "next_look_before_timestamp_seconds": [(slo, overlay.next_look_before.timestamp())],
        "policy_expires_timestamp_seconds": [(slo, expires.timestamp())],
        "ended": [(slo, float(overlay.ended is not None))],
    }
    return "".join(_metric(name, values[name]) for name in METRICS)


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


def _metric(name: str, values: Iterable[tuple[Mapping[str, str], float]]) -> str:
    full = PREFIX + name
    head = f"# HELP {full} {METRICS[name]}\n# TYPE {full} gauge\n"
    return head + "".join(f"{full}{{{_labels(labels)}}} {value:.17g}\n" for labels, value in values)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
