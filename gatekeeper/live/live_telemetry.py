"""What the holdout shows, once a minute: a record, gauges for a collector, and a file for the node exporter."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.verdict import figures
from gatekeeper.live.live_evidence import Benefit
from gatekeeper.live.live_records import LiveRecords
from gatekeeper.live.prometheus import Exposition
from gatekeeper.live.prometheus_text import replace_file
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.live.running import certified_run
from gatekeeper.report.otel import live_export

EVERY_S = 60.0

Point = tuple[str, str, float, Mapping[str, str]]
"""Name, unit, value and attributes of a gauge."""


class LiveTelemetry:
    """A thread that reports until it is stopped; a collector that fails is reported once."""

    def __init__(
        self,
        run: Path,
        routes: RequestRoutes,
        records: LiveRecords,
        tell: Callable[[str], None],
        *,
        exposition: Exposition,
        folder: Path | None = None,
    ) -> None:
        """Report what *routes* show; *folder* is the node exporter's, for its textfile collector."""
        certified = certified_run.load(run)
        slo = certified.inputs.slo
        self._config, self._digest = slo.telemetry, certified.manifest_sha256
        self._routes, self._records, self._tell, self._troubles = routes, records, tell, {"telemetry": "", "text": ""}
        self._exposition = exposition
        self._textfile = folder and folder / f"gatekeeper-proxy-{slo.name}.prom"
        self._stopped, self._clock = threading.Event(), SystemClock()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

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
        benefit_of = self._routes.evidence.benefit
        benefits = [benefit for benefit in map(benefit_of, self._routes.routes) if benefit is not None]
        for benefit in benefits:
            self._records.write("holdout", **document(benefit))
        points = [point for benefit in benefits for point in _points(benefit)]
        points.append(("gatekeeper.proxy.in_flight", "{request}", float(self._routes.in_flight), {}))
        at_ns = round(self._clock.wall().timestamp() * 1e9)
        self._say_once(
            "telemetry", live_export.live(self._config, points, at_ns, self._digest), "telemetry was not delivered: "
        )
        if self._textfile is not None:
            self._say_once("text", replace_file(self._textfile, self._exposition.text()[0].decode()))

    def _say_once(self, about: str, trouble: str | None, before: str = "") -> None:
        if trouble and trouble != self._troubles[about]:
            self._tell(f"{before}{trouble}")
        self._troubles[about] = trouble or ""


def document(benefit: Benefit) -> dict[str, Any]:
    """Return what the holdout shows of a workload, as live.jsonl has it."""
    lo, hi = benefit.error_ratio
    return {
        "workload": benefit.workload,
        "answers": benefit.answers,
        "conversations": benefit.conversations,
        "in_flight": benefit.in_flight,
        "load_overlap": benefit.overlap,
        "loads": benefit.loads,
        "decode_speed": figures("ratio", benefit.speed),
        "answer_speed": figures("ratio", benefit.whole),
        "untimed": benefit.untimed,
        "ttft": figures("ratio", benefit.ttft),
        "error_rate": {"lo": lo, "hi": hi},
        "error_share": {arm: {"lo": ends[0], "hi": ends[1]} for arm, ends in benefit.error_share.items()},
    }


def _points(benefit: Benefit) -> Iterator[Point]:
    shared = {"gatekeeper.workload": benefit.workload}
    for arm, count in benefit.answers.items():
        yield "gatekeeper.proxy.drawn", "{request}", float(count), {**shared, "gatekeeper.arm": arm}
    for arm, answers in benefit.in_flight.items():
        yield "gatekeeper.proxy.in_flight_met", "{request}", answers, {**shared, "gatekeeper.arm": arm}
    for measure, end, value in benefit.ends():
        yield "gatekeeper.proxy.ratio", "1", value, {**shared, "gatekeeper.of": measure, "gatekeeper.end": end}
