"""The windows of a soak: acceptance, stretch by stretch."""

from collections import defaultdict

from gatekeeper.terms.outcome import Estimate, Missing, fact
from gatekeeper.verdict.evidence import Evidence, sound


def acceptance_windows(evidence: Evidence) -> dict[tuple[int, int], float | None]:
    """Return accepted over drafted tokens by (segment, number) of each window that has answers.

    Answers that drafted nothing count as accepting nothing; where no answer of the soak did, every window is None. A
    window without answers says nothing and is left out.
    """
    window_ns = round(evidence.window_s * 1e9)
    drafted: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    begun: dict[int, int] = {}
    for one in sorted(sound(evidence.answers), key=lambda one: (one.segment, one.answer.sent_ns)):
        start = begun.setdefault(one.segment, one.answer.sent_ns)
        number = (one.answer.ended_ns - start) // window_ns
        if one.answer.rounds is not None:
            drafted[one.segment, number][0] += one.answer.rounds.accepted
            drafted[one.segment, number][1] += one.answer.rounds.drafted
    if not any(tried for _, tried in drafted.values()):
        return dict.fromkeys(drafted)
    return {at: accepted / tried if tried else 0.0 for at, (accepted, tried) in drafted.items()}


def acceptance_window_min(evidence: Evidence) -> Estimate | Missing:
    """Fold acceptance over windows of the soak: the smallest, over three in a row, of the largest of the three."""
    seen = acceptance_windows(evidence)
    rates = {at: rate for at, rate in seen.items() if rate is not None}
    if not rates:
        return Missing("no answer drafted anything", len(seen))
    threes = [
        max(rates[segment, number + step] for step in range(3))
        for segment, number in rates
        if all((segment, number + step) in rates for step in range(3))
    ]
    if not threes:
        return Missing("the soak has no three consecutive windows with drafted tokens", len(rates))
    return fact(min(threes), len(rates))
