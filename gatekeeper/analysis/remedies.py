"""What a run did not prove or keep, and the remedy of each check."""

import math
from dataclasses import dataclass, replace

from gatekeeper.analysis.conclude import LEAST_PART, conclude
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.analysis.verdict.soak_time import soaked_seconds
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Metric, Per
from gatekeeper.core.reasons import CERTIFICATION
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show_seconds

MOST_CANARIES = 100
"""Advice to multiply the canaries by more than this is no use."""
ROUND_TO_S = 60.0
"""An extension is offered in whole minutes."""
NEEDED = {
    "were counted": "report the counts of this server to its developers; else remove the objective",
    "does not report": "use a server that reports it; else remove the objective",
    "too few canaries": "add canaries, or soak longer; else remove the objective",
    "answers to each, show that": "add canaries, or soak longer; else raise visible_harm",
    "canaries show that": "add so many distinct canaries, or raise visible_harm",
}
"""What it takes, by the reason why no longer soak helps."""
CHANGE = "change the draft, the setting or the bound"
"""What to do about an objective that names no metric of ours."""
PLAIN_REMEDY = "use a smaller target or a faster machine: plain decoding misses the bound"
"""Where nothing drafts, no advice about the draft helps."""
HOST_REMEDY = "close other programs, or use a smaller target: it fails without a draft too"
MOST_EXTENSION_S = 86_400.0
"""A longer one is no advice: more canaries or another bound are."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that is not proven."""

    about: str
    """An objective with its workload, or the run."""
    because: str
    remedy: str


def gaps(slo: Slo, verdict: Verdict, *, resumable: bool) -> tuple[Gap, ...]:
    """Return everything the run did not prove, the run's own evidence first."""
    unproven = []
    again = "certify again"
    if resumable or verdict.ended_with_sweep:
        again = "continue it: gatekeeper certify SLO.toml --resume --output RUN_DIR"
    if verdict.doubts and not resumable:
        reasons: dict[str, list[str]] = {}
        for doubt in verdict.doubts:
            reasons.setdefault(doubt.advice, []).append(doubt.because)
        unproven += [Gap("the run", "; ".join(because), advice) for advice, because in reasons.items()]
    elif verdict.incomplete or resumable:
        unproven.append(Gap("the run", verdict.incomplete or "it was interrupted", again))
    for workload in verdict.workloads:
        open_checks = [check for check in workload.checks if check.outcome is Outcome.UNPROVEN]
        unproven += [
            _describe_gap(f"{workload.name}: {_describe_objective(check)}", check, resumable=resumable)
            for check in open_checks
        ]
        if workload.outcome is WorkloadOutcome.UNPROVEN and not open_checks and not verdict.incomplete:
            unproven.append(Gap(f"{workload.name}: its outcome", workload.because, again))
    open_host = [check for check in verdict.host_checks if check.outcome is Outcome.UNPROVEN]
    unproven += [
        _describe_gap(f"host: {_describe_objective(check)}", check, resumable=resumable) for check in open_host
    ]
    if verdict.grade == "demo":
        because = f"the soak of {show_seconds(slo.soak.duration)} makes a demo, not a certificate"
        unproven.append(Gap("the grade", because, f'set soak.duration = "{CERTIFICATION}" or more'))
    return tuple(unproven)


def _describe_gap(about: str, check: Check, *, resumable: bool) -> Gap:
    return Gap(about, check.because, "continue the run" if resumable else remedy(check))


def remedy(check: Check) -> str:
    """Return what to do about an unproven objective."""
    if check.still_changing:
        return "soak longer, until the ratio no longer changes"
    if check.lo is not None and check.hi is not None and check.center is not None:
        return _narrower(check)
    return _advise_measurement(check, BY_NAME[check.metric])


def failed_remedy(check: Check, *, drafting: bool = True) -> str:
    """Return what to do where an objective failed; where nothing was *drafting*, no advice about the draft."""
    if check.against is not None:
        return "undo what changed since the certified run; gatekeeper versus compares what runs now with what ran then"
    metric = BY_NAME.get(check.metric)
    advice = metric.remedy if metric is not None else CHANGE
    if drafting or "draft" not in advice:
        return advice
    return HOST_REMEDY if metric is not None and metric.host else PLAIN_REMEDY


def _advise_measurement(check: Check, metric: Metric) -> str:
    """Return what it takes to measure an objective that has no estimate."""
    for reason, needed in NEEDED.items():
        if reason in check.because:
            return needed
    if metric.host:
        advice = "run `gatekeeper doctor`: it lists the sensors of this host and what to install or allow"
    elif metric.per is Per.WINDOW:
        advice = "soak longer (soak.duration): it needs three windows (soak.window) with drafted tokens"
    elif check.against is not None:
        advice = "certify as the certified run was made, or anew with --baseline none"
    elif metric.against_plain and metric.counted:
        advice = "soak longer (soak.max_duration), or with more baseline requests (soak.baseline_share)"
    elif metric.quantile is not None:
        advice = "add distinct canaries: repeated answers to the same canary add no evidence"
    else:
        advice = "remove the cause, or the objective: one that is not measured never passes"
    return advice


def _narrower(check: Check) -> str:
    """Return how many canaries would decide it: the interval's width falls with the square root of their number."""
    assert check.center is not None
    met = check.center >= check.threshold if check.bound == "at_least" else check.center <= check.threshold
    if not met:
        return "change the setting or the bound: the estimate misses it, so more answers would make it fail"
    times = times_as_long(check)
    if times is None:
        return (
            f"set another bound: the estimate is too close to {BY_NAME[check.metric].show(check.threshold)} to decide"
        )
    if check.scope == "frozen" or BY_NAME[check.metric].host:
        return f"soak about {math.ceil(10 * times - 1e-6) / 10:g} times as long, if the estimate stays the same"
    return (
        f"use about {math.ceil(times * check.n - 1e-6)} canaries instead of {check.n}, if the estimate stays the same"
    )


def times_as_long(check: Check) -> float | None:
    """Return how many times as many answers decide an open check, either way; None if too many, or not measured."""
    if check.still_changing:
        return 2.0  # its last half is then as long as the whole of it was
    if check.center is None or check.lo is None or check.hi is None:
        return None
    room = abs(check.center - check.threshold)
    side = check.center - check.lo if check.center >= check.threshold else check.hi - check.center
    times = (side / room) ** 2 if room > 0 else math.inf
    return times if times <= MOST_CANARIES else None


def passes_at(check: Check) -> float | None:
    """Return the tightest bound of two digits at which a check would have passed; None if there is none to set."""
    end = check.lo if check.bound == "at_least" else check.hi
    if end is None or (check.bound == "at_least" and end == 0 < check.threshold):  # every answer keeps such a bound
        return None
    if end == 0:
        return 0.0
    scale = 10.0 ** (1 - math.floor(math.log10(abs(end))))
    turn = math.floor if check.bound == "at_least" else math.ceil
    near = round(end * scale)  # 0.29 * 100 is a little less than 29
    return (near if abs(end * scale - near) < 1e-6 else turn(end * scale)) / scale


def _describe_objective(check: Check) -> str:
    sign = "≥" if check.bound == "at_least" else "≤"
    return f"{check.metric} {sign} {BY_NAME[check.metric].show(check.threshold)}"


def extension(case: Case, verdict: Verdict) -> float | None:
    """Return the seconds of soak after which every open interval is expected to be decided; None if no soak would.

    An interval narrows with the square root of its answers, as long as the estimate stays the same.
    """
    if verdict.exit_code != ExitCode.UNPROVEN or verdict.incomplete:
        return None
    waiting = [
        workload for workload in verdict.workloads if workload.required and workload.outcome is WorkloadOutcome.UNPROVEN
    ]
    opened = [check for workload in waiting for check in workload.checks if check.outcome is Outcome.UNPROVEN]
    factors_or_none = [times_as_long(check) for check in opened]
    factors = [factor for factor in factors_or_none if factor is not None]
    if not factors or len(factors) < len(factors_or_none):
        return None
    soaked = max((soaked_seconds(recorded.records) for recorded in case.soaks.values()), default=0.0)
    seconds = max((max(factors) - 1) * soaked, LEAST_PART * case.slo.soak.duration)
    more = math.ceil(seconds / ROUND_TO_S) * ROUND_TO_S
    # As `certify --extend` asks: whether a further part is due at all.
    due = any(soak.part > 1 for soak in conclude(replace(case, extended=soaked + more)).needs)
    return more if due and more <= MOST_EXTENSION_S else None


def drafts_in_the_end(verdict: Verdict) -> bool:
    """Return whether a draft ran in the last soak: a host check that failed there may be the draft's doing."""
    return any(workload.setting.get("draft") for workload in verdict.workloads)
