"""The guards of a policy: the tightest objective on each watched metric, then what the soak showed with a margin."""

from collections.abc import Callable, Iterator, Sequence

from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Estimate, round_figure
from gatekeeper.core.metrics import DECODE_RATIO, PASS_RATE, WATCHED
from gatekeeper.core.policy import Guard, Watch
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.units import percent, show

GUARDED = {name: name for name in WATCHED} | {"acceptance_window_min": "acceptance_rate"}
"""Metrics of objectives that can be watched in production, each with the metric that is watched for it."""

RATIO_MARGIN = 0.10
"""Without an objective a ratio's guard is this share below the soak's lower bound, and never below 1."""
ACCEPTANCE_MARGIN = 0.25
"""The same for acceptance: between canaries and real prompts acceptance differs more than speed."""
PASS_MARGIN = 0.10
"""Canaries may pass less often than in the soak by this share: a few answers cannot show less."""
ERRORS = 0.05
"""Without an objective no bound on failed answers is tighter: it takes 59 good answers in a row to show this one."""
HOST_MISSING_S = 300.0
"""A host sensor is read every few seconds; one without readings for minutes has failed."""


def guards(slo: Slo, verdict: Verdict) -> tuple[Guard, ...]:
    """Return the bounds to watch while a route speculates: the tightest objective on each, then what was measured."""
    promoted = [workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    if not promoted:
        return ()
    guard_by_key: dict[tuple[str, tuple[str, ...]], Guard] = {}
    for objective in slo.objective:
        if objective.against is None and (guard := _from_objective(slo, objective, promoted)) is not None:
            key = guard.metric, guard.workloads
            guard_by_key[key] = _tighter(guard_by_key.get(key, guard), guard)
    from_objectives = tuple(guard_by_key.values())
    return (
        *from_objectives,
        *_errors(slo, promoted, from_objectives),
        *(guard for workload in promoted for guard in _guard_shown_figures(slo, workload, from_objectives)),
    )


def _tighter(first: Guard, second: Guard) -> Guard:
    """Return the stricter one of two guards on the same metric."""
    strictest = max if first.bound == "at_least" else min
    return strictest(first, second, key=lambda guard: guard.threshold)


def _from_objective(slo: Slo, objective: Objective, promoted: list[WorkloadVerdict]) -> Guard | None:
    """Return the guard of an objective; None where it cannot be watched, or applies to nothing that speculates."""
    metric = WATCHED.get(GUARDED.get(objective.metric, ""))
    if metric is None or objective.bound != ("at_least" if metric.higher_is_better else "at_most"):
        return None
    if not any(objective.applies_to(workload.name) for workload in promoted):
        return None
    bound = objective.threshold
    if metric.name == "error_rate" and bound <= 0:
        return None
    if objective.metric == "acceptance_window_min":
        # The soak's windows pool tokens, a guard takes the median answer: a lower median needs a lower bound.
        for workload in promoted:
            acceptance = workload.measured.figures.get("acceptance_rate")
            if objective.applies_to(workload.name) and acceptance is not None and acceptance.lo < objective.threshold:
                bound = min(bound, (1 - ACCEPTANCE_MARGIN) * acceptance.lo)
    return _guard(slo, metric.name, objective.bound, bound, objective.why, objective.workloads)


def _guard(slo: Slo, metric: str, bound: str, threshold: float, why: str, workloads: tuple[str, ...] = ()) -> Guard:
    over_s: float | None = None
    if metric in {"swap_growth", "throttle_time"}:
        over_s = slo.soak.duration  # the objective's time span
    if metric == "memory_pressure_critical" and threshold > 0:
        over_s = 2 * threshold + Watch().interval  # a run as long as the bound must fit into it
    missing = HOST_MISSING_S if WATCHED[metric].host else None
    times = {"for": slo.soak.window_s, "over": over_s, "missing_for": missing}
    rest = {"metric": metric, bound: round_figure(threshold), "why": why, "workloads": workloads}
    return Guard.model_validate(rest | times)


def _errors(slo: Slo, promoted: list[WorkloadVerdict], from_objectives: Sequence[Guard]) -> Iterator[Guard]:
    """Yield a guard on failed answers at the bound that the soak could show, for workloads without an own one."""
    bare = [workload for workload in promoted if not _has_guard(from_objectives, "error_rate", workload.name)]
    if not bare:
        return
    answers = min(workload.measured.answers or 0 for workload in bare)
    _, most = intervals.proportion_bounds(0, answers, slo.confidence) if answers else (0.0, ERRORS)
    why = f"no answer may fail; a soak of {answers} answers proves a share of at most {show(most, '1')}"
    names = () if len(bare) == len(promoted) else tuple(workload.name for workload in bare)
    yield _guard(slo, "error_rate", "at_most", max(most, ERRORS), why, names)


def _has_guard(guards: Sequence[Guard], metric: str, workload: str) -> bool:
    return any(guard.metric == metric and guard.applies_to(workload) for guard in guards)


def _guard_shown_figures(slo: Slo, workload: WorkloadVerdict, from_objectives: Sequence[Guard]) -> Iterator[Guard]:
    """Yield guards on what has no objective, at what the workload's soak showed with a margin."""
    margins: tuple[tuple[str, Callable[[Estimate], float], str], ...] = (
        (
            DECODE_RATIO,
            lambda ratio: max(1.0, (1 - RATIO_MARGIN) * ratio.lo),
            f"{percent(RATIO_MARGIN)} below the soak's lower bound, and never below plain decoding",
        ),
        (
            "acceptance_rate",
            lambda acceptance: (1 - ACCEPTANCE_MARGIN) * acceptance.lo,
            f"{percent(ACCEPTANCE_MARGIN)} below the soak's lower bound",
        ),
        (
            PASS_RATE.name,
            lambda rate: max(0.0, rate.center - PASS_MARGIN),
            f"{percent(PASS_MARGIN)} fewer than in the soak",
        ),
    )
    for metric, floor, why in margins:
        figure = workload.measured.figures.get(metric)
        if figure is not None and not _has_guard(from_objectives, metric, workload.name):
            yield _guard(slo, metric, "at_least", floor(figure), why, (workload.name,))
