"""What telemetry says of one answer: counts of its rounds, the class of its fault, its times on the wall clock."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.analysis.verdict.soak_time import clock_ran_backwards
from gatekeeper.backends import facts_of
from gatekeeper.core.records import Generation
from gatekeeper.report.otel.identity import RunIdentity, Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLASS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){0,3}")


def answer_attributes(identity: RunIdentity, generation: Generation) -> dict[str, Value]:
    """Return the attributes of an answer's span: the conventions of OpenTelemetry, then gatekeeper's own."""
    answer = generation.answer
    return {
        **identity.model,
        **identity.server(generation.arm),
        **identity.sampling(generation),
        "gen_ai.request.stream": True,
        "gen_ai.response.model": answer.claims.model,
        "gen_ai.response.finish_reasons": [answer.finish] if answer.finish is not None else None,
        "gen_ai.response.time_to_first_chunk": ttft(answer),
        "gen_ai.usage.input_tokens": answer.prompt_tokens,
        "gen_ai.usage.output_tokens": answer.generated_tokens,
        "gen_ai.usage.cache_read.input_tokens": answer.claims.cached_tokens,
        "error.type": None if answer.fault is None else error_type(answer.fault),
        "gatekeeper.trial": generation.trial,
        "gatekeeper.arm": generation.arm,
        "gatekeeper.workload": generation.workload,
        "gatekeeper.canary": generation.canary,
        "gatekeeper.role": generation.role.value,
        "gatekeeper.pair": generation.pair or None,
        "gatekeeper.repeat": generation.repeat,
        "gatekeeper.segment": generation.segment,
        "gatekeeper.concurrency": generation.concurrency,
        **{f"gatekeeper.setting.{knob}": value for knob, value in generation.setting},
        **{
            f"gatekeeper.speculative.{name}": value
            for name, value in speculation(generation, identity.manifest.backend).items()
        },
    }


def speculation(generation: Generation, backend: str) -> dict[str, Value]:
    """Return the counts of an answer's rounds; empty where nothing was drafted or the server does not report it.

    `source` is `counted` by us or `claimed` by the server; `draft_forwards` are forward passes of the draft model where
    each proposes one token; `rollbacks` are rounds with a rejected token, after which both caches were trimmed. None
    means unknown, never zero.
    """
    counted, claims = generation.answer.rounds, generation.answer.claims
    if counted is not None:
        in_blocks = dict(generation.setting).get("block_size") is not None
        token_by_token = facts_of(backend).one_forward_a_token and not in_blocks
        # Verification stops at the first rejection, so a round with one adds exactly one to tried minus accepted.
        judged = bool(counted.tried_by_position) or counted.drafted == counted.accepted
        return {
            "source": "counted",
            "rounds": counted.rounds,
            "drafted": counted.drafted,
            "accepted": counted.accepted,
            "draft_forwards": counted.drafted if token_by_token else None,
            "rollbacks": sum(counted.tried_by_position) - sum(counted.accepted_by_position) if judged else None,
        }
    claimed = {"rounds": claims.rounds, "drafted": claims.drafted, "accepted": claims.accepted}
    return {"source": "claimed", **claimed} if any(count is not None for count in claimed.values()) else {}


def wall_ns(at: str) -> int | None:
    """Return a record's wall time as nanoseconds since 1970, None where it has none."""
    try:
        return (datetime.fromisoformat(at) - EPOCH) // timedelta(microseconds=1) * 1000
    except (TypeError, ValueError):
        return None


def shift_ns(generation: Generation) -> int | None:
    """Return what to add to this answer's monotonic instants to get wall time; None where its times are unknown.

    `at` was read right after the answer had ended. Each answer has its own shift: the monotonic clock stands still
    while the host sleeps, and the wall clock may be set, so one shift for a whole run would drift from the host's
    samples and the spans of other programs. Within an answer all distances stay monotonic. `at` is read microseconds to
    milliseconds late, and the span is late by as much; it never begins before its predecessor's `at`.
    """
    ended = wall_ns(generation.at)
    if ended is None or clock_ran_backwards((generation,)) is not None:
        return None
    return ended - generation.answer.ended_ns


def error_type(fault: str) -> str:
    """Return the class of a fault: the text before its colon. The rest may quote an answer and is never sent."""
    head = fault.partition(":")[0].strip()
    if head.startswith("HTTP ") and head[5:].isdigit():
        return head[5:]
    return head.replace(" ", "_") if _CLASS.fullmatch(head) else "_OTHER"


def span_of(times: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the earliest start and the latest end of *times*; None without any."""
    all_of = list(times)
    return (min(start for start, _ in all_of), max(end for _, end in all_of)) if all_of else None
