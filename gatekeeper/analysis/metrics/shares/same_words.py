"""The share of canaries whose answers have the same words in both arms, repeated, and with a warm cache."""

from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.shares.counted_shares import share_of_canaries
from gatekeeper.analysis.metrics.shares.pass_rates import unanswered
from gatekeeper.analysis.metrics.words import exactness, warm_cache_words
from gatekeeper.analysis.metrics.words.explanations import explanations_for
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Estimate, Missing


def agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries whose greedy answers have the words of plain decoding."""
    if not paired.greedy:
        return Missing("tokens can only be compared at temperature 0")
    paired = paired.words
    explanations = explanations_for(paired)
    compared = exactness.compare(paired.answers, paired.plain, explanations)
    if (missing := unanswered(paired.canaries, compared.agree, paired)) is not None:
        return missing
    agreed = share_of_canaries(compared.agree, paired, *compared.notes())
    return replace(agreed, shows=explanations.refutes) if isinstance(agreed, Estimate) else agreed


def plain_repeats(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries to which plain decoding gave the same greedy answer each time."""
    if not paired.greedy:
        return Missing("answers are only the same each time at temperature 0")
    decoded = per_canary(successful(plain_answers(paired)), lambda answer: answer)
    repeated = {
        canary: all(exactness.same_output(later, answers[0]) for later in answers[1:])
        for canary, answers in decoded.items()
        if len(answers) > 1
    }
    if lacking := len(paired.canaries) - len(repeated):
        return Missing(f"{lacking} of {len(paired.canaries)} canaries have fewer than two plain answers", len(repeated))
    return share_of_canaries(repeated, paired)


def plain_answers(paired: PairedAnswers) -> tuple[Generation, ...]:
    """Return the answers that plain decoding wrote, without those that a forced pass stands in for."""
    words = paired.words
    return tuple(
        generation for generation in (*words.plain, *words.answers) if dict(generation.setting).get("draft") is None
    )


def warm_cache_agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries whose words the prompt cache leaves alone."""
    if isinstance(paired.warm_cache, str):
        return Missing(paired.warm_cache)
    cold = successful(paired.answers) if paired.greedy else ()
    share = warm_cache_words.beyond_control(paired.warm_cache, paired.canaries.keys(), cold, paired.level)
    if isinstance(share, Missing) or paired.frozen:
        return share
    # Of prompts like these a count is no fact: so many canaries bound their share.
    lo, hi = intervals.proportion_bounds(round(share.center * share.n), share.n, paired.level)
    return replace(share, lo=min(lo, share.lo), hi=max(hi, share.hi), confidence=paired.level)
