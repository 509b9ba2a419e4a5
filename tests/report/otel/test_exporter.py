"""What `[telemetry]` and the OTEL_* variables change about what is sent, and how."""

import subprocess
import sys

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.core.slo import Telemetry
from gatekeeper.report.otel import spans
from gatekeeper.report.otel.endpoint import destination
from gatekeeper.report.otel.exporter import identity_of
from tests.builders.otlp import Receiver, over_http
from tests.builders.otlp import told as read
from tests.builders.project_folder import ROOT
from tests.report.otel.conftest import ExportedRun, answers

HERE = Telemetry(endpoint="http://here:4318")


def exported(exported_run: ExportedRun, **variables: str) -> Receiver:
    """Send the run again under more variables, and return what came."""
    with over_http() as receiver:
        exported_run.project.with_environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **variables).run(
            "report", "run", "--to", "otlp", code=0
        )
    return receiver


@pytest.mark.nightly
def test_the_latest_names_are_asked_for(exported_run: ExportedRun) -> None:
    """OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental renames the client's histograms, and sends no old
    name.
    """
    receiver = exported(exported_run, OTEL_SEMCONV_STABILITY_OPT_IN="http,gen_ai_latest_experimental")

    names = {metric.name for metric in receiver.metrics if metric.name.startswith("gen_ai.client.")}
    stem = "gen_ai.client.inference"
    assert {
        f"{stem}.duration",
        f"{stem}.time_to_first_chunk",
        f"{stem}.time_per_output_chunk",
        f"{stem}.operation.input_tokens",
        f"{stem}.operation.output_tokens",
        f"{stem}.usage.input_tokens",
        f"{stem}.usage.output_tokens",
    } == names


def test_rounds_are_events_when_asked(exported_run: ExportedRun) -> None:
    """Under rounds = true every verify round that was counted is an event inside its span, with what it accepted."""
    events = [event for span in exported_run.receiver.spans if span.name == "chat target" for event in span.events]

    rounds = [record.answer.rounds for _, record in answers(exported_run.run) if record.answer.rounds is not None]
    accepted = sum(read(event.attributes)["gatekeeper.speculative.accepted"] for event in events)
    assert (sum(counts.rounds for counts in rounds), sum(counts.accepted for counts in rounds)) == (
        len(events),
        accepted,
    )
    assert all(
        span.start_time_unix_nano < event.time_unix_nano <= span.end_time_unix_nano
        for span in exported_run.receiver.spans
        if span.name == "chat target"
        for event in span.events
    )


def test_rounds_are_no_events_unless_asked(exported_run: ExportedRun) -> None:
    """Without rounds = true a span has no events."""
    identity = identity_of(exported_run.run)
    request_spans = [spans.request(identity, file, record, rounds=False) for file, record in answers(exported_run.run)]

    assert [] == [event for span in request_spans if span is not None for event in span.events]


def test_the_usual_variables_change_what_is_sent(exported_run: ExportedRun) -> None:
    """Headers are percent-decoded, bodies gzipped where asked, the service is named, and a signal can be off."""
    receiver = exported(
        exported_run,
        OTEL_EXPORTER_OTLP_HEADERS="X-Key=a%20b,authorization=Bearer c",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_SERVICE_NAME="nightly",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=mac%2Dlab,os.version=99",
        OTEL_TRACES_EXPORTER="none",
    )

    received = {(header["x-key"], header["authorization"], header["content-encoding"]) for header in receiver.headers}
    attributes = {"service.name": "nightly", "deployment.environment.name": "mac-lab", "os.version": "99"}
    assert {("a b", "Bearer c", "gzip")} == received
    assert attributes.items() <= receiver.resources[0].items()
    assert [] == receiver.spans
    assert len(answers(exported_run.run)) == sum(p.count for p in receiver.points("gen_ai.client.operation.duration"))


def test_a_header_is_never_told(exported_run: ExportedRun) -> None:
    """A collector that refuses is named without what our headers or its address hold."""
    with over_http("refuse") as receiver:
        url = receiver.url.replace("//", "//user:hush@") + "/path?token=hush"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=hush"}
        done = exported_run.project.with_environment(**variables).run("report", "run", "--to", "otlp", code=2)

    assert "hush" not in done.out + done.err
    assert receiver.url in done.err


HTTP, GRPC = "http/protobuf", "grpc"


@pytest.mark.parametrize(
    ("environment", "signals", "endpoint"),
    [
        ({}, {}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, {}, ""),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, {}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, {"traces": HTTP, "metrics": HTTP}, "http://c:4318"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://k:v@c/own?k=v"}, {"traces": HTTP}, "https://c"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}
            | {"OTEL_TRACES_EXPORTER": "console"},
            {"metrics": GRPC},
            "c:4317",
        ),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, {"metrics": HTTP}, "http://localhost:4318"),
    ],
)
def test_the_environment_decides_what_is_sent(
    environment: dict[str, str], signals: dict[str, str], endpoint: str
) -> None:
    """An endpoint or an exporter called otlp asks for a signal, another exporter is none of ours; no secret is
    shown.
    """
    to = destination(Telemetry(), environment)

    assert (signals, endpoint) == ((dict(to.signals), to.endpoint) if to is not None else ({}, ""))


def test_the_slo_goes_before_the_environment() -> None:
    """An endpoint in the SLO is used whatever the environment says, except that the SDK is disabled; its headers
    alone go.
    """
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://there:2"}
    keys = {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "key=there", "KEY": "key=here"}

    to = destination(HERE.model_copy(update={"headers_env": "KEY"}), there | keys)

    assert to is not None
    assert "http://here:4318" == to.endpoint
    assert not [value for value in to.environment.values() if "there" in value]
    assert "key=here" == to.environment["OTEL_EXPORTER_OTLP_HEADERS"]
    assert destination(HERE, {"OTEL_SDK_DISABLED": "True"}) is None


@pytest.mark.parametrize(
    ("telemetry", "environment"),
    [
        (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}),
        (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}),
        (Telemetry(endpoint="http://[::1"), {}),
        (Telemetry(endpoint="http://c", headers_env="KEY"), {"KEY": "hush"}),
        (Telemetry(endpoint="http://c", headers_env="KEY"), {"KEY": "authorization=hush%0Ahush"}),
        (Telemetry(endpoint="http://c", headers_env="KEY"), {"KEY": 'authorization=hush"'}),
        (Telemetry(endpoint="http://c"), {"OTEL_EXPORTER_OTLP_HEADERS": "=hush"}),
    ],
)
def test_what_can_not_be_followed_is_an_error(telemetry: Telemetry, environment: dict[str, str]) -> None:
    """A protocol we do not speak, an address without a scheme over HTTP and headers that are none: an InputError."""
    with pytest.raises(InputError) as caught:
        destination(telemetry, environment)

    assert caught.value.hint
    assert "hush" not in caught.value.message


def test_a_run_does_not_import_opentelemetry() -> None:
    """The process that measures never loads OpenTelemetry or gRPC."""
    heavy = ("opentelemetry", "grpc", "requests")
    look = f"import sys, gatekeeper.run.certify; print([m for m in sys.modules if m.startswith({heavy})])"

    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, cwd=ROOT, check=True)

    assert "[]" == done.stdout.strip()
