"""The verdict as a badge: the JSON that shields.io draws one from."""

import json

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, outcome_words
from gatekeeper.core.text import counted, one_line
from gatekeeper.report.data.workload_summary import short_ratio, speed_up

COLOURS = {"promoted": "#0b7a58", "graded_back": "#b4380a", "failed": "#b4380a", "unproven": "#7347ad"}
DEMO = "#856000"
LONGEST = 60
"""Characters of a badge; with more, workloads are counted instead of named."""


def message(verdict: Verdict) -> str:
    """Return what the badge says: each workload's speed where drafting is on, else the outcome."""
    on = [workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    speeds = [
        f"{workload.name} {short_ratio(speed.center)}" for workload in on if (speed := speed_up(workload)) is not None
    ]
    shows_speeds = verdict.outcome is WorkloadOutcome.PROMOTED and speeds
    text = (
        one_line(", ".join(speeds))
        if shows_speeds
        else outcome_words(verdict.outcome, [workload.outcome for workload in verdict.workloads])
    )
    if len(text) > LONGEST:
        text = f"drafting on for {counted(len(on), 'workload')}"
    return text if verdict.grade == "certification" else f"{verdict.grade}: {text}"


def render(verdict: Verdict) -> str:
    """Return the document of a shields.io endpoint badge."""
    document = {"schemaVersion": 1, "label": one_line(verdict.slo)[:LONGEST], "message": message(verdict)}
    is_demo = verdict.grade != "certification" and verdict.outcome is WorkloadOutcome.PROMOTED
    return json.dumps(document | {"color": DEMO if is_demo else COLOURS[verdict.outcome]}, ensure_ascii=False) + "\n"
