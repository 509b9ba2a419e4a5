"""The content of policy.toml: from a verdict to a route per workload, and the guards for production."""

from collections.abc import Iterator, Sequence
from typing import Any

from gatekeeper.analysis.metrics.pauses import PAUSE_S
from gatekeeper.analysis.passes.warm_up import WARM_UP
from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.certified_conditions import conditions, launches
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics import WATCHED
from gatekeeper.core.policy import MeasuredRoute, Watch
from gatekeeper.core.records import Event, Setting
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.units import percent, show
from gatekeeper.core.verdict import Estimate, Missing, Outcome, figures, rounded

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


def policy(
    slo: Slo,
    verdict: Verdict,
    manifest: Manifest,
    events: Sequence[Event],
    *,
    verdict_sha256: str,
    issued: str,
    expires: str,
) -> dict[str, Any]:
    """Return the content of policy.toml."""
    host_failed = any(check.outcome is Outcome.FAIL for check in verdict.host_checks)
    routes = [route(slo, workload, host_failed=host_failed) for workload in verdict.workloads]
    return {
        "schema": 1 + any("region" in entry for entry in routes),
        "slo": slo.name,
        "grade": verdict.grade,
        "manifest_sha256": verdict.manifest_sha256,
        "verdict_sha256": verdict_sha256,
        "issued": issued,
        "expires": expires,
        "default": {"speculation": False},
        "watch": Watch().model_dump(exclude={"on_change"}),
        "conditions": conditions(slo, manifest, verdict, events),
        **({"launch": lines} if (lines := launches(verdict, events)) else {}),
        "route": routes,
        "guard": [] if host_failed else guards(slo, verdict),
    }


def route(slo: Slo, workload: WorkloadVerdict, *, host_failed: bool) -> dict[str, Any]:
    """Return the route of one workload; only a promoted one speculates."""
    on = workload.outcome is WorkloadOutcome.PROMOTED and not host_failed
    setting = {knob: value for knob, value in workload.setting.items() if value is not None} if on else {}
    out: dict[str, Any] = {
        "workload": workload.name,
        "speculation": on,
        "because": workload.because,
        "setting": setting,
    }
    if workload.measured.longest_prompt is not None:
        out["longest_prompt"] = workload.measured.longest_prompt
    if on and any(check.passed_with == WARM_UP for check in workload.checks):
        out |= {"warm_up": True, "warm_up_after": PAUSE_S}
    if on and (most := _max_concurrency(slo, workload.choice)) is not None:
        out["max_concurrency"] = most
    if on and (below := _below(slo, tuple(sorted(setting.items())))):
        out["ladder"] = below
    if on and (measured := _figures(workload)):
        out["measured"] = measured
    if on and workload.region is not None:
        out["region"] = {axis.name: axis.bounds for axis in workload.region.axes}
    return out


def _max_concurrency(slo: Slo, choice: Choice | None) -> int | None:
    """Return up to how many requests in flight the sweep proves a gain; None where it did not sweep concurrency."""
    if choice is None or choice.concurrency is None or not choice.concurrency.by_streams:
        return None
    most = slo.soak.concurrency
    for streams, ratio in choice.concurrency.by_streams:
        if isinstance(ratio, Missing) or rounded(ratio.lo) <= 1:
            break
        most = max(most, streams)
    return most


def _below(slo: Slo, knobs: Setting) -> list[dict[str, Any]]:
    """Return the steps to try before plain decoding: those that the run would have soaked, one after another."""
    steps: list[dict[str, Any]] = []
    last: str | None = None
    while (down := next_step(slo, knobs, last)) is not None and speculates(down[1]):
        last, knobs = down
        steps.append({"rung": last, **dict(knobs)})
    return steps


def _figures(workload: WorkloadVerdict) -> dict[str, Any]:
    """Return the figures to compare production with where it has no baseline."""
    measured = workload.measured.figures
    return {name: figures("center", measured[name]) for name in MeasuredRoute.model_fields if name in measured}


def guards(slo: Slo, verdict: Verdict) -> list[dict[str, Any]]:
    """Return the bounds to watch while a route speculates: the tightest objective on each, then what was measured."""
    promoted = [workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    if not promoted:
        return []
    guard_by_key: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    for objective in (objective for objective in slo.objective if objective.against is None):
        guard = _from_objective(slo, objective, promoted)
        if guard is not None:
            key = (guard["metric"], objective.workloads)
            guard_by_key[key] = _tighter(guard_by_key.get(key, guard), guard, objective.bound)
    from_objectives = list(guard_by_key.values())
    return [
        *from_objectives,
        *_errors(slo, promoted, from_objectives),
        *(guard for workload in promoted for guard in _shown(slo, workload, from_objectives)),
    ]


def _tighter(earlier: dict[str, Any], later: dict[str, Any], bound: str) -> dict[str, Any]:
    stricter = later[bound] > earlier[bound] if bound == "at_least" else later[bound] < earlier[bound]
    return later if stricter else earlier


def _from_objective(slo: Slo, objective: Objective, promoted: list[WorkloadVerdict]) -> dict[str, Any] | None:
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
        acceptances = [
            workload.measured.figures.get("acceptance_rate")
            for workload in promoted
            if objective.applies_to(workload.name)
        ]
        bound = min(
            [
                bound,
                *(
                    (1 - ACCEPTANCE_MARGIN) * acceptance.lo
                    for acceptance in acceptances
                    if acceptance is not None and acceptance.lo < bound
                ),
            ]
        )
    guard = _guard(slo, metric.name, objective.bound, bound, objective.why)
    return guard | ({"workloads": list(objective.workloads)} if objective.workloads else {})


def _guard(slo: Slo, metric: str, bound: str, threshold: float, why: str) -> dict[str, Any]:
    out: dict[str, Any] = {"metric": metric, bound: rounded(threshold), "for": slo.soak.window_s}
    if metric in {"swap_growth", "throttle_time"}:
        out["over"] = slo.soak.duration  # the objective's time span
    if metric == "memory_pressure_critical" and threshold > 0:
        out["over"] = 2 * threshold + Watch().interval  # a run as long as the bound must fit into it
    if WATCHED[metric].host:
        out["missing_for"] = HOST_MISSING_S
    return out | {"why": why}


def _errors(
    slo: Slo, promoted: list[WorkloadVerdict], from_objectives: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield a guard on failed answers at the bound that the soak could show, for workloads without an own one."""
    bare = [workload for workload in promoted if not _guards(from_objectives, "error_rate", workload.name)]
    if not bare:
        return
    answers = min(workload.measured.answers or 0 for workload in bare)
    _, most = intervals.proportion_bounds(0, answers, slo.confidence) if answers else (0.0, ERRORS)
    why = f"no answer may fail; a soak of {answers} answers proves a share of at most {show(most, '1')}"
    guard = _guard(slo, "error_rate", "at_most", max(most, ERRORS), why)
    yield guard if len(bare) == len(promoted) else guard | {"workloads": [workload.name for workload in bare]}


def _guards(guards: list[dict[str, Any]], metric: str, workload: str) -> bool:
    """Return whether one of the guards watches *metric* of *workload*."""
    return any(guard["metric"] == metric and workload in guard.get("workloads", [workload]) for guard in guards)


def _shown(slo: Slo, workload: WorkloadVerdict, from_objectives: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield guards on what has no objective, at what the workload's soak showed with a margin."""
    measured = workload.measured.figures
    for metric, bound, why in (
        (
            "throughput_ratio",
            _ratio_floor(measured.get("throughput_ratio")),
            f"{percent(RATIO_MARGIN)} below the soak's lower bound, and never below plain decoding",
        ),
        (
            "acceptance_rate",
            _acceptance_floor(measured.get("acceptance_rate")),
            f"{percent(ACCEPTANCE_MARGIN)} below the soak's lower bound",
        ),
        (
            "canary_pass_rate",
            _pass_floor(measured.get("canary_pass_rate")),
            f"{percent(PASS_MARGIN)} fewer than in the soak",
        ),
    ):
        if bound is not None and not _guards(from_objectives, metric, workload.name):
            yield _guard(slo, metric, "at_least", bound, why) | {"workloads": [workload.name]}


def _ratio_floor(ratio: Estimate | None) -> float | None:
    return max(1.0, (1 - RATIO_MARGIN) * ratio.lo) if ratio is not None else None


def _acceptance_floor(acceptance: Estimate | None) -> float | None:
    return (1 - ACCEPTANCE_MARGIN) * acceptance.lo if acceptance is not None else None


def _pass_floor(rate: Estimate | None) -> float | None:
    return max(0.0, rate.center - PASS_MARGIN) if rate is not None else None
