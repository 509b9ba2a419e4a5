"""The forecast of how much longer an unproven run must soak until its open objectives are decided."""

import math
from dataclasses import replace

from gatekeeper.analysis.verdict.case import Case, soaked_seconds
from gatekeeper.analysis.verdict.conclude import LEAST_PART, conclude
from gatekeeper.analysis.verdict.remedies import times_as_long
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.errors import ExitCode
from gatekeeper.core.verdict import Outcome

ROUND_TO_S = 60.0
"""An extension is offered in whole minutes."""


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
    return more if due else None
