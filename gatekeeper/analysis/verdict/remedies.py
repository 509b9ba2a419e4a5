"""What was not proven, and what would prove it."""

import math
from dataclasses import dataclass

from gatekeeper.core.metrics import BY_NAME, Per
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show, show_seconds
from gatekeeper.core.verdict import Check, Outcome, Verdict

MOST_CANARIES = 100
"""Times as many canaries as this are no advice."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Something a reader may not rely on."""

    about: str
    """An objective with its workload, or the run."""
    because: str
    remedy: str


def gaps(slo: Slo, verdict: Verdict, *, resumable: bool) -> tuple[Gap, ...]:
    """Return everything the run did not prove, the run's own evidence first."""
    found = []
    if verdict.incomplete or resumable:
        again = "go on with `gatekeeper certify SLO.toml --resume --out RUN_DIR`" if resumable else "certify again"
        found.append(Gap("the run", verdict.incomplete or "it did not come to its end", again))
    for workload in verdict.workloads:
        open_checks = [check for check in workload.checks if check.outcome is Outcome.UNPROVEN]
        found += [_open(f"{workload.name}: {_named(one)}", one, resumable=resumable) for one in open_checks]
        if workload.outcome == "unproven" and not open_checks and not verdict.incomplete:
            found.append(Gap(f"{workload.name}: its outcome", workload.because, "certify again"))
    found += [
        _open(f"host: {_named(one)}", one, resumable=resumable)
        for one in verdict.host_checks
        if one.outcome is Outcome.UNPROVEN
    ]
    if verdict.grade == "demo":
        because = f"the soak was to last {show_seconds(slo.soak.duration)}: a demo, not a certificate"
        found.append(Gap("the grade", because, 'set soak.duration = "600 s" or more'))
    return tuple(found)


def _open(about: str, check: Check, *, resumable: bool) -> Gap:
    return Gap(about, check.because, "the rest of the run" if resumable else remedy(check))


def remedy(check: Check) -> str:
    """Say what would prove an unproven objective."""
    metric = BY_NAME[check.metric]
    if check.lo is not None and check.hi is not None and check.center is not None:
        return _narrower(check)
    if metric.host:
        return "`gatekeeper host` says what this host shows and what to install or allow; sample the whole soak"
    if metric.per is Per.WINDOW:
        return "a longer soak (soak.duration): three windows (soak.window) with drafted tokens are needed"
    if metric.against_plain and metric.counted:
        return "a longer soak (soak.max_duration), or more plain twins in it (soak.sentinel_share)"
    if metric.quantile is not None:
        return "more distinct canaries, each of them answered: answers to the same one are no new evidence"
    return "remove the cause, then certify again: a promise without a measurement is never kept"


def _narrower(check: Check) -> str:
    """Tell how many canaries would carry the interval off the bound: its width falls with the root of their number."""
    assert check.center is not None
    assert check.lo is not None
    assert check.hi is not None
    kept = check.center >= check.threshold if check.bound == "at_least" else check.center <= check.threshold
    side = check.center - check.lo if check.bound == "at_least" else check.hi - check.center
    if not kept:
        return "its centre lies on the wrong side: change the setting or the bound; more canaries would show it broken"
    room = abs(check.center - check.threshold)
    times = (side / room) ** 2 if room > 0 else math.inf
    if not times <= MOST_CANARIES:
        return f"the centre lies too near the bound of {show(check.threshold, check.unit)} to tell them apart"
    return f"about {math.ceil(times * check.n - 1e-6)} canaries instead of {check.n}, if the centre stays where it is"


def _named(check: Check) -> str:
    sign = "≥" if check.bound == "at_least" else "≤"
    return f"{check.metric} {sign} {show(check.threshold, check.unit)}"
