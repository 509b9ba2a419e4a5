"""From a verdict to what may be deployed: a route per workload, and the guards that keep it honest afterwards."""

from typing import Any

from gatekeeper.terms.outcome import Outcome, Verdict, WorkloadVerdict
from gatekeeper.terms.slo import Objective, Slo

WARM_UP_TTFT = 0.08
"""A larger rise of TTFT asks for a warm-up policy (the brief for the Mac mini M4, quoted in METHODOLOGY.md)."""
GUARDED = {
    "acceptance_rate": "acceptance_rate",
    "acceptance_window_min": "acceptance_rate",
    "throughput_ratio": "throughput_ratio",
    "error_rate": "error_rate",
    "memory_headroom": "memory_headroom",
    "memory_pressure_critical": "memory_pressure_critical",
    "swap_growth": "swap_growth",
    "json_pass_delta": "json_pass_delta",
    "tool_call_pass_delta": "tool_call_pass_delta",
    "task_pass_delta": "task_pass_delta",
}
"""Promises that can still be watched in production, and the metric that is watched."""


def policy(slo: Slo, verdict: Verdict, *, verdict_sha256: str, issued: str, expires: str) -> dict[str, Any]:
    """Return the content of policy.toml."""
    host_failed = any(check.outcome is Outcome.FAIL for check in verdict.host_checks)
    return {
        "schema": 1,
        "slo": slo.name,
        "grade": verdict.grade,
        "manifest_sha256": verdict.manifest_sha256,
        "verdict_sha256": verdict_sha256,
        "issued": issued,
        "expires": expires,
        "default": {"speculation": False},
        "route": [route(one, host_failed=host_failed) for one in verdict.workloads],
        "guard": guards(slo, verdict),
    }


def route(workload: WorkloadVerdict, *, host_failed: bool) -> dict[str, Any]:
    """Return the route of one workload; only a promoted one speculates."""
    on = workload.outcome == "promoted" and not host_failed
    out: dict[str, Any] = {
        "workload": workload.name,
        "speculation": on,
        "because": workload.because,
        "setting": {knob: value for knob, value in workload.setting.items() if value is not None} if on else {},
    }
    delta = workload.measured.get("ttft_delta", {})
    if on and delta.get("hi", 0.0) > WARM_UP_TTFT:
        out["warm_up"] = True
    return out


def guards(slo: Slo, verdict: Verdict) -> list[dict[str, Any]]:
    """Return the bounds to watch while a route speculates, each once."""
    if not any(one.outcome == "promoted" for one in verdict.workloads):
        return []
    found: dict[tuple[str, str, tuple[str, ...]], dict[str, Any]] = {}
    for objective in slo.objective:
        if objective.metric in GUARDED:
            metric = GUARDED[objective.metric]
            found.setdefault((metric, objective.bound, objective.workloads), _guard(slo, objective, metric))
    if not any(key[0] == "error_rate" for key in found):
        found["error_rate", "at_most", ()] = {"metric": "error_rate", "at_most": 0.0, "for": slo.soak.window_s}
    return list(found.values())


def _guard(slo: Slo, objective: Objective, metric: str) -> dict[str, Any]:
    out: dict[str, Any] = {"metric": metric, objective.bound: objective.threshold, "for": slo.soak.window_s}
    return out | ({"workloads": list(objective.workloads)} if objective.workloads else {})
