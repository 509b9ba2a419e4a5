"""What the proxy reports once a minute: to an OpenTelemetry collector, to the node exporter, to its records."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.exposition import Exposition, HoldoutReports
from gatekeeper.live.live_evidence import Observation
from gatekeeper.live.live_records import EndedRequest, LiveRecords
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.request_routes import RequestDecision, RequestRoutes
from gatekeeper.live.running import certified_run
from tests.builders.deployment import Deployed
from tests.builders.live_server import published
from tests.builders.otlp import Receiver, over_http, told
from tests.builders.waiting import PATIENCE_S


def reporting(path: Path, folder: Path | None, messages: list[str]) -> HoldoutReports:
    """Return the telemetry of a proxy that has answered forty requests in two arms, and has one in flight."""
    deployed = Deployed.served(path, "http://127.0.0.1:1")
    routes = RequestRoutes()
    published(routes)
    for number in range(40):
        arm = "holdout" if number % 2 else "speculative"
        speed = (10.0 if number % 2 else 20.0) + number % 3
        observation = Observation(
            "easy", arm, routes.evidence.epoch("easy"), str(number), 9 + number, True, speed, 0.1, False
        )
        routes.evidence.add(observation, number)
    routes.begin()
    exposition = Exposition(routes)
    meter = AnswerMeter(0, first_ns=100_000_000)
    ended = EndedRequest("POST", datetime.now(UTC), meter, LiveRequest("/v1/chat/completions"), target="speculative")
    ended.decision, ended.status = RequestDecision("easy", "default", True, ""), 200
    ended.seconds, ended.tokens = 0.5, 12
    exposition.count_request(ended)
    records = LiveRecords(path / "live.jsonl", None, messages.append)
    certified = certified_run.load(deployed.path / "run")
    return HoldoutReports(certified, routes, records, messages.append, exposition=exposition, folder=folder)


def gauges(receiver: Receiver) -> dict[tuple[str, ...], float]:
    """Return the last value of each gauge by its name and attributes."""
    return {
        (metric.name, *told(point.attributes).values()): point.as_double
        for request in receiver.requests
        for exported in request.resource_metrics
        for scope in exported.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    }


def test_the_holdout_is_reported_as_gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector gets the answers of each arm, both ratios and the load; live.jsonl has the same figures."""
    messages: list[str] = []
    with over_http("take") as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        telemetry = reporting(tmp_path, None, messages)
        patient = telemetry._config.model_copy(update={"timeout": PATIENCE_S})  # a busy machine starts it late
        monkeypatch.setattr(telemetry, "_config", patient)
        telemetry.report()
        gauge_values = gauges(receiver)

    (line,) = (json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines())
    assert [] == messages
    assert 1.0 == gauge_values["gatekeeper.proxy.in_flight",]
    drawn = [gauge_values["gatekeeper.proxy.drawn", "easy", arm] for arm in ("speculative", "holdout")]
    assert [20.0, 20.0] == drawn
    assert [1.0, 1.0] == [
        gauge_values["gatekeeper.proxy.in_flight_met", "easy", arm] for arm in ("speculative", "holdout")
    ]
    assert ({"speculative": 20, "holdout": 20}, "equal loads") == (line["conversations"], line["loads"])
    speed = [gauge_values["gatekeeper.proxy.ratio", "easy", "decode_speed", end] for end in ("lo", "center", "hi")]
    assert speed == pytest.approx([line["decode_speed"][part] for part in ("lo", "ratio", "hi")], rel=1e-4)
    assert speed[0] < speed[1] < speed[2]


def test_the_node_exporter_gets_the_metrics_while_the_proxy_runs(tmp_path: Path) -> None:
    """--textfile holds the text of /metrics while the proxy runs; a folder that cannot be written is said once."""
    messages: list[str] = []
    folder = tmp_path / "node"
    folder.mkdir()
    telemetry = reporting(tmp_path, folder, messages)
    telemetry.report()
    (file,) = folder.iterdir()
    text = file.read_text()
    telemetry.start()
    telemetry.stop()
    files_left = [*folder.iterdir()]
    folder.rmdir()
    telemetry.report()
    telemetry.report()

    assert "gatekeeper-proxy-deployed.prom" == file.name
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines())
    labels = 'route="speculative",rule="default",status="200",workload="easy"'
    assert 1.0 == float(figures[f"gatekeeper_proxy_requests_total{{{labels}}}"])
    assert 1.0 == float(figures['gatekeeper_proxy_speculates{workload="easy"}'])
    assert 20.0 == float(figures['gatekeeper_proxy_drawn{arm="holdout",workload="easy"}'])
    assert "gatekeeper_watch" not in text
    assert [] == files_left
    assert 1 == len(messages)
    assert "cannot write" in messages[0]
