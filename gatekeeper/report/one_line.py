"""The verdict in one line, for a mail, a title or the end of a log."""

from gatekeeper.core.text import one_line
from gatekeeper.core.verdict import Outcome, Verdict, WorkloadVerdict
from gatekeeper.report.text import MARKS, against_plain

LONGEST = 160
"""A reason is cut here: the line must stay one that a person reads at a glance."""


def render(verdict: Verdict) -> str:
    """Return the outcome, the exit code, then each workload with its speed against plain decoding or its reason."""
    demo = "" if verdict.grade == "certification" else f", {verdict.grade}"
    head = f"{verdict.slo}: {verdict.outcome.replace('_', ' ')} (exit code {verdict.exit_code}{demo})"
    parts = [f"not proven: {_short(verdict.incomplete)}"] if verdict.incomplete else []
    parts += [_part(one) for one in verdict.workloads]
    kept = Outcome.PASS
    parts += [f"host {MARKS[one.outcome]}: {_short(one.because)}" for one in verdict.host_checks if one.outcome != kept]
    line = f"{head}: {'; '.join(parts)}" if parts else head
    return one_line(line) + "\n"


def _part(one: WorkloadVerdict) -> str:
    if one.outcome == "promoted":
        return f"{one.name} {against_plain(one)} times plain decoding"
    if one.outcome == "graded_back" and not one.required:
        return f"{one.name} decodes plainly"
    return f"{one.name} {one.outcome.replace('_', ' ')}: {_short(one.because)}"


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 4]} ..."
