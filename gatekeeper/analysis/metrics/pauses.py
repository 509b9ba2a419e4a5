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
    return [canaries[index * len(canaries) // number] for index in range(number)]


def warmed_delta(paired: PairedAnswers) -> Estimate | Missing:
    """Return the change of the time to first token, from plain decoding after a pause to drafting after a warm-up."""
    if isinstance(paired.pauses, str):
        return Missing(paired.pauses)
    times = {
        (arm, role): per_canary(
            (
                generation
                for generation in successful(paired.pauses)
                if (generation.arm, generation.role) == (arm, role)
            ),
            ttft,
        )
        for arm in ("plain", "candidate")
        for role in (Role.LOADED, Role.IDLE, Role.FOLLOWING)
    }
    before, warmed = times["plain", Role.IDLE], times["candidate", Role.FOLLOWING]
    ratios = {name: [median(warmed[name]) / median(before[name])] for name in warmed.keys() & before.keys()}
    ratio = intervals.geometric_mean_ratio(ratios, paired.level)
    if isinstance(ratio, Missing):
        return ratio
    medians = "; ".join(
        f"{'plain' if arm == 'plain' else 'drafting'} {_medians(times, arm)}" for arm in ("plain", "candidate")
    )
    return Estimate(
        ratio.center - 1,
        ratio.lo - 1,
        ratio.hi - 1,
        ratio.n,
        (f"median time to first token after a start, after a pause, right after a request: {medians}",),
        confidence=ratio.confidence,
        scope="population",
    )


def _medians(times: dict[tuple[str, Role], dict[str, list[float]]], arm: str) -> str:
    roles = (Role.LOADED, Role.IDLE, Role.FOLLOWING)
    pooled = [[time for canary_times in times[arm, role].values() for time in canary_times] for role in roles]
    return ", ".join(show_seconds(median(role_times)) if role_times else "unknown" for role_times in pooled)
