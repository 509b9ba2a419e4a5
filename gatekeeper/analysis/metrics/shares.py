"""Shares of answers or of canaries: what each metric counts, as a fact or bounded for all prompts like them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from gatekeeper.analysis.metrics.lost_pairs import commonest_fault
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.words import exactness
from gatekeeper.analysis.metrics.words.explanations import explanations_for
from gatekeeper.analysis.metrics.words.harm import CUT_SHORT
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.records import Answer, Generation

BURSTY_LENGTH = 16
"""Shorter answers have too few bursts to tell drafting from a stall."""
BURSTY = 1.2
"""More tokens a burst than this are not one token at a time; a stop token without text adds no burst."""
BURSTS_SHOWN, BURSTS_STRAY = 0.2, 0.05
"""At least this share of the drafting arm's answers must come in bursts, and at most this share of the plain arm's."""
COMPLETE = frozenset({"stop", "tool_calls"})
"""Finish reasons of an answer that is not cut short."""


def share_of_canaries(holds: Mapping[str, bool], paired: PairedAnswers, *notes: str) -> Estimate | Missing:
    """Return the share of canaries for which something *holds*: counted, or bounded for all prompts like them."""
    if paired.frozen:
        return fact(fmean(holds.values()), len(holds), *notes)
    return add_notes(intervals.clustered_share({name: [mark] for name, mark in holds.items()}, paired.level), *notes)


def share_of_answers(
    marks: Mapping[str, Sequence[bool]], paired: PairedAnswers, description: str
) -> Estimate | Missing:
    """Return the share of marked answers, counted or bounded in the same way; *description* says what a mark is."""
    if paired.frozen:
        count = sum(map(len, marks.values()))
        return fact(sum(map(sum, marks.values())) / count, count)
    marked = sum(any(canary_marks) for canary_marks in marks.values())
    return add_notes(intervals.clustered_share(marks, paired.level), f"{marked} of {len(marks)} canaries {description}")


def add_notes(share: Estimate | Missing, *notes: str) -> Estimate | Missing:
    """Add *notes* to an estimate."""
    return replace(share, notes=(*share.notes, *notes)) if isinstance(share, Estimate) else share


def check_all_answered(
    names: Collection[str], answered: Collection[str], paired: PairedAnswers, where: str = "both arms"
) -> Missing | None:
    """Return how many of *names* were not answered; None where all were."""
    lacking = len(set(names) - set(answered))
    if not lacking:
        return None
    reason = f"; {paired.not_forced}" if paired.not_forced else ""
    return Missing(f"{lacking} of {len(names)} canaries were not answered in {where}{reason}", len(names) - lacking)


def error_rate(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers that failed."""
    failed = per_canary(paired.answers, lambda answer: answer.fault is not None)
    fault = commonest_fault(paired.answers)
    return add_notes(share_of_answers(failed, paired, "had an answer that failed"), *([fault] if fault else []))


def speculation_engaged(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers with drafted tokens; an answer of one token leaves nothing to draft."""
    successes = successful(paired.answers)
    long_enough = [generation for generation in successes if (generation.answer.output_tokens or 0) > 1]
    if all(_has_drafted(generation.answer) is None for generation in long_enough):
        return _show_by_bursts(paired)
    failed = {generation.canary for generation in paired.answers} - {generation.canary for generation in successes}
    if failed and not paired.frozen:  # such a canary could be either
        return Missing(f"all answers of {len(failed)} canaries failed", len(long_enough))
    proposed = per_canary(long_enough, lambda answer: _has_drafted(answer) is True)
    return share_of_answers(proposed, paired, "had an answer with drafted tokens")


def _has_drafted(answer: Answer) -> bool | None:
    """Return whether a draft proposed tokens, by our counters or else the server's; None where neither counts.

    A server that does not count drafted tokens may count its verify rounds, and each of them had a draft.
    """
    claims = answer.claims
    drafted = answer.rounds.drafted if answer.rounds else claims.drafted
    if drafted is None:
        drafted = claims.rounds
    return None if drafted is None else drafted > 0


def _show_by_bursts(paired: PairedAnswers) -> Estimate | Missing:
    """Show without counters that a draft was used: its answers come in bursts, and plain decoding's do not.

    That shows whether the draft was used at all, not how often.
    """
    table = paired.table
    drafting, plain = (
        [
            tokens > BURSTY * table.count_bursts(generation.answer)
            for generation in successful(arm)
            if (tokens := generation.answer.output_tokens or 0) >= BURSTY_LENGTH
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


def truncation(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries that the draft cut short."""
    drafting, plain = (
        per_canary(successful(arm), _ending_with_text if paired.greedy else _ending)
        for arm in (paired.answers, paired.plain)
    )
    cut = {
        canary: any(
            _cut_short(ending, baseline, greedy=paired.greedy)
            for ending in set(endings)
            for baseline in set(plain[canary])
        )
        for canary, endings in drafting.items()
        if canary in plain
    }
    if not cut:
        return Missing("no canary was answered in both arms")
    if not paired.frozen and (missing := check_all_answered(paired.canaries, cut, paired)) is not None:
        return missing
    return share_of_canaries(cut, paired)


class _Ending(NamedTuple):
    complete: bool
    tokens: int | None
    text: str = ""


def _ending(answer: Answer) -> _Ending:
    return _Ending(answer.finish in COMPLETE, answer.output_tokens)


def _ending_with_text(answer: Answer) -> _Ending:
    return _ending(answer)._replace(text=answer.reasoning + answer.text)


def _cut_short(ending: _Ending, baseline: _Ending, *, greedy: bool) -> bool:
    """Return whether an answer ends before plain decoding's does.

    An answer that goes on with other words has an end of its own: whether such ends are worse, all of them tell
    together (`words.harm`).
    """
    (complete, tokens, text), (baseline_complete, baseline_tokens, baseline_text) = ending, baseline
    if not baseline_text.startswith(text):
        return False
    if baseline_complete and not complete:
        return True
    if not greedy or tokens is None or baseline_tokens is None:
        return False
    return tokens < CUT_SHORT * baseline_tokens


def agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries whose greedy answers have the words of plain decoding."""
    if not paired.greedy:
        return Missing("tokens can only be compared at temperature 0")
    paired = paired.words
    explanations = explanations_for(paired)
    compared = exactness.compare(paired.answers, paired.plain, explanations)
    if (missing := check_all_answered(paired.canaries, compared.agree, paired)) is not None:
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
