"""The spans: one for the run, one for each stage, one for each request; never a prompt, never an answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gatekeeper.telemetry.frame import Frame, attributes, error_type, shift_ns, span_of, speculation, wall_ns
from gatekeeper.terms.records import Event, Generation

RUN = "run"
INCIDENTS = frozenset({"subject_died", "subject_lost", "sampler_died", "load_died", "artifact_changed", "interrupted"})
"""Events of the run that its span shows, by kind and time alone: what they say may quote the subject."""


def stage_of(file: str) -> str:
    """Name the stage that a record file belongs to: the sweep's files are one stage, all others their own."""
    stem = file.removesuffix(".jsonl")
    return stem if stem.startswith(("soak-", "warm-", "draws-")) else "sweep"


def request(frame: Frame, file: str, one: Generation, *, rounds: bool) -> Span | None:
    """Return the span of one request, None where its times can not be told."""
    shift = shift_ns(one)
    if shift is None:
        return None
    answer, fault = one.answer, one.answer.fault
    first = (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9 if answer.arrivals else None
    said = speculation(one, frame.manifest.backend)
    counted = {} if said is None else asdict(said)
    return Span(
        trace_id=frame.trace_id,
        span_id=frame.span_id(file, one.key, one.segment, answer.sent_ns),
        parent_span_id=frame.span_id("stage", stage_of(file)),
        name=f"{frame.model['gen_ai.operation.name']} {frame.model['gen_ai.request.model']}",
        kind=Span.SPAN_KIND_INTERNAL if frame.in_process else Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=answer.sent_ns + shift,
        end_time_unix_nano=answer.ended_ns + shift,
        attributes=attributes(
            {
                **frame.model,
                **frame.sampling(one),
                "gen_ai.request.stream": True,
                "gen_ai.response.model": answer.claims.model,
                "gen_ai.response.finish_reasons": [answer.finish] if answer.finish is not None else None,
                "gen_ai.response.time_to_first_chunk": first,
                "gen_ai.usage.input_tokens": answer.prompt_tokens,
                "gen_ai.usage.output_tokens": answer.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": answer.claims.cached_tokens,
                "error.type": None if fault is None else error_type(fault),
                "gatekeeper.stage": stage_of(file),
                "gatekeeper.trial": one.trial,
                "gatekeeper.arm": one.arm,
                "gatekeeper.workload": one.workload,
                "gatekeeper.canary": one.canary,
                "gatekeeper.role": one.role.value,
                "gatekeeper.pair": one.pair or None,
                "gatekeeper.repeat": one.repeat,
                "gatekeeper.segment": one.segment,
                "gatekeeper.concurrency": one.concurrency,
                **{f"gatekeeper.setting.{knob}": value for knob, value in one.setting},
                **{f"gatekeeper.speculative.{name}": value for name, value in counted.items()},
            }
        ),
        events=_rounds(one, shift) if rounds else (),
        status=Status() if fault is None else Status(code=Status.STATUS_CODE_ERROR, message=error_type(fault)),
    )


def _rounds(one: Generation, shift: int) -> list[Span.Event]:
    """Return an event at the end of each verify round, where every token tells whether the draft proposed it.

    A round ends with the token that is the target's own; the last one may end with the answer.
    """
    arrivals = one.answer.arrivals
    if not dict(one.setting).get("draft") or any(piece.drafted is None for piece in arrivals):
        return []
    events: list[Span.Event] = []
    accepted = 0
    for number, piece in enumerate(arrivals, start=1):
        accepted += bool(piece.drafted)
        if not piece.drafted or number == len(arrivals):
            said = {"gatekeeper.speculative.round": len(events) + 1, "gatekeeper.speculative.accepted": accepted}
            events.append(
                Span.Event(
                    time_unix_nano=piece.at_ns + shift, name="gatekeeper.verify_round", attributes=attributes(said)
                )
            )
            accepted = 0
    return events


def stage(frame: Frame, name: str, requests: Sequence[Span]) -> Span | None:
    """Return the span of a stage: from its first request to the end of its last."""
    times = span_of((one.start_time_unix_nano, one.end_time_unix_nano) for one in requests)
    if times is None:
        return None
    return Span(
        trace_id=frame.trace_id,
        span_id=frame.span_id("stage", name),
        parent_span_id=frame.span_id(RUN),
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=times[0],
        end_time_unix_nano=times[1],
        attributes=attributes({"gatekeeper.stage": name, "gatekeeper.requests": len(requests)}),
    )


def run(frame: Frame, events: Iterable[Event], outcome: Mapping[str, str | int | None]) -> Span | None:
    """Return the root: from the freeze to the last thing the run noted, with the verdict where there is one."""
    # What the export notes of itself is no part of the run: sent again, the root would have grown.
    own = [event for event in events if not event.kind.startswith("telemetry_")]
    seen = [(event.kind, at) for event in own if (at := wall_ns(event.at)) is not None]
    frozen = wall_ns(frame.manifest.frozen_at)
    times = span_of((at, at) for at in (frozen, *(at for _, at in seen)) if at is not None)
    if times is None:
        return None
    return Span(
        trace_id=frame.trace_id,
        span_id=frame.span_id(RUN),
        name=f"certify {frame.slo.name}",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=times[0],
        end_time_unix_nano=times[1],
        attributes=attributes({f"gatekeeper.{name}": value for name, value in outcome.items()}),
        events=[Span.Event(time_unix_nano=at, name=f"gatekeeper.{kind}") for kind, at in seen if kind in INCIDENTS],
    )
