"""A change of what is served, told to a collector: once, in bounded time, and never at the cost of who tells it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from gatekeeper.core.manifest import sha256
from gatekeeper.core.slo import Telemetry
from gatekeeper.report.otel.live_export import transition
from tests.builders.golden_words import says
from tests.builders.otlp import Receiver, over_grpc, over_http
from tests.builders.otlp import told as read

MANIFEST = sha256("a manifest")
AT_NS = 1_767_225_601_000_000_000
STEP = {"workload": "tools", "from": "4", "to": None, "because": "acceptance below 0.5"}


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)


@pytest.mark.parametrize("serve", [over_http, over_grpc])
def test_a_transition_is_a_span_with_an_event(serve: Callable[[], AbstractContextManager[Receiver]]) -> None:
    """A transition is one span at its instant, with an event, linked to the run that certified; told again, it is
    equal.
    """
    with serve() as receiver:
        protocol = "grpc" if serve is over_grpc else "http/protobuf"
        config = Telemetry(endpoint=receiver.url, protocol=protocol, timeout=60.0)  # the machine may be busy
        troubles = [transition(config, STEP, AT_NS, MANIFEST) for _ in range(2)]

    span, again = receiver.spans
    attributes = {"gatekeeper.workload": "tools", "gatekeeper.from": "4", "gatekeeper.because": "acceptance below 0.5"}
    assert [None, None] == troubles
    assert ("gatekeeper.transition", attributes) == (span.name, read(span.attributes))
    assert [AT_NS] * 3 == [span.start_time_unix_nano, span.end_time_unix_nano, span.events[0].time_unix_nano]
    assert [bytes.fromhex(MANIFEST)[:16]] == [link.trace_id for link in span.links]
    assert span == again
    assert receiver.resources[0]["gatekeeper.manifest.sha256"] == MANIFEST


@pytest.mark.parametrize(
    ("manner", "reason"), [("refuse", "HTTP 400"), ("hang", "no response within"), ("partial", "rejected 2")]
)
def test_what_was_not_delivered_is_told(manner: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that refuses or hangs gets one request, and its reason is returned."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    with over_http(manner) as receiver:
        because = transition(Telemetry(endpoint=receiver.url, timeout=60), STEP, AT_NS, MANIFEST)

    assert because is not None
    assert reason in because
    assert 1 == receiver.asked


@pytest.mark.slow
def test_an_answer_without_end_is_left() -> None:
    """However slowly a collector answers, the time limit ends it: the exporter's own counts the silence between two
    bytes.
    """
    with over_http("trickle") as receiver:
        because = transition(Telemetry(endpoint=receiver.url, timeout=5), STEP, AT_NS, MANIFEST)

    assert f"{receiver.url}: not done within 5 s" == because


def test_a_wrong_variable_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong variables are returned as a reason, not raised as an error."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")

    says("reports", "a wrong variable is told", transition(Telemetry(), STEP, AT_NS, MANIFEST))
