"""The first token after a start, after a pause and right after another request: what a warm-up is worth."""

from dataclasses import replace
from itertools import product
from statistics import median

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Role
from gatekeeper.core.units import show_seconds

ROLES = (Role.LOADED, Role.IDLE, Role.FOLLOWING)
"""The roles of its requests: after a start, after a pause, right after another."""


def delta_after_pause(paired: PairedAnswers, drafting: Role) -> Estimate | Missing:
    """Return the change of the time to first token, from plain decoding after a pause to drafting.

    *drafting* says whether that is after a pause as well, or right after another request, as after a warm-up.
    """
    recorded = paired.answers_of("pauses")
    if isinstance(recorded, Missing):
        return recorded
    answers = successful(recorded)
    times = {
        key: per_canary((answer for answer in answers if (answer.arm, answer.role) == key), ttft)
        for key in product(("plain", "candidate"), ROLES)
    }
    before, after = times["plain", Role.IDLE], times["candidate", drafting]
    ratios = {name: [median(after[name]) / median(before[name])] for name in after.keys() & before.keys()}
    ratio = intervals.geometric_mean_ratio(ratios, paired.level)
    if isinstance(ratio, Missing):
        return ratio
    medians = f"plain {_medians(times, 'plain')}; drafting {_medians(times, 'candidate')}"
    note = f"median time to first token after a start, after a pause, right after a request: {medians}"
    return replace(ratio.as_change(), notes=(note,), scope="population")


def _medians(times: dict[tuple[str, Role], dict[str, list[float]]], arm: str) -> str:
    pooled = [[time for canary_times in times[arm, role].values() for time in canary_times] for role in ROLES]
    return ", ".join(show_seconds(median(role_times)) if role_times else "unknown" for role_times in pooled)
