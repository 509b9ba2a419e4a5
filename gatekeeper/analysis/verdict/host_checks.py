"""Host checks: the objectives on the host, judged by its samples during one soak."""

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import NormalDist

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.host.host_estimates import estimates
from gatekeeper.analysis.metrics.host.host_findings import findings as host_findings
from gatekeeper.analysis.metrics.host.host_throttling import is_fanless
from gatekeeper.analysis.metrics.over_time import plain_drift
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats.series_change import Change
from gatekeeper.analysis.verdict.case import Case, host_during, soak_answers
from gatekeeper.analysis.verdict.soak_time import SOAK_ROLES
from gatekeeper.core.backend_registry import SCRIPTED
from gatekeeper.core.judgement import Check, Estimate, Finding, FindingKind, Missing
from gatekeeper.core.records.host_columns import HostColumns

DISQUALIFYING = frozenset(
    {
        FindingKind.HOST_SLEPT,
        FindingKind.POWER_LOST,
        FindingKind.POWER_MODE_CHANGED,
        FindingKind.VIRTUAL_MAC,
        FindingKind.HOST_RESTARTED,
    }
)
"""Kinds of findings that make a soak unproven, whatever was measured."""
OF_MACHINE = frozenset({FindingKind.VIRTUAL_MAC, FindingKind.VIRTUAL_MACHINE, FindingKind.TRANSLATED})
"""Kinds of findings about the machine itself, whatever it does."""


def host_checks(case: Case, soak: SoakPlan) -> tuple[list[Check], list[Finding]]:
    """Judge the objectives on the host during a soak, and return the findings of its samples."""
    host, every = host_during(case, soak), HostColumns.of(case.host_samples)
    answers = [answer for answer in case.soaks[soak.name].records if answer.role in SOAK_ROLES]
    spans, taken = host.spans or {}, zip(every.phase, every.segment, strict=True)
    earlier = every.select([phase != soak.name and segment in spans for phase, segment in taken])
    speculating = [name for name, knobs in soak.settings.items() if speculates(knobs)]
    drifts = [plain_drift(soak_answers(case, soak, name)) for name in speculating]
    speed_held = baseline_held(drifts, case.slo.soak.baseline_drift, bound_level(case.slo))
    level, conditions = bound_level(case.slo), case.conditions.get(soak.name, ())
    fanless = any(is_fanless(facts.get("machine")) for facts in conditions)
    host = replace(host, earlier=earlier, baseline_held=speed_held, fanless=fanless)
    findings = host_findings(host, level=level, conditions=conditions, horizon=case.slo.promote.valid_for)
    if case.slo.subject.backend == SCRIPTED:
        # A simulated system says nothing of the machine, and so the machine nothing of it.
        findings = [finding for finding in findings if finding.kind not in OF_MACHINE]
    findings = [replace(finding, about=f"{soak.name}, {finding.about}") for finding in findings]
    objectives = case.slo.host_objectives
    if not objectives:
        return [], findings
    missing, by_metric = Missing("not measured on this host"), dict[str, Estimate | Missing]()
    if case.host_trouble is not None:
        missing = Missing(f"host.jsonl: {case.host_trouble}", len(host.samples))
    else:
        tokens = sum(generation.answer.output_tokens or 0 for generation in answers)
        by_metric = estimates(host, tokens=tokens, level=level)
    return [check(objective, by_metric.get(objective.metric, missing)) for objective in objectives], findings


def baseline_held(drifts: Iterable[Change | None], limit: float, level: float) -> bool | None:
    """Return whether plain decoding is proven, at *level*, to have kept its speed within *limit*, or not to have.

    None: no drift is known, or chance may have made it, or hidden it.
    """
    errors = NormalDist().inv_cdf(level)
    known = [(math.expm1(abs(drift.size)), abs(drift.size), errors * drift.error) for drift in drifts if drift]
    if any(moved > limit and size > error for moved, size, error in known):
        return False
    within = all(math.expm1(size + error) <= limit for _, size, error in known)
    return True if known and within else None
