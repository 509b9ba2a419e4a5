"""What all telemetry of one run shares: its resource, its attributes, and the ids of its spans.

Every id comes from the digest of the manifest and the record, so sending a record again sends the very same thing.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from gatekeeper import __version__
from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.analysis.verdict.soak_time import clock_ran_backwards
from gatekeeper.backends import facts_of
from gatekeeper.core.backend_registry import OPENERS
from gatekeeper.core.canary import Canary
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import Slo
from gatekeeper.report.otel import metric_names

Known = str | bool | int | float | Sequence[str]
Value = Known | None

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCOPE = InstrumentationScope("gatekeeper", __version__)
_CLASS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){0,3}")


@dataclass(frozen=True)
class RunIdentity:
    """One run, as its telemetry sees it."""

    manifest: Manifest
    manifest_sha256: str
    slo: Slo
    canaries: Mapping[tuple[str, str], Canary]
    """By workload and id."""

    def context(self, *parts: object) -> SpanContext:
        """Return the identity of the span that *parts* name, in the one trace of the run."""
        return context(self.manifest_sha256, *parts)

    @property
    def in_process(self) -> bool:
        """Tell whether the model runs in the process that records its tokens."""
        return self.manifest.backend in OPENERS

    @cached_property
    def model(self) -> dict[str, Value]:
        """Return the attributes that the conventions want on every span and point of a request."""
        subject = self.slo.subject
        return {
            "gen_ai.operation.name": metric_names.OPERATION,
            "gen_ai.provider.name": facts_of(self.manifest.backend).provider or self.manifest.backend,
            "gen_ai.request.model": subject.served_model_name or subject.target,
        }

    def server(self, arm: str) -> dict[str, Value]:
        """Return the address of the server of an *arm*; empty where gatekeeper starts it, each time at another port."""
        subject = self.slo.subject
        url = subject.plain_url if arm == "plain" and subject.plain_url is not None else subject.url
        if url is None:
            return {}
        server = urlsplit(url)
        port = server.port or {"http": 80, "https": 443}.get(server.scheme)
        return {"server.address": server.hostname, "server.port": port}

    @cached_property
    def resource(self) -> Resource:
        """Return the source of the telemetry: the host and the manifest."""
        manifest, host = self.manifest, self.manifest.host
        facts: dict[str, Value] = {
            "service.version": manifest.versions.get("gatekeeper"),
            "service.instance.id": self.manifest_sha256,
            "os.type": {"macos": "darwin"}.get(str(host.get("platform")), _text(host.get("platform"))),
            "os.version": _text(host.get("os")),
            "os.build_id": _text(host.get("os_build")),
            "host.type": _text(host.get("machine")),
            "host.cpu.model.name": _text(host.get("chip")),
            "gatekeeper.host.memory_bytes": _whole(host.get("memory_bytes")),
            "gatekeeper.host.cores": _whole(host.get("cores")),
            "gatekeeper.host.virtual": host.get("virtual") if isinstance(host.get("virtual"), bool) else None,
            "gatekeeper.host.power_source": _text(host.get("power_source")),
            "gatekeeper.host.power_mode": _text(host.get("power_mode")),
            "gatekeeper.slo": self.slo.name,
            "gatekeeper.slo.sha256": manifest.slo.sha256,
            "gatekeeper.manifest.sha256": self.manifest_sha256,
            "gatekeeper.profile.sha256": manifest.profile.sha256,
            "gatekeeper.backend": manifest.backend,
            "gatekeeper.target.sha256": manifest.target.digest if manifest.target is not None else None,
            "gatekeeper.drafts": list(self.slo.subject.drafts),
            "gatekeeper.drafts.sha256": [draft.digest for draft in manifest.drafts],
        }
        return resource(facts)

    def sampling(self, generation: Generation) -> dict[str, Value]:
        """Return how the answer was sampled, as the plan decides it; a draw's length and seed are its own."""
        canary = self.canaries.get((generation.workload, generation.canary))
        if canary is None:
            return {}
        sampling = sampling_for(self.slo, canary, generation.setting, generation.concurrency)
        draw = generation.role is Role.DRAW
        return {
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": None if sampling.top_k is None else float(sampling.top_k),
            "gen_ai.request.seed": None if draw else sampling.seed,
            "gen_ai.request.max_tokens": None if draw else sampling.max_tokens,
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


def context(manifest_sha256: str, *parts: object) -> SpanContext:
    """Return the identity of the span that *parts* name, in the trace of the run with that manifest."""
    text = "\0".join((manifest_sha256, *map(str, parts)))
    span_id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return SpanContext(int(manifest_sha256[:32], 16), span_id, is_remote=False)


def known(values: Mapping[str, Value]) -> dict[str, Known]:
    """Leave out attributes that are None: they are not known."""
    return {key: value for key, value in values.items() if value is not None}


def resource(facts: Mapping[str, Value]) -> Resource:
    """Return gatekeeper's resource with these *facts*; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override them."""
    attributes = known({"service.name": "gatekeeper", "service.version": __version__, **facts})
    return Resource.create(attributes).merge(OTELResourceDetector().detect())


def _text(value: object) -> str | None:
    return str(value) if value is not None else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def span_of(times: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the earliest start and the latest end of *times*; None without any."""
    all_of = list(times)
    return (min(start for start, _ in all_of), max(end for _, end in all_of)) if all_of else None
