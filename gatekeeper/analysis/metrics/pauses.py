"""The first token after a start, after a pause and right after another request: what a warm-up is worth."""

from collections.abc import Sequence
from statistics import median

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Role
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Estimate, Missing

CANARIES = 10
"""Per workload: enough for an interval on a ratio, and four minutes a workload with both arms."""
PAUSE_S = 10.0
"""Before a request that counts as one after a pause. macOS unwires the weights of an idle process after about a second
(llama.cpp's pull requests 11427 and 17766), and a reader pauses for longer than ten."""
ANSWER_TOKENS = 32
"""Of an answer in this pass, at most: only its first token is judged, and the first round must draft in full."""


def sent_after_pauses(canaries: Sequence[Canary]) -> list[Canary]:
    """Return evenly picked canaries of a workload for this pass."""
    number = min(CANARIES, len(canaries))
    return [canaries[at * len(canaries) // number] for at in range(number)]


def warmed_delta(paired: PairedAnswers) -> Estimate | Missing:
    """Return the change of the time to first token, from plain decoding after a pause to drafting after a warm-up."""
    if isinstance(paired.pauses, str):
        return Missing(paired.pauses)
    times = {
        (arm, role): per_canary((one for one in successful(paired.pauses) if (one.arm, one.role) == (arm, role)), ttft)
        for arm in ("plain", "candidate")
        for role in (Role.LOADED, Role.IDLE, Role.FOLLOWING)
    }
    before, warmed = times["plain", Role.IDLE], times["candidate", Role.FOLLOWING]
    ratios = {name: [median(warmed[name]) / median(before[name])] for name in warmed.keys() & before.keys()}
    found = intervals.geometric_mean_ratio(ratios, paired.level)
    if isinstance(found, Missing):
        return found
    shown = "; ".join(
        f"{'plain' if arm == 'plain' else 'drafting'} {_medians(times, arm)}" for arm in ("plain", "candidate")
    )
    return Estimate(
        found.center - 1,
        found.lo - 1,
        found.hi - 1,
        found.n,
        (f"median time to first token after a start, after a pause, right after a request: {shown}",),
        confidence=found.confidence,
        scope="population",
    )


def _medians(times: dict[tuple[str, Role], dict[str, list[float]]], arm: str) -> str:
    roles = (Role.LOADED, Role.IDLE, Role.FOLLOWING)
    pooled = [[time for mine in times[arm, role].values() for time in mine] for role in roles]
    return ", ".join(show_seconds(median(one)) if one else "unknown" for one in pooled)
