"""The conditions of a certificate: how answers were sampled, the context, the prompt cache, and the launch lines."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pydantic import ValidationError

from gatekeeper.analysis.plan.settings import defaults
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.policy import Conditions, Launch
from gatekeeper.core.records import Event
from gatekeeper.core.slo import Slo

LAUNCH = "launch"
"""The kind of the event that holds the launch lines of a soak's servers."""


def conditions(slo: Slo, manifest: Manifest, verdict: Verdict, events: Iterable[Event]) -> dict[str, object]:
    """Return `[conditions]`: what was true of every certified answer."""
    base, sampling, measured = defaults(slo), slo.sampling, [workload.measured for workload in verdict.workloads]
    longest = max((soak.longest_prompt or 0 for soak in measured), default=0)
    answers = [soak.longest_answer or 0 for soak in measured]
    request = next((event.detail.get("request") for event in reversed([*events]) if event.kind == LAUNCH), None)
    fields = {
        "backend": manifest.backend,
        "target": slo.subject.target,
        "prompt_cache": _prompt_cache(slo, manifest),
        "concurrency": slo.soak.concurrency,
        "longest_prompt": longest or None,
        "max_tokens": max([int(base.get("max_tokens") or sampling.max_tokens), *answers]),
        "url": manifest.versions.get("url"),
        "request": request or {},
        "sampling": {
            "temperature": float(base.get("temperature", sampling.temperature)),
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "thinking": base.get("thinking", sampling.thinking),
        },
    }
    written = Conditions.model_validate(fields).model_dump(mode="json", exclude_none=True)
    return {key: value for key, value in written.items() if value != {}}


def _prompt_cache(slo: Slo, manifest: Manifest) -> str:
    if slo.subject.prompt_cache == "as-deployed":
        return "on"
    return "off" if Sight.COLD.name in manifest.sight else "unknown"


def launches(verdict: Verdict, events: Iterable[Event]) -> tuple[dict[str, object], ...]:
    """Return `[[launch]]`: how the last soak of each workload started its servers, plain decoding's included."""
    latest: dict[str, Launch] = {}
    plain: Launch | None = None
    for server in (server for event in events if event.kind == LAUNCH for server in _servers(event)):
        latest |= dict.fromkeys(server.workloads, server)
        plain = plain if server.speculation else server
    on = {workload.name for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED}
    speculating = {id(launch): launch for name, launch in latest.items() if name in on and launch.speculation}
    documents = [
        launch.model_copy(
            update={"workloads": tuple(name for name, server in latest.items() if name in on and server is launch)}
        )
        for launch in speculating.values()
    ]
    documents += [plain.model_copy(update={"workloads": ()})] if plain is not None else []
    return tuple(
        {key: value for key, value in document.model_dump(mode="json").items() if value not in ([], {})}
        for document in documents
    )


def _servers(event: Event) -> Iterator[Launch]:
    """Yield the servers of an event; what is not one is left out."""
    for server in event.detail.get("servers") or ():
        with suppress(ValidationError):
            yield Launch.model_validate(server)
