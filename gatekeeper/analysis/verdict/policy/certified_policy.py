"""The policy that a verdict allows: a route per workload, the guards for production, and what was certified."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from gatekeeper.analysis.passes.warm_up import PAUSE_S, WARM_UP
from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.settings import defaults, speculates
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.analysis.verdict.policy.certified_guards import CertifiedGuard, guards
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import stamp
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.policy import CertifiedRequest, CertifiedSampling, Conditions, Launch, MeasuredRoute, Watch
from gatekeeper.core.records import Event, Knobs, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.verdict import Estimate, FindingKind, Missing, Outcome, figures, known, rounded

LAUNCH = "launch"
"""The kind of the event that holds the launch lines of a soak's servers."""


@dataclass(frozen=True, slots=True)
class CertifiedRoute:
    """What one workload may do, and for which requests."""

    workload: str
    speculation: bool
    because: str
    setting: Knobs
    """Empty for plain decoding."""
    longest_prompt: int | None = None
    longest_format: int | None = None
    """In bytes, as JSON; None where no certified request had a response format."""
    models: tuple[str, ...] = ()
    requests: tuple[CertifiedRequest, ...] = ()
    """What the certified requests asked for, each once."""
    warm_up_after: float | None = None
    """The shortest pause before which a warm-up is owed; None where none is."""
    max_concurrency: int | None = None
    ladder: tuple[tuple[str, Setting], ...] = ()
    """The steps to try before plain decoding, each with its setting."""
    measured: Mapping[str, Estimate] = field(default_factory=dict)
    """What to compare production with where it has no plain decoding."""

    def document(self) -> dict[str, object]:
        """Return it as policy.toml has it."""
        optional = {
            "longest_prompt": self.longest_prompt,
            "longest_format": self.longest_format,
            "models": list(self.models),
            "warm_up": self.warm_up_after is not None,
            "warm_up_after": self.warm_up_after,
            "max_concurrency": self.max_concurrency,
            "ladder": [{"step": step, **dict(knobs)} for step, knobs in self.ladder],
            "request": [request.document() for request in self.requests],
            "measured": {name: figures("center", figure) for name, figure in self.measured.items()},
        }
        return {
            "workload": self.workload,
            "speculation": self.speculation,
            "because": self.because,
            "setting": dict(self.setting),
            **{key: value for key, value in optional.items() if value},
        }


@dataclass(frozen=True, slots=True)
class CertifiedPolicy:
    """The content of policy.toml."""

    slo: str
    grade: str
    manifest_sha256: str
    verdict_sha256: str
    issued: str
    expires: str
    conditions: Mapping[str, object]
    launches: tuple[Mapping[str, object], ...]
    routes: tuple[CertifiedRoute, ...]
    guards: tuple[CertifiedGuard, ...]

    def document(self) -> dict[str, Any]:
        """Return it as policy.toml has it."""
        return {
            "schema": 1,
            "slo": self.slo,
            "grade": self.grade,
            "manifest_sha256": self.manifest_sha256,
            "verdict_sha256": self.verdict_sha256,
            "issued": self.issued,
            "expires": self.expires,
            "default": {"speculation": False},
            "watch": Watch().model_dump(exclude={"on_change"}),
            "conditions": self.conditions,
            **known(launch=list(self.launches) or None),
            "route": [route.document() for route in self.routes],
            "guard": [guard.document() for guard in self.guards],
        }


def allows_policy(plan: SweepPlan, verdict: Verdict) -> bool:
    """Return whether a run issues a policy: an unproven verdict changes nothing, a soak alone promotes nothing."""
    return plan.fixed is None and verdict.exit_code != ExitCode.UNPROVEN


def issue_policy(
    slo: Slo, verdict: Verdict, manifest: Manifest, events: Sequence[Event], *, verdict_sha256: str, issued: datetime
) -> CertifiedPolicy:
    """Return what the verdict of a run allows, from *issued* on, for as long as the SLO's `valid_for` says."""
    host_failed = any(check.outcome is Outcome.FAIL for check in verdict.host_checks)
    return CertifiedPolicy(
        slo=slo.name,
        grade=verdict.grade,
        manifest_sha256=verdict.manifest_sha256,
        verdict_sha256=verdict_sha256,
        issued=stamp(issued),
        expires=stamp(issued + timedelta(seconds=slo.promote.valid_for)),
        conditions=conditions(slo, manifest, verdict, events),
        launches=launches(verdict, events),
        routes=tuple(_route(slo, workload, host_failed=host_failed) for workload in verdict.workloads),
        guards=() if host_failed else guards(slo, verdict),
    )


def _route(slo: Slo, workload: WorkloadVerdict, *, host_failed: bool) -> CertifiedRoute:
    """Return the route of one workload; only a promoted one speculates."""
    measured = workload.measured
    if workload.outcome is not WorkloadOutcome.PROMOTED or host_failed:
        return CertifiedRoute(workload.name, False, workload.because, {}, measured.longest_prompt)
    setting = {knob: value for knob, value in workload.setting.items() if value is not None}
    figures = measured.figures
    return CertifiedRoute(
        workload=workload.name,
        speculation=True,
        because=workload.because,
        setting=setting,
        longest_prompt=_longest_prompt(workload),
        longest_format=longest_format(measured.canaries),
        models=model_names(slo, measured.models),
        requests=certified_requests(slo, measured.canaries),
        warm_up_after=PAUSE_S if any(check.passed_with == WARM_UP for check in workload.checks) else None,
        max_concurrency=_max_concurrency(slo, workload),
        ladder=tuple(_below(slo, tuple(sorted(setting.items())))),
        measured={name: figures[name] for name in MeasuredRoute.model_fields if name in figures},
    )


def _longest_prompt(workload: WorkloadVerdict) -> int | None:
    """Return the longest prompt of the soak; less where turns on a warm cache with shorter ones are proven slower."""
    measured = workload.measured
    slower = [context.least for context in measured.contexts if context.outcome is Outcome.FAIL]
    if not slower:
        return measured.longest_prompt
    reach = max(1, min(slower) - 1)  # a route has a prompt of at least one token
    return reach if measured.longest_prompt is None else min(measured.longest_prompt, reach)


def longest_format(canaries: Iterable[Canary]) -> int | None:
    """Return the bytes of the longest response format: some servers write a schema into the prompt."""
    formats = [canary.response_format for canary in canaries if canary.response_format is not None]
    sizes = [len(json.dumps(written, ensure_ascii=False).encode("utf-8", "surrogatepass")) for written in formats]
    return max(sizes, default=None)


def model_names(slo: Slo, reported: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a request may give the certified model: those of the SLO, and what the server called it."""
    own_names = (slo.subject.target, slo.subject.served_model_name)
    return tuple(dict.fromkeys(name for name in (*own_names, *reported) if name))


def certified_requests(slo: Slo, canaries: Iterable[Canary]) -> tuple[CertifiedRequest, ...]:
    """Return what the requests of *canaries* asked for, each combination once."""
    base = defaults(slo)
    requests: list[CertifiedRequest] = []
    for canary in canaries:
        thinking = base.get("thinking", slo.sampling.thinking if canary.thinking is None else canary.thinking)
        request = CertifiedRequest.of_canary(canary, thinking=thinking)
        if request not in requests:
            requests.append(request)
    return tuple(requests)


def _max_concurrency(slo: Slo, workload: WorkloadVerdict) -> int | None:
    """Return up to how many requests in flight the sweep proves the setting; None where it tried only one number.

    The soak proves its own concurrency.
    """
    choice = workload.choice
    if choice is None or not choice.by_streams:
        return None
    most = slo.soak.concurrency
    for streams, ratio in choice.by_streams:
        if isinstance(ratio, Missing) or rounded(ratio.lo) <= 1:
            break
        most = max(most, streams)
    return most


def _below(slo: Slo, knobs: Setting) -> list[tuple[str, Setting]]:
    """Return the steps to try before plain decoding: those that the run would have soaked, one after another."""
    steps: list[tuple[str, Setting]] = []
    last: str | None = None
    while (down := next_step(slo, knobs, last)) is not None and speculates(down[1]):
        last, knobs = down
        steps.append(down)
    return steps


def conditions(slo: Slo, manifest: Manifest, verdict: Verdict, events: Iterable[Event]) -> dict[str, object]:
    """Return `[conditions]`: what was true of every certified answer."""
    base, measured = defaults(slo), [workload.measured for workload in verdict.workloads]
    longest = max((soak.longest_prompt or 0 for soak in measured), default=0)
    answers = [soak.longest_answer or 0 for soak in measured]
    request = next((event.detail.get("request") for event in reversed([*events]) if event.kind == LAUNCH), None)
    fields = {
        "backend": manifest.backend,
        "target": slo.subject.target,
        "prompt_cache": _prompt_cache(slo, manifest, verdict),
        "concurrency": slo.soak.concurrency,
        "longest_prompt": longest or None,
        "max_tokens": max([int(base.get("max_tokens") or slo.sampling.max_tokens), *answers]),
        "url": manifest.versions.get("url"),
        "request": request or {},
        "sampling": certified_sampling(slo),
    }
    written = Conditions.model_validate(fields).model_dump(mode="json", exclude_none=True)
    return {key: value for key, value in written.items() if value != {}}


def certified_sampling(slo: Slo) -> CertifiedSampling:
    """Return how the requests of an SLO are sampled."""
    base, sampling = defaults(slo), slo.sampling
    return CertifiedSampling(
        temperature=float(base.get("temperature", sampling.temperature)),
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        thinking=base.get("thinking", sampling.thinking),
    )


def _prompt_cache(slo: Slo, manifest: Manifest, verdict: Verdict) -> str:
    if slo.subject.prompt_cache == "as-deployed":
        return "on"
    if any(finding.kind is FindingKind.WARM_PROMPT for finding in verdict.findings):
        return "unknown"  # the server's own, which was on
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
