"""The policy that a verdict allows: a route per workload, the guards for production, and what was certified."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from pydantic import ValidationError

from gatekeeper.analysis.follow_ups.pauses import PAUSE_S, WARM_UP
from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.settings import defaults, speculates
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.analysis.verdict.policy.certified_guards import guards
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.canary import SCHEMAS, Canary
from gatekeeper.core.document import document_of
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import FindingKind, Missing, Outcome, round_figure
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.policy import (
    CertifiedRequest,
    CertifiedSampling,
    Conditions,
    LadderStep,
    Launch,
    MeasuredRoute,
    Policy,
    Route,
)
from gatekeeper.core.records import Event, EventKind, Setting
from gatekeeper.core.slo import ChosenKnobs, Slo


def allows_policy(plan: SweepPlan, verdict: Verdict) -> bool:
    """Return whether a run issues a policy: an unproven verdict changes nothing, a soak alone promotes nothing."""
    return plan.fixed is None and verdict.exit_code != ExitCode.UNPROVEN


def issue_policy(
    slo: Slo, verdict: Verdict, manifest: Manifest, events: Sequence[Event], *, verdict_sha256: str, issued: datetime
) -> Policy:
    """Return what the verdict of a run allows, from *issued* on, for as long as the SLO's `valid_for` says."""
    host_failed = any(check.outcome is Outcome.FAIL for check in verdict.host_checks)
    return Policy(
        schema_=1,
        slo=slo.name,
        grade=verdict.grade,
        manifest_sha256=verdict.manifest_sha256,
        verdict_sha256=verdict_sha256,
        issued=issued,
        expires=issued + timedelta(seconds=slo.promote.valid_for),
        conditions=conditions(slo, manifest, verdict, events),
        launch=launches(verdict, events),
        route=tuple(_route(slo, workload, host_failed=host_failed) for workload in verdict.workloads),
        guard=() if host_failed else guards(slo, verdict),
    )


def _route(slo: Slo, workload: WorkloadVerdict, *, host_failed: bool) -> Route:
    """Return the route of one workload; only a promoted one speculates."""
    measured = workload.measured
    if workload.outcome is not WorkloadOutcome.PROMOTED or host_failed:
        longest = measured.longest_prompt
        return Route(workload=workload.name, speculation=False, because=workload.because, longest_prompt=longest)
    setting = {knob: value for knob, value in workload.setting.items() if value is not None}
    warm_up = any(check.passed_with == WARM_UP for check in workload.checks)
    # An infinite bound is nothing to compare production with.
    figures = {name: figure for name, figure in measured.figures.items() if math.isfinite(figure.hi - figure.lo)}
    return Route(
        workload=workload.name,
        speculation=True,
        because=workload.because,
        setting=ChosenKnobs(**setting),
        longest_prompt=_longest_prompt(workload),
        longest_format=longest_format(measured.canaries),
        models=model_names(slo, measured.models),
        request=certified_requests(slo, measured.canaries),
        warm_up=warm_up,
        warm_up_after=PAUSE_S if warm_up else None,
        max_concurrency=_max_concurrency(slo, workload),
        ladder=tuple(_below(slo, tuple(sorted(setting.items())))),
        measured=MeasuredRoute.model_validate(
            {name: document_of(figures[name]) for name in MeasuredRoute.model_fields if name in figures}
        ),
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
    formats = [canary.options[name] for canary in canaries for name in SCHEMAS if name in canary.options]
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
        if isinstance(ratio, Missing) or round_figure(ratio.lo) <= 1:
            break
        most = max(most, streams)
    return most


def _below(slo: Slo, knobs: Setting) -> list[LadderStep]:
    """Return the steps to try before plain decoding: those that the run would have soaked, one after another."""
    steps: list[LadderStep] = []
    last: str | None = None
    while (down := next_step(slo, knobs, last)) is not None and speculates(down[1]):
        last, knobs = down
        steps.append(LadderStep.model_validate({"step": last, **dict(knobs)}))
    return steps


def conditions(slo: Slo, manifest: Manifest, verdict: Verdict, events: Iterable[Event]) -> Conditions:
    """Return `[conditions]`: what was true of every certified answer."""
    base, measured = defaults(slo), [workload.measured for workload in verdict.workloads]
    longest = max((soak.longest_prompt or 0 for soak in measured), default=0)
    answers = [soak.longest_answer or 0 for soak in measured]
    request = next(
        (event.detail.get("request") for event in reversed([*events]) if event.kind == EventKind.LAUNCH), None
    )
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
    return Conditions.model_validate(fields)


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


def launches(verdict: Verdict, events: Iterable[Event]) -> tuple[Launch, ...]:
    """Return `[[launch]]`: how the last soak of each workload started its servers, plain decoding's included."""
    latest: dict[str, Launch] = {}
    plain: Launch | None = None
    for server in (server for event in events if event.kind == EventKind.LAUNCH for server in _servers(event)):
        latest |= dict.fromkeys(server.workloads, server)
        plain = plain if server.speculation else server
    on = {workload.name for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED}
    speculating = {id(launch): launch for name, launch in latest.items() if name in on and launch.speculation}
    servers = [
        launch.model_copy(
            update={"workloads": tuple(name for name, server in latest.items() if name in on and server is launch)}
        )
        for launch in speculating.values()
    ]
    return (*servers, *([plain.model_copy(update={"workloads": ()})] if plain is not None else ()))


def _servers(event: Event) -> Iterator[Launch]:
    """Yield the servers of an event; what is not one is left out."""
    for server in event.detail.get("servers") or ():
        with suppress(ValidationError):
            yield Launch.model_validate(server)
