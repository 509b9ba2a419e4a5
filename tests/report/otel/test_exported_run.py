"""What a collector gets of a whole run: every record once, no prompt or answer, and nothing while it is measured."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gatekeeper import host
from gatekeeper.core.manifest import sha256
from gatekeeper.core.system import record_files
from gatekeeper.report.otel.answer_attributes import wall_ns
from gatekeeper.report.otel.endpoint import Protocol
from gatekeeper.report.otel.exporter import RunPart, SendOptions, export
from tests.builders.otlp import Receiver, events_of, over_grpc, over_http
from tests.builders.otlp import told as read
from tests.builders.project_folder import ProjectFolder
from tests.report.otel.conftest import ExportedRun, Lay, answers, within

SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
BOUNDS = {
    "gen_ai.client.operation.duration": SECONDS,
    "gen_ai.client.operation.time_to_first_chunk": SECONDS,
    "gen_ai.client.operation.time_per_output_chunk": SECONDS,
    "gen_ai.server.time_to_first_token": [
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
    ],
    "gen_ai.server.time_per_output_token": [*(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)],
    "gen_ai.client.token.usage": [
        *(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
    ],
}

pytestmark = pytest.mark.whole
ARMS = ("plain", "candidate")


def requests_of(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.name.startswith("chat ")]


def test_every_record_is_one_span_of_one_trace(exported_run: ExportedRun) -> None:
    """A run is one trace with one root; each stage is a child of it, each answer a child of its stage, none of them
    twice.
    """
    spans = exported_run.receiver.spans
    ids = exported_run.receiver.by_id()

    roots = [span for span in spans if not span.parent_span_id]
    parents = Counter(ids[span.parent_span_id].name for span in spans if span.parent_span_id)

    counter = Counter("soak-1" if file.startswith("soak") else "sweep" for file, _ in answers(exported_run.run))
    assert ["certify told"] == [span.name for span in roots]
    assert {"certify told": 2, **counter} == parents
    assert (len(spans), 1) == (len(ids), len({span.trace_id for span in spans}))


def test_a_span_says_what_the_conventions_ask(exported_run: ExportedRun) -> None:
    """A request's span has the GenAI attributes, the same names in both arms, and is INTERNAL without a server."""
    spans = requests_of(exported_run.receiver.spans)
    of_arm = {arm: [read(s.attributes) for s in spans if read(s.attributes)["gatekeeper.arm"] == arm] for arm in ARMS}

    varying = ("gatekeeper.speculative.", "gatekeeper.setting.")
    names = {
        arm: {name for attributes in spans_of_arm for name in attributes if not name.startswith(varying)}
        for arm, spans_of_arm in of_arm.items()
    }
    assert {"chat target"} == {span.name for span in spans}
    assert {Span.SPAN_KIND_INTERNAL} == {span.kind for span in spans}
    assert names["plain"] == names["candidate"]
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "target",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.response.finish_reasons": ["stop"],
        "gatekeeper.arm": "candidate",
        "gatekeeper.workload": "easy",
        "gatekeeper.setting.num_draft_tokens": 4,
    }.items() <= of_arm["candidate"][0].items()
    assert not any(name.startswith("gatekeeper.speculative.") for attributes in of_arm["plain"] for name in attributes)


def test_a_span_keeps_the_record_s_times(exported_run: ExportedRun) -> None:
    """A span is as long as its answer took to the nanosecond, and ends at the wall time the record was written."""
    spans = Counter(
        (s.end_time_unix_nano, s.end_time_unix_nano - s.start_time_unix_nano)
        for s in requests_of(exported_run.receiver.spans)
    )

    records = [record for _, record in answers(exported_run.run)]
    assert Counter((wall_ns(record.at), record.answer.ended_ns - record.answer.sent_ns) for record in records) == spans


def test_nothing_that_was_said_is_sent(exported_run: ExportedRun) -> None:
    """Neither prompts nor answers, nor any of their parts, leave the machine."""
    sent = b"".join(request.SerializeToString() for request in exported_run.receiver.requests)

    texts = {record.answer.text for _, record in answers(exported_run.run)}
    assert [] == [word for text in texts for word in (text, *text.split()) if word.encode() in sent]
    assert b"Say line" not in sent


def test_histograms_have_the_recommended_buckets(exported_run: ExportedRun) -> None:
    """Every histogram has the bounds of the conventions, is cumulative, and counts every answer."""
    histograms = {m.name: m for m in exported_run.receiver.metrics if m.WhichOneof("data") == "histogram"}
    durations = exported_run.receiver.points("gen_ai.client.operation.duration")

    records = [record for _, record in answers(exported_run.run)]
    assert BOUNDS == {
        name: list(metric.histogram.data_points[0].explicit_bounds) for name, metric in histograms.items()
    }
    assert {AGGREGATION_TEMPORALITY_CUMULATIVE} == {m.histogram.aggregation_temporality for m in histograms.values()}
    assert len(records) == sum(point.count for point in durations) == sum(sum(p.bucket_counts) for p in durations)
    seconds = sum(record.answer.ended_ns - record.answer.sent_ns for record in records) / 1e9
    assert seconds == pytest.approx(sum(point.sum for point in durations))
    assert all(point.start_time_unix_nano < point.time_unix_nano for point in durations)


def test_counters_are_the_records_sums(exported_run: ExportedRun) -> None:
    """Drafted, accepted, draft forwards, rounds and rollbacks add up to what the records hold."""
    names = ("rounds", "drafted", "accepted", "draft_forwards", "rollbacks")
    sums = {
        name: sum(p.as_int for p in exported_run.receiver.points(f"gatekeeper.speculative.{name}")) for name in names
    }

    rounds = [record.answer.rounds for _, record in answers(exported_run.run) if record.answer.rounds is not None]
    drafted = sum(counts.drafted for counts in rounds)
    rejected = sum(sum(counts.tried_by_position) - sum(counts.accepted_by_position) for counts in rounds)
    expected = (sum(r.rounds for r in rounds), drafted, sum(r.accepted for r in rounds), drafted, rejected)
    assert drafted > 0
    assert dict(zip(names, expected, strict=True)) == sums


def test_the_resource_the_host_and_the_verdict_are_sent(exported_run: ExportedRun) -> None:
    """Every request says which host and manifest it is of; values of the host are gauges; the root has the verdict."""
    samples = record_files.read_records(exported_run.run / "host.jsonl", record_files.SAMPLES).records
    headroom = [(wall_ns(sample.at), sample.values["memory_headroom"].value) for sample in samples]
    points = exported_run.receiver.points("gatekeeper.host.memory_headroom")
    root = next(span for span in exported_run.receiver.spans if not span.parent_span_id)
    assert headroom == [(point.time_unix_nano, point.as_double) for point in points]
    assert [] == exported_run.receiver.points("hw.power"), "this host has no power meter"
    ended = {"gatekeeper.outcome": "promoted", "gatekeeper.exit_code": 0, "gatekeeper.grade": "demo"}
    assert ended == read(root.attributes)
    text = (exported_run.run / "manifest.json").read_text()
    manifest = json.loads(text)

    assert 1 == len({json.dumps(resource, sort_keys=True) for resource in exported_run.receiver.resources})
    assert {
        "service.name": "gatekeeper",
        "host.cpu.model.name": manifest["host"]["chip"],
        "os.version": manifest["host"]["os"],
        "gatekeeper.manifest.sha256": sha256(text),
        "gatekeeper.slo.sha256": manifest["slo"]["sha256"],
        "gatekeeper.backend": "scripted",
    }.items() <= exported_run.receiver.resources[0].items()


def test_nothing_is_sent_while_a_stage_is_open(exported_run: ExportedRun) -> None:
    """Whenever the collector hears from us, every record file is closed: no answer is under way."""
    assert [] == exported_run.open_files
    assert ["sweep", "soak-1", "run"] == [detail["stage"] for detail in events_of(exported_run.run, "telemetry_sent")]


def test_sending_again_sends_the_same(exported_run: ExportedRun) -> None:
    """`report --to otlp` sends the very same spans and sums over gRPC: a collector that keeps ids has no duplicates."""
    with over_grpc() as receiver:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        done = exported_run.project.with_environment(**variables).run("report", "run", "--to", "otlp", "--json", code=0)

    def whole(spans: list[Span]) -> set[bytes]:
        return {span.SerializeToString(deterministic=True) for span in spans}

    def sums(metrics: Any) -> set[bytes]:
        return {p.SerializeToString(deterministic=True) for m in metrics for p in m.sum.data_points}

    assert whole(exported_run.receiver.spans) == whole(receiver.spans)
    assert sums(exported_run.receiver.metrics) <= sums(receiver.metrics)
    assert len(receiver.spans) == done.document["spans"]


@pytest.mark.parametrize("serve", [over_http, over_grpc])
def test_a_long_run_goes_out_in_many_requests(
    exported_run: ExportedRun, serve: Callable[[], AbstractContextManager[Receiver]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut into requests of at most so many spans and points, the same spans and sums arrive over either protocol."""
    protocol: Protocol = "grpc" if serve is over_grpc else "http/protobuf"
    monkeypatch.setattr("gatekeeper.report.otel.exporter.SPANS", 7)
    monkeypatch.setattr(f"gatekeeper.report.otel.otlp_{serve.__name__.removeprefix('over_')}.POINTS", 10)
    with serve() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        sent = export(
            exported_run.run,
            RunPart(),
            SendOptions({"traces": protocol, "metrics": protocol}, "there", 60, time.monotonic_ns()),
        )

    sizes = [len(found(request)) for request in receiver.requests]
    assert sent.spans + sent.points == sum(sizes)
    assert max(sizes) <= 10
    assert exported_run.receiver.by_id().keys() == receiver.by_id().keys()


def found(request: Any) -> list[Any]:
    """Return the spans or the points of one request."""
    receiver = Receiver(requests=[request])
    return [
        *receiver.spans,
        *(point for name in {metric.name for metric in receiver.metrics} for point in receiver.points(name)),
    ]


@pytest.mark.nightly
def test_a_resumed_run_has_no_twins(exported_run: ExportedRun, tmp_path: Path) -> None:
    """A run that was cut in its soak and went on tells each answer once, under the ids of the first time."""
    project = within(ProjectFolder(tmp_path / "project", exported_run.project.environment))
    shutil.copytree(exported_run.project.path, project.path)
    run = project.path / "run"
    for name in ("SHA256SUMS", "verdict.json", "policy.toml", "junit.xml"):
        (run / name).unlink()
    for name, keep in (("soak-1.jsonl", 20), ("host.jsonl", -1), ("events.jsonl", -1)):
        lines = (run / name).read_text().splitlines(keepends=True)
        (run / name).write_text("".join(lines[:keep]))

    with over_http() as receiver:
        exporting = project.with_environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        exporting.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    spans = requests_of(receiver.spans)
    records = [record for _, record in answers(run) if record.segment == 0]
    assert len(answers(run)) == len(spans) == len({span.span_id for span in spans})
    assert len(records) == len({span.span_id for span in spans} & exported_run.receiver.by_id().keys())


@pytest.mark.nightly
def test_telemetry_does_not_touch_the_verdict(fresh: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    """verdict.json has the same bytes with a collector and without one."""
    facts = host.facts()  # two runs on a living machine differ in more than their collectors
    monkeypatch.setattr(host, "facts", lambda: facts)
    monkeypatch.setattr("gatekeeper.host.sampling.sampler.platform_sources", lambda *_: [])
    project = fresh()
    project.run("certify", "slo.toml", "--out", "without", code=0)
    with over_http() as receiver:
        exporting = project.with_environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        exporting.run("certify", "slo.toml", "--out", "with", code=0)

    texts = [(project.path / name / "verdict.json").read_bytes() for name in ("without", "with")]
    assert texts[0] == texts[1]
    assert (0, 3) == tuple(len(events_of(project.path / name, "telemetry_sent")) for name in ("without", "with"))
