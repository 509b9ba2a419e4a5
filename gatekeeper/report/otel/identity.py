"""What all telemetry of one run shares: its resource, its attributes, and the ids of its spans.

Every id comes from the digest of the manifest and the record, so sending a record again sends the very same thing.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from gatekeeper import __version__
from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.backends import facts_of
from gatekeeper.core.backend_registry import OPENERS
from gatekeeper.core.canary import Canary
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.records import Generation
from gatekeeper.core.slo import Slo
from gatekeeper.report.otel import metric_names

Known = str | bool | int | float | Sequence[str]
Value = Known | None

SCOPE = InstrumentationScope("gatekeeper", __version__)


@dataclass(frozen=True)
class RunIdentity:
    """One run, as its telemetry sees it."""

    manifest: Manifest
    manifest_sha256: str
    slo: Slo
    canaries: Mapping[tuple[str, str], Canary]
    """The canaries by workload and id."""

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
        """Return how the answer was sampled, as the plan decides it."""
        canary = self.canaries.get((generation.workload, generation.canary))
        if canary is None:
            return {}
        sampling = sampling_for(self.slo, canary, generation.setting, generation.concurrency, generation.key)
        return {
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": None if sampling.top_k is None else float(sampling.top_k),
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.max_tokens": sampling.max_tokens,
        }


def context(manifest_sha256: str, *parts: object) -> SpanContext:
    """Return the identity of the span that *parts* name, in the trace of the run with that manifest."""
    text = "\0".join((manifest_sha256, *map(str, parts)))
    span_id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return SpanContext(int(manifest_sha256[:32], 16), span_id, is_remote=False)


def drop_unknown(values: Mapping[str, Value]) -> dict[str, Known]:
    """Leave out attributes that are None: they are not known."""
    return {key: value for key, value in values.items() if value is not None}


def resource(facts: Mapping[str, Value]) -> Resource:
    """Return gatekeeper's resource with these *facts*; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override them."""
    attributes = drop_unknown({"service.name": "gatekeeper", "service.version": __version__, **facts})
    return Resource.create(attributes).merge(OTELResourceDetector().detect())


def _text(value: object) -> str | None:
    return str(value) if value is not None else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
