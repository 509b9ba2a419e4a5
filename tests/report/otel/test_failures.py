"""Collectors that are down, slow or unwilling: they cost the run a time limit and never its verdict."""

import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gatekeeper.core.slo import Telemetry
from gatekeeper.report.otel import endpoint, live_export
from gatekeeper.report.otel.exporter import SendOptions
from tests.builders.otlp import Receiver, events_of, over_grpc, over_http
from tests.builders.tls import self_signed
from tests.report.otel.conftest import ExportedRun, Lay, within


def dead_endpoint() -> str:
    """Return an address without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.whole
def test_a_collector_that_is_down_costs_nothing(fresh: Lay) -> None:
    """Without a listener the run ends as usual; the events and the last line state what was not delivered."""
    project = fresh({"OTEL_EXPORTER_OTLP_ENDPOINT": dead_endpoint()})

    done = project.run("certify", "slo.toml", "--out", "run", "--quiet", "--json", code=0)

    failed = events_of(project.path / "run", "telemetry_failed")
    assert "promoted" == done.document["outcome"]
    assert ["sweep", "run"] == [detail["stage"] for detail in failed], "after a failure it waits for the end"
    assert "--to otlp" in done.err


@pytest.mark.whole
def test_a_collector_that_hangs_costs_its_time_limit(fresh: Lay) -> None:
    """A collector that takes a connection and never answers is left after the limit, and the run is not touched."""
    with over_http("hang") as receiver:
        project = fresh(telemetry={"endpoint": receiver.url, "timeout": "1 s"})
        project.run("certify", "slo.toml", "--out", "run", code=0)
        project.run("judge", "run", code=0)

    failed = events_of(project.path / "run", "telemetry_failed")
    assert 2 == len(failed)
    assert {receiver.url} == {detail["because"].partition(": ")[0] for detail in failed}


@pytest.mark.parametrize(
    ("serve", "manner", "reason"),
    [
        (over_http, "refuse", "HTTP 400"),
        (over_http, "hang", "no response within"),
        (over_grpc, "hang", "gRPC DEADLINE_EXCEEDED"),
        (over_http, "busy", "HTTP 503"),
        pytest.param(over_http, "move", "HTTP 302", marks=pytest.mark.nightly),
        (over_http, "chat", "not OTLP"),
        (over_http, "partial", "rejected 2: too old"),
        (over_grpc, "refuse", "gRPC UNAVAILABLE: come back later"),
        pytest.param(over_grpc, "partial", "rejected 2: too old", marks=pytest.mark.nightly),
    ],
)
def test_a_refusal_is_told(
    exported_run: ExportedRun, serve: Callable[[str], AbstractContextManager[Receiver]], manner: str, reason: str
) -> None:
    """What a collector does not take whole was not delivered, its reason is passed on, and it is not asked again."""
    with serve(manner) as receiver:
        protocol = "grpc" if serve is over_grpc else "http/protobuf"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        variables |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.3"} if manner == "hang" else {}
        done = exported_run.project.with_environment(**variables).run("report", "run", "--to", "otlp", code=2)

    assert reason in done.err
    assert receiver.url in done.err
    assert 1 == receiver.asked


@pytest.mark.parametrize("serve", [over_http, over_grpc])
def test_certificates_are_verified(
    exported_run: ExportedRun, serve: Callable[[str, Path], AbstractContextManager[Receiver]], tmp_path: Path
) -> None:
    """Over either protocol a collector is believed by the certificate that OTEL_EXPORTER_OTLP_CERTIFICATE names,
    else not,
    whatever other certificates the machine trusts.
    """
    other_certificate, certificate = (self_signed(folder) for folder in (tmp_path / "other", tmp_path))
    with serve("take", certificate) as receiver:
        protocol = "grpc" if serve is over_grpc else "http/protobuf"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        doubting = exported_run.project.with_environment(REQUESTS_CA_BUNDLE=str(other_certificate), **variables)
        doubting.run("report", "run", "--to", "otlp", code=2)
        nobody_was_told = receiver.asked == 0
        within(doubting, OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate)).run("report", "run", "--to", "otlp", code=0)

    assert nobody_was_told
    assert exported_run.receiver.by_id().keys() == receiver.by_id().keys()


def test_a_limit_of_the_measurement_does_not_bind_a_stored_run(
    exported_run: ExportedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that takes longer than the limit, as of a day's answers, ends where nothing is measured; between two
    stages of a run it is left. Each request keeps the limit in both.
    """
    script = "import json, sys, time; json.load(sys.stdin); time.sleep(1); print(json.dumps({'spans': 3, 'points': 2}))"
    monkeypatch.setattr(live_export, "ARGV", (sys.executable, "-c", script))
    config = Telemetry(endpoint="http://127.0.0.1:9", timeout=0.2)
    monkeypatch.setattr(live_export, "destination", lambda *_: endpoint.destination(config, {}))
    events: list[str] = []

    document = live_export.export_stored(exported_run.run)
    live_export.LiveExport(exported_run.run, config, lambda kind, _: events.append(kind)).stage("sweep")

    assert (3, 2) == (document["spans"], document["points"])
    assert ["telemetry_failed"] == events
    options = SendOptions({}, "", 5.0, begun_ns=None)
    assert options.left >= 5.0


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({}, "OTEL_EXPORTER_OTLP_ENDPOINT", id="without an endpoint anywhere"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/not/here"},
            "/not/here: no such file",
            id="a certificate that is missing",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "pip install",
            id="gRPC that is not installed",
        ),
        *(
            pytest.param(
                {"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol},
                "{url}",
                id=f"refused, {protocol}",
            )
            for protocol in ("http/protobuf", "grpc")
        ),
    ],
)
def test_what_cannot_be_sent_is_code_2_with_what_to_do(
    exported_run: ExportedRun, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    """The export ends at once: it is no verdict (3), and gatekeeper has not failed (4)."""
    if words == "pip install":
        monkeypatch.setattr("gatekeeper.report.otel.endpoint.find_spec", lambda _name: None)
    url = dead_endpoint()
    variables = {name: value.format(url=url) for name, value in variables.items()}

    done = exported_run.project.with_environment(**variables).run("report", "run", "--to", "otlp", code=2)

    assert words.format(url=url) in done.err


def test_a_missing_variable_is_no_reason_to_stop(fresh: Lay) -> None:
    """headers_env names a variable that is not set: the run reports it at once, continues, and sends nothing."""
    with over_http() as receiver:
        project = fresh(telemetry={"endpoint": receiver.url, "headers_env": "NOT_SET_ANYWHERE"})
        project.run("certify", "slo.toml", "--out", "run", code=0)

    (failed,) = events_of(project.path / "run", "telemetry_failed")
    assert ("begin", True) == (failed["stage"], "NOT_SET_ANYWHERE" in failed["because"])
    assert [] == receiver.requests
