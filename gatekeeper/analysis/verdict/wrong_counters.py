"""Counters of drafted and accepted tokens that cannot be true, ours or the server's."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gatekeeper.analysis.metrics.comparability import MIN_ANSWERS
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.server_claims import tallies
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Finding, FindingKind
from gatekeeper.core.metrics import ALL, DECODE_RATIO
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.core.units import percent

SAME_COUNT = 0.10
"""A server's counts of its rounds may differ from ours by this share: it may end its last round elsewhere."""
ALL_ACCEPTED_LEAST = 50
"""Drafted tokens from which an acceptance of all of them is no chance."""
UNPREDICTABLE = "random"
"""The category of canaries whose answers no draft can predict (canaries/README.md)."""
COUNTED = frozenset(metric.name for metric in ALL if metric.from_rounds)
"""Metrics that need the counters of rounds."""


def counter_lie(about: str, detail: str) -> Finding:
    """Return the finding about wrong counters; metrics that need them are unproven."""
    advice = "do not rely on acceptance figures of this server; report the wrong counters to its developers"
    return Finding(FindingKind.COUNTER_LIE, about, detail, advice, COUNTED)


def counter_lies(evidence: PairedAnswers, knobs: Setting) -> list[str]:
    """Return what cannot be true of the counters of rounds, ours or the server's."""
    answers = successful(evidence.answers)
    lie = _all_accepted_for_nothing(evidence, answers)
    return [*impossible_counts(answers, knobs), *([lie] if lie is not None else [])]


def impossible_counts(answers: Sequence[Generation], knobs: Setting) -> list[str]:
    """Return what is wrong with the counters by arithmetic alone, however few the answers."""
    lengths = [value for knob, value in knobs if knob in DRAFT_LENGTHS]
    draft_tokens = max((length for length in lengths if isinstance(length, int)), default=0)
    lies = (
        _above_one(answers),
        _does_not_add_up(answers, draft_tokens),
        _counters_stay_same(answers),
        _disagrees(answers),
    )
    return [lie for lie in lies if lie is not None]


def _above_one(answers: Sequence[Generation]) -> str | None:
    for generation in answers:
        for whose, drafted, accepted in tallies(generation.answer):
            if accepted > drafted or min(drafted, accepted) < 0:
                share = f"{accepted} of {drafted} drafted tokens accepted ({whose})"
                return f"{generation.canary}: {share}, which is impossible"
    return None


def _does_not_add_up(answers: Sequence[Generation], draft_tokens: int) -> str | None:
    """Each round emits the accepted tokens and one of the target's; only the last round may be cut short."""
    for generation in answers:
        claims, counted, emitted = (
            generation.answer.claims,
            generation.answer.rounds,
            generation.answer.generated_tokens,
        )
        if emitted is None:
            continue
        pairs = [(counted.accepted, counted.rounds, counted.drafted)] if counted is not None else []
        if claims.accepted is not None and claims.rounds is not None:
            pairs.append((claims.accepted, claims.rounds, claims.drafted or 0))
        for accepted, rounds, drafted in pairs:
            tail = 1 + max(draft_tokens, math.ceil(drafted / rounds) if rounds > 0 else 0)
            if drafted > 0 and abs(emitted - accepted - rounds) > tail:
                parts = f"{rounds} rounds and {accepted} accepted tokens"
                return f"{generation.canary}: {parts} do not add up to {emitted} tokens"
    return None


def _counters_stay_same(answers: Sequence[Generation]) -> str | None:
    for whose, word in (("counted", "the counters"), ("claimed", "the server's counters")):
        counts = [
            (generation, count) for generation in answers for count in tallies(generation.answer) if count[0] == whose
        ]
        lengths = {generation.answer.output_tokens for generation, _ in counts}
        if len(counts) >= MIN_ANSWERS and len(lengths) > 3 and len({count for _, count in counts}) == 1:
            _, drafted, accepted = counts[0][1]
            if drafted > 0:
                return f"{word} show {accepted} of {drafted} for each of {len(counts)} answers of different lengths"
    return None


def _disagrees(answers: Sequence[Generation]) -> str | None:
    both = [counts for generation in answers if len(counts := tallies(generation.answer)) > 1]
    drafted = (sum(counts[whose][1] for counts in both) for whose in (0, 1))
    accepted = (sum(counts[whose][2] for counts in both) for whose in (0, 1))
    for name, (counted, claimed) in (("drafted", drafted), ("accepted", accepted)):
        if abs(counted - claimed) > SAME_COUNT * max(counted, claimed):
            return f"the server reports {claimed} {name} tokens, but {counted} were counted"
    return None


def _all_accepted_for_nothing(evidence: PairedAnswers, answers: Sequence[Generation]) -> str | None:
    for whose in ("counted", "claimed"):
        counts = [count for generation in answers for count in tallies(generation.answer) if count[0] == whose]
        drafted, accepted = sum(count[1] for count in counts), sum(count[2] for count in counts)
        if drafted < ALL_ACCEPTED_LEAST or accepted != drafted or not evidence.pairs:
            continue
        ratio = estimate(DECODE_RATIO, evidence)
        if isinstance(ratio, Estimate) and ratio.lo <= 1:
            return f"all {drafted} drafted tokens are accepted ({whose}), but it is {ratio.center:.2f}x plain decoding"
    return None


def negative_control(answers: Iterable[Generation], canaries: Mapping[tuple[str, str], Canary]) -> Finding | None:
    """Return a finding if drafts of unpredictable canaries are accepted as often as those of the most predictable.

    `canaries` is by (workload, id).
    """
    tokens: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    canaries_by_category: dict[str, set[str]] = defaultdict(set)
    for generation in successful(answers):
        category = canaries[generation.workload, generation.canary].category
        counts = tallies(generation.answer)
        if category is None or not counts or generation.role is Role.WARMUP:
            continue
        _, drafted, accepted = counts[0]
        tokens[category][0] += accepted
        tokens[category][1] += drafted
        canaries_by_category[category].add(generation.canary)
    rates = {
        name: accepted / tried
        for name, (accepted, tried) in tokens.items()
        if tried and len(canaries_by_category[name]) >= 5
    }
    lowest = rates.pop(UNPREDICTABLE, None)
    if lowest is None or not rates:
        return None
    name = max(sorted(rates), key=lambda category: rates[category])
    if lowest < rates[name]:
        return None
    detail = (
        f"acceptance is {percent(lowest, '.0f')} on random text, which no draft can predict, and "
        f"{percent(rates[name], '.0f')} on '{name}'"
    )
    advice = "acceptance must depend on the text: check what the server counts"
    return Finding(FindingKind.COUNTER_LIE, "negative control", detail, advice, COUNTED)
