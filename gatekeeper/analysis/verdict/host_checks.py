"""Host checks: the objectives on the host, judged by its samples during one soak."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.host import estimates
from gatekeeper.analysis.metrics.host_findings import findings as host_findings
from gatekeeper.analysis.metrics.host_series import HostSamples
from gatekeeper.analysis.metrics.over_time import plain_drift
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import SOAK_ROLES, Case, soak_answers
from gatekeeper.analysis.verdict.checks import check
from gatekeeper.core.host_columns import HostColumns
from gatekeeper.core.manifest import RULES
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Check, Estimate, Finding, Missing


def host_checks(case: Case, soak: SoakPlan) -> tuple[list[Check], list[Finding]]:
    """Judge the objectives on the host during a soak, and return the findings of its samples."""
    every = HostColumns.of(case.host_samples)
    samples = every.select([phase == soak.name for phase in every.phase])
    answers = [one for one in case.soaks[soak.name].records if one.role in SOAK_ROLES]
    spans = _spans(answers)
    taken = zip(every.phase, every.segment, strict=True)
    earlier = every.select([phase != soak.name and segment in spans for phase, segment in taken])
    speculating = [name for name, knobs in soak.settings.items() if speculates(knobs)]
    drifts = [plain_drift(soak_answers(case, soak, name)) for name in speculating]
    held = baseline_held(drifts, case.slo.soak.sentinel_drift, case.plan.terms.rules)
    host = HostSamples(samples, case.interval, spans, earlier, held)
    level, conditions = bound_level(case.slo), case.conditions.get(soak.name, ())
    findings = host_findings(
        host, level=level, seed=case.plan.seed, conditions=conditions, horizon=case.slo.promote.valid_for
    )
    findings = [replace(one, about=f"{soak.name}, {one.about}") for one in findings]
    objectives = case.slo.host_objectives
    if not objectives:
        return [], findings
    if case.host_trouble is not None:
        missing = Missing(f"host.jsonl: {case.host_trouble}", len(samples))
        return [check(objective, missing) for objective in objectives], findings
    tokens = sum(one.answer.output_tokens or 0 for one in answers)
    seen = estimates(host, tokens=tokens, level=level, seed=case.plan.seed)
    return [check(one, seen.get(one.metric, Missing("not measured on this host"))) for one in objectives], findings


def _spans(answers: Sequence[Generation]) -> dict[int, tuple[int, int]]:
    """Return the begin and end of each uninterrupted part of the soak; host samples number them alike."""
    spans: dict[int, tuple[int, int]] = {}
    for one in answers:
        number = host_segment(one.segment, one.repeat)
        begun, ended = spans.get(number, (one.answer.sent_ns, one.answer.ended_ns))
        spans[number] = min(begun, one.answer.sent_ns), max(ended, one.answer.ended_ns)
    return spans


def host_segment(segment: int, stretch: int) -> int:
    """Return the number of an uninterrupted part; a plain block midway interrupts a soak as a restart does."""
    return 2 * segment + stretch


def baseline_held(drifts: Iterable[Estimate | Missing], limit: float, rules: int = RULES) -> bool | None:
    """Return whether plain decoding kept its speed within *limit*; None if unknown, as where chance may have moved it.

    Runs of older rules were judged by the drift that was measured, however uncertain.
    """
    known = [one for one in drifts if isinstance(one, Estimate)]
    moved = [one for one in known if abs(one.center) > limit]
    if not moved:
        return True if known else None
    return False if rules < 2 or any(not one.lo <= 0 <= one.hi for one in moved) else None
