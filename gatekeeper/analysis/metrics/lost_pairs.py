"""Lost pairs: two answers that cannot be compared, by a fault, their lengths or a missing value."""

from collections import Counter
from collections.abc import Iterable

from gatekeeper.core.records import Generation
from gatekeeper.core.text import quote, show_count
from gatekeeper.core.units import percent

MAX_LOST_SHARE = 0.05
"""With a larger share of lost pairs, ratios are unproven."""
MIN_LENGTH_RATIO = 0.6
"""Greedy answers whose lengths differ more are different work: the speeds of such a pair are not compared.

Numerics alone may turn a token, and the answer then ends elsewhere; not at its half.
"""
MIN_LENGTH_RATIO_SAMPLED = 0.1
"""Above temperature 0 lengths vary: only an answer under a tenth of its baseline counts as cut short."""

Pair = tuple[Generation, Generation]


def similar_lengths(pair: Pair, least: float) -> bool:
    """Return whether two answers are of similar length, so that their speeds can be compared."""
    length, other_length = pair[0].answer.output_tokens, pair[1].answer.output_tokens
    if length is None or other_length is None:
        return True
    return min(length, other_length) >= least * max(length, other_length)


def too_many_lost(lost: int, pairs: int, limit: float) -> str | None:
    """Return why the pairs do not suffice, *limit* being the share that may be lost; None where they do."""
    if pairs == 0:
        return "no answer of this workload is paired with a plain one"
    if lost / pairs > limit:
        allowed = percent(limit, ".3g")
        return f"{lost} of {pairs} pairs are lost to faults, different lengths or missing speeds, {allowed} allowed"
    return None


def commonest_fault(answers: Iterable[Generation]) -> str:
    """Describe the kind of fault that most failed answers have, by its commonest wording; empty where none failed."""
    faults = [generation.answer.fault for generation in answers if generation.answer.fault is not None]
    if not faults:
        return ""
    kind, count = Counter(fault.partition(":")[0] for fault in faults).most_common(1)[0]
    wording = Counter(fault for fault in faults if fault.partition(":")[0] == kind).most_common(1)[0][0]
    return f"most often {quote(wording)} ({count} of {show_count(len(faults), 'failed answer')})"
