"""The share of answers in which the draft was used, by counters, or else by the bursts in which answers came."""

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.shares.counted_shares import share_of_answers
from gatekeeper.analysis.metrics.timing import came_in_bursts
from gatekeeper.core.records import Answer
from gatekeeper.core.verdict import Estimate, Missing, fact

BURSTY_LENGTH = 16
"""Shorter answers have too few bursts to tell drafting from a stall."""


BURSTS_SHOWN, BURSTS_STRAY = 0.2, 0.05
"""At least this share of the drafting arm's answers must come in bursts, and at most this share of the plain arm's."""


def engaged(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers with drafted tokens; an answer of one token leaves nothing to draft."""
    successes = successful(paired.answers)
    long_enough = [generation for generation in successes if (generation.answer.output_tokens or 0) > 1]
    if all(_proposed(generation.answer) is None for generation in long_enough):
        return _seen_in_bursts(paired)
    failed = {generation.canary for generation in paired.answers} - {generation.canary for generation in successes}
    if failed and not paired.frozen:  # such a canary could be either
        return Missing(f"all answers of {len(failed)} canaries failed", len(long_enough))
    proposed = per_canary(long_enough, lambda answer: _proposed(answer) is True)
    return share_of_answers(proposed, paired, "had an answer with drafted tokens")


def _proposed(answer: Answer) -> bool | None:
    """Return whether a draft proposed tokens, by our counters or else the server's; None where neither counts.

    A server that does not count drafted tokens may count its verify rounds, and each of them had a draft.
    """
    claims = answer.claims
    drafted = answer.rounds.drafted if answer.rounds else claims.drafted
    if drafted is None:
        drafted = claims.rounds
    return None if drafted is None else drafted > 0


def _seen_in_bursts(paired: PairedAnswers) -> Estimate | Missing:
    """Show without counters that a draft was used: its answers come in bursts, and plain decoding's do not.

    That shows whether the draft was used at all, not how often.
    """
    together = paired.burst_gap
    drafting, plain = (
        [
            came_in_bursts(generation.answer, together)
            for generation in successful(arm)
            if (generation.answer.output_tokens or 0) >= BURSTY_LENGTH
        ]
        for arm in (paired.answers, paired.plain)
    )
    counts = f"{sum(drafting)} of {len(drafting)} answers came in bursts, {sum(plain)} of {len(plain)} plain ones did"
    shown = sum(drafting) >= BURSTS_SHOWN * len(drafting) and sum(plain) <= BURSTS_STRAY * len(plain)
    if not (drafting and plain and shown):
        return Missing(f"cannot determine whether the draft was used: no counters, {counts}")
    if not paired.frozen:
        return Missing("cannot determine in which answers the draft was used: no counters", len(drafting))
    return fact(1.0, len(drafting), f"without counters: {counts}")
