"""Objectives that the canaries of a workload are too few to prove, whatever their answers are."""

from collections.abc import Sequence

from gatekeeper.analysis.plan.complaints.complaint import Complaint, about_objective
from gatekeeper.analysis.plan.ladder import bound_level, first_look_level, soaked_settings
from gatekeeper.analysis.plan.sweep_plan import share_of_budget, sweep_canaries
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Metric, PassRate, Per
from gatekeeper.core.slo import Objective, Slo, Workload
from gatekeeper.core.units import percent

FROZEN = 'use scope = "frozen", which judges these canaries only'
LEAST_PAIRS = 5
"""Fewer canaries are too few for a bootstrap, and for shuffling the answers to each."""
WHOLE_ANSWERS = "sampled_answers_p_value"


def too_few_canaries(slo: Slo, workload: Workload, objective: Objective, canaries: Sequence[Canary]) -> list[Complaint]:
    """Complain where the canaries of a workload are too few to prove an objective, whatever their answers are."""
    about = about_objective(objective, workload)
    swept, metric, have, restriction = canaries, objective.of, len(canaries), ""
    if objective.beyond_canaries:
        swept = sweep_canaries(slo, workload.name, canaries)
        have, restriction = have - len(swept), " that the sweep does not choose on"
    if metric.pass_rate is not None:
        return _pass_delta(slo, objective, metric.pass_rate, about, canaries)
    if metric.counted and objective.scope == "population" and (complaint := _share(slo, objective, about, have)):
        return [complaint]
    if metric.quantile is not None:
        needed = intervals.samples_needed if objective.beyond_canaries else intervals.frozen_samples_needed
        need = needed(metric.quantile, _level(slo, objective))
        if have < need:
            message = (
                f"a bound on the {percent(metric.quantile)} quantile at {_confidence(slo, objective)} needs {need} "
                f"distinct canaries; the workload has {have}{restriction}"
            )
            hint = f"add {(need - have) * (2 if restriction else 1)} canaries{_lower(slo, metric, have)}"
            return [Complaint("never", about, message, hint)]
    elif metric.per is Per.PAIR and (not metric.counted or metric.name == WHOLE_ANSWERS) and have < LEAST_PAIRS:
        message = f"needs {LEAST_PAIRS} distinct canaries; the workload has {have}{restriction}"
        return [Complaint("never", about, message, f"add {(LEAST_PAIRS - have) * (2 if restriction else 1)} canaries")]
    if metric.against_plain and (sent := share_of_budget(slo, swept)[0]) < LEAST_PAIRS <= have:
        message = f"sweep.budget = {slo.sweep.budget} allows {sent} canaries in the sweep; a choice needs {LEAST_PAIRS}"
        return [Complaint("never", about, message, f"set budget = {LEAST_PAIRS} or more")]
    return []


def _pass_delta(
    slo: Slo, objective: Objective, rate: PassRate, about: str, canaries: Sequence[Canary]
) -> list[Complaint]:
    kind = rate.kind
    marked = [canary for canary in canaries if canary.expect and kind in {None, canary.expect.kind}]
    if not marked:
        expectation = "an `expect`" if kind is None else f"a {kind} expectation"
        if objective.workloads:
            hint = "add `expect` to the canaries, or remove this workload from `workloads`"
            return [Complaint("never", about, f"no canary has {expectation}", hint)]
        hint = "list the workloads it applies to: workloads = [...]"
        return [Complaint("never", about, f"no canary of this workload has {expectation}", hint)]
    if objective.scope == "frozen" and slo.sampling.temperature == 0:
        return []
    edge = abs(objective.threshold)
    half = 1 - (1 - _level(slo, objective)) / 2
    bound = intervals.proportion_bounds(0, len(marked), half)[1]
    if bound > edge:
        need = next((count for count in range(len(marked), 100_000) if 1 - (1 - half) ** (1 / count) <= edge), None)
        message = (
            f"even if {len(marked)} canaries all pass alike in both arms, the bound at {_confidence(slo, objective)} "
            f"is {percent(bound, '.2f')}; {percent(edge, '.3g')} is allowed"
        )
        frozen = 'use scope = "frozen" at temperature 0, which judges these canaries only'
        hint = f"add canaries, to about {need}, or {frozen}" if need else frozen
        return [Complaint("never", about, message, hint)]
    return []


def _share(slo: Slo, objective: Objective, about: str, have: int) -> Complaint | None:
    """Complain if *have* canaries, even if all pass, cannot prove the share of all prompts that is required."""
    required = objective.threshold if objective.bound == "at_least" else 1 - objective.threshold
    if required >= 1:
        message = "no number of canaries can prove it for every prompt like them"
        return Complaint("never", about, message, f"choose a bound that allows exceptions, or {FROZEN}")
    need = intervals.units_needed(required, _level(slo, objective))
    if have >= need:
        return None
    unseen = 1 - (1 - _level(slo, objective)) ** (1 / have)
    message = (
        f"even if all {have} canaries pass, up to {percent(unseen, '.3f')} of all prompts like them may fail, at "
        f"{_confidence(slo, objective)}; {percent(1 - required, '.3f')} is allowed"
    )
    return Complaint("never", about, message, f"add canaries, to {need}, or {FROZEN}")


def _level(slo: Slo, objective: Objective) -> float:
    """Return the confidence of a bound at the first look; no soak is continued for prompts other than its own."""
    return first_look_level(slo) if objective.scope == "population" else bound_level(slo)


def _confidence(slo: Slo, objective: Objective) -> str:
    steps, looks = soaked_settings(slo), _level(slo, objective) > bound_level(slo)
    over = [*([f"{steps} ladder steps"] if steps > 1 else []), *(["the looks at the soak"] if looks else [])]
    split = f" (split over {' and '.join(over)})" if over else ""
    return f"{percent(slo.confidence, '.0f')} confidence{split}"


def _lower(slo: Slo, metric: Metric, have: int) -> str:
    """Name the highest quantile of the same kind that *have* canaries can prove, if there is one."""
    needs = {
        sibling.name: intervals.samples_needed(sibling.quantile, bound_level(slo))
        for sibling in sorted(BY_NAME.values(), key=lambda sibling: sibling.quantile or 0.0)
        if sibling.quantile is not None and sibling.base == metric.base
    }
    provable = [name for name, need in needs.items() if need <= have]
    return f", or use {provable[-1]}, which needs {needs[provable[-1]]}" if provable else ""
