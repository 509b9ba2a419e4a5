"""The spans: one for the run, for each stage, for each request, for each transition; never a prompt or an answer."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import Event as SpanEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.core.manifest import sha256
from gatekeeper.core.records import Event, EventKind, Generation
from gatekeeper.report.otel.answer_attributes import answer_attributes, error_type, shift_ns, span_of, wall_ns
from gatekeeper.report.otel.identity import SCOPE, RunIdentity, Value, context, drop_unknown, resource

RUN = "run"
TRANSITION = "gatekeeper.transition"
INCIDENTS = frozenset(
    {
        EventKind.SUBJECT_DIED, EventKind.SUBJECT_LOST, EventKind.SAMPLER_DIED, EventKind.LOAD_DIED,
        EventKind.ARTIFACT_CHANGED, EventKind.INTERRUPTED,
    }
)  # fmt: skip
"""Events of the run that its span has, with kind and time only: their details may quote the server."""
TELEMETRY = frozenset({EventKind.TELEMETRY_SENT, EventKind.TELEMETRY_FAILED})
"""Events of the telemetry itself, which no span has."""


def stage_of(file: str) -> str:
    """Name the stage of a record file: all files of the sweep are one stage, each other file is its own."""
    stem = file.removesuffix(".jsonl")
    is_own_stage = stem.startswith(("soak-", *(f"{follow_up.name}-" for follow_up in FOLLOW_UPS)))
    return stem if is_own_stage else "sweep"


def request(identity: RunIdentity, file: str, generation: Generation, *, rounds: bool) -> ReadableSpan | None:
    """Return the span of one request, None where its times are unknown."""
    shift = shift_ns(generation)
    if shift is None:
        return None
    answer, fault = generation.answer, generation.answer.fault
    return _span(
        identity,
        (answer.sent_ns + shift, answer.ended_ns + shift),
        {**answer_attributes(identity, generation), "gatekeeper.stage": stage_of(file)},
        identity.context("stage", stage_of(file)),
        context=identity.context(file, generation.key, generation.segment, answer.sent_ns),
        name=f"{identity.model['gen_ai.operation.name']} {identity.model['gen_ai.request.model']}",
        kind=SpanKind.INTERNAL if identity.in_process else SpanKind.CLIENT,
        events=_rounds(generation, shift) if rounds else (),
        status=Status() if fault is None else Status(StatusCode.ERROR, error_type(fault)),
    )


def _rounds(generation: Generation, shift: int) -> list[SpanEvent]:
    """Return an event at the end of each verify round; none where it is not known which tokens the draft proposed.

    A round ends with a token of the target's own; the last one may end with the answer.
    """
    arrivals = generation.answer.arrivals
    if not dict(generation.setting).get("draft") or any(piece.drafted is None for piece in arrivals):
        return []
    happened: list[SpanEvent] = []
    accepted = 0
    for number, piece in enumerate(arrivals, start=1):
        accepted += bool(piece.drafted)
        if not piece.drafted or number == len(arrivals):
            counts = {"gatekeeper.speculative.round": len(happened) + 1, "gatekeeper.speculative.accepted": accepted}
            happened.append(SpanEvent("gatekeeper.verify_round", counts, piece.at_ns + shift))
            accepted = 0
    return happened


def stage(identity: RunIdentity, name: str, requests: Sequence[ReadableSpan]) -> ReadableSpan | None:
    """Return the span of a stage: from the start of its first request to the end of its last."""
    times = span_of((span.start_time or 0, span.end_time or 0) for span in requests)
    if times is None:
        return None
    attributes: dict[str, Value] = {"gatekeeper.stage": name, "gatekeeper.requests": len(requests)}
    return _span(identity, times, attributes, identity.context(RUN), context=identity.context("stage", name), name=name)


def run(identity: RunIdentity, events: Iterable[Event], outcome: Mapping[str, str | int | None]) -> ReadableSpan | None:
    """Return the root: from the freeze to the run's last event, with the verdict where there is one."""
    # Events of the export itself are left out: otherwise the root would grow when it is sent again.
    run_events = [event for event in events if event.kind not in TELEMETRY]
    instants = [(event.kind, at_ns) for event in run_events if (at_ns := wall_ns(event.at)) is not None]
    frozen = wall_ns(identity.manifest.frozen_at)
    times = span_of((at_ns, at_ns) for at_ns in (frozen, *(at_ns for _, at_ns in instants)) if at_ns is not None)
    if times is None:
        return None
    attributes: dict[str, Value] = {f"gatekeeper.{name}": value for name, value in outcome.items()}
    happened = [SpanEvent(f"gatekeeper.{kind}", timestamp=at_ns) for kind, at_ns in instants if kind in INCIDENTS]
    name = f"certify {identity.slo.name}"
    return _span(identity, times, attributes, None, context=identity.context(RUN), name=name, events=happened)


def transition(attributes: Mapping[str, Value], at_ns: int, manifest_sha256: str) -> ReadableSpan:
    """Return the span of a change of what is served: no duration, one event, and a link to the run that certified it.

    It has a trace of its own, because a run's trace ends with the run; sent twice, it is the same span.
    """
    change = json.dumps([manifest_sha256, at_ns, dict(sorted(attributes.items()))])
    shared = drop_unknown({f"gatekeeper.{name}": value for name, value in attributes.items()})
    return ReadableSpan(
        name=TRANSITION,
        context=context(sha256(change), TRANSITION),
        resource=resource({"gatekeeper.manifest.sha256": manifest_sha256}),
        attributes=shared,
        events=[SpanEvent(TRANSITION, shared, at_ns)],
        links=[Link(context(manifest_sha256, RUN))],
        start_time=at_ns,
        end_time=at_ns,
        instrumentation_scope=SCOPE,
    )


def _span(
    identity: RunIdentity,
    times: tuple[int, int],
    attributes: Mapping[str, Value],
    parent: SpanContext | None,
    **more: Any,
) -> ReadableSpan:
    # Not made by a tracer, which takes ids and times from now, and whose limits and samplers drop some spans.
    more |= {"resource": identity.resource, "instrumentation_scope": SCOPE}
    more |= {"start_time": times[0], "end_time": times[1]}
    return ReadableSpan(parent=parent, attributes=drop_unknown(attributes), **more)
