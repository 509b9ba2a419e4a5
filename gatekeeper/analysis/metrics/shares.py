"""Estimates that count: pass rates, agreement, faults, drafting and endings, as shares of answers or of canaries."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.timing import came_in_bursts
from gatekeeper.analysis.metrics.words import exactness, warm_cache_words
from gatekeeper.analysis.metrics.words.explanations import explanations_for
from gatekeeper.analysis.metrics.words.first_token_distribution import distribution_test
from gatekeeper.analysis.metrics.words.harm import CUT_SHORT, HARMS
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.text import counted, quote
from gatekeeper.core.verdict import Estimate, Missing, fact

BURSTY_LENGTH = 16
"""Shorter answers have too few bursts to tell drafting from a stall."""
BURSTS_SHOWN, BURSTS_STRAY = 0.2, 0.05
"""At least this share of the drafting arm's answers must come in bursts, and at most this share of the plain arm's."""
COMPLETE = frozenset({"stop", "tool_calls"})
"""Finish reasons of an answer that is not cut short."""

Marks = Mapping[str, Sequence[bool]]
"""Whether the answers of a canary were right."""


class Causes(NamedTuple):
    """Why greedy answers differ from plain decoding's, by canary; those of neither kind are the draft's."""

    numerics: Collection[str]
    """All of its differences are those of another kernel."""
    unknown: Collection[str]
    """Nothing was read that could tell."""


def pass_delta(paired: PairedAnswers, kind: str | None) -> Estimate | Missing:
    """Compare the pass rates of both arms over the canaries with an expectation of a *kind*; None is any kind."""
    paired = paired.words
    # A failed plain answer is not counted as wrong; a candidate's is.
    now, reference = (_marks(paired, answers) for answers in (paired.answers, successful(paired.plain)))
    causes = _causes(paired) if paired.rules > 2 and paired.greedy else None
    return pass_change(paired, kind, now, reference, "both arms", causes=causes)


def pass_marks(paired: PairedAnswers, kind: str | None) -> list[tuple[str, bool]]:
    """Return each canary with an expectation of a *kind* and whether its answer was right, for every answer."""
    paired = paired.words
    names = _with_expectation(paired, kind)
    return [
        (name, mark)
        for name, answer_marks in _marks(paired, paired.answers).items()
        if name in names
        for mark in answer_marks
    ]


def pass_change(
    paired: PairedAnswers,
    kind: str | None,
    now: Marks,
    reference: Marks,
    where: str,
    *,
    causes: Causes | None = None,
) -> Estimate | Missing:
    """Compare two pass rates over the canaries of *paired*, by which answers of each were right.

    Where all differences of a canary are numerics, its flip is not the draft's, unless such flips are proven to lose
    more answers than they win: then they harm, and all count.
    """
    names, marks = _with_expectation(paired, kind), (now, reference)
    if not names:
        return Missing("no canary of this workload has an expectation of this kind")
    if (missing := _unanswered(names, now.keys() & reference.keys(), paired, where)) is not None:
        return missing
    all_rates = {name: (fmean(now[name]), fmean(reference[name])) for name in names}
    rates, notes, shows = _without_numerics(all_rates, causes, paired.level) if causes else (all_rates, (), "")
    steady = all(len(set(arm_marks[name])) == 1 for arm_marks in marks for name in names)
    if paired.greedy and steady and paired.frozen:
        change = math.fsum(rate - reference_rate for rate, reference_rate in rates.values()) / len(rates)
        return replace(fact(change, len(rates), *notes), shows=shows)
    delta = _noted(intervals.paired_pass_delta(rates, paired.level), *notes)
    return replace(delta, shows=shows) if isinstance(delta, Estimate) else delta


def _causes(paired: PairedAnswers) -> Causes:
    explanations = explanations_for(paired)
    compared = exactness.compare(paired.answers, paired.plain, explanations)
    return Causes(compared.excused, compared.unread if explanations.reads else compared.unexplained)


def _without_numerics(
    rates: Mapping[str, tuple[float, float]], causes: Causes, level: float
) -> tuple[Mapping[str, tuple[float, float]], tuple[str, ...], str]:
    """Return the pass rates with the flips of numerics taken out where they harm no more than they help.

    Also the notes, and what it shows where they harm: exact one-sided sign test of lost against won canaries
    (McNemar 1947).
    """
    changes = {name: now - before for name, (now, before) in rates.items() if now != before}
    if not changes:
        return rates, (), ""

    def flips(names: Collection[str]) -> tuple[int, int]:
        lost = sum(changes[name] < 0 for name in names)
        return lost, len(names) - lost

    turned = [name for name in changes if name in causes.numerics]
    unknown = [name for name in changes if name in causes.unknown]
    lost, won = flips(turned)
    otherwise = flips(changes.keys() - {*turned, *unknown})
    unread = flips(unknown)
    counts = f"{lost} lost and {won} won by numerics, {otherwise[0]} and {otherwise[1]} otherwise"
    notes = (f"{counts}, {unread[0]} and {unread[1]} for unknown reasons",)
    if lost and 1 - intervals.binomial_cdf(lost - 1, len(turned), 0.5) < 1 - level:
        return rates, notes, HARMS
    counted = {name: (before, before) if name in turned else (now, before) for name, (now, before) in rates.items()}
    return counted, notes, ""


def pass_rate(paired: PairedAnswers, kind: str | None) -> Estimate | None:
    """Return the mean pass rate of the canaries with an expectation of a *kind*; of any kind where it is None."""
    names = _with_expectation(paired, kind)
    marks = [canary_marks for name, canary_marks in _marks(paired, paired.answers).items() if name in names]
    if not marks:
        return None
    passed = math.fsum(map(fmean, marks))
    lo, hi = intervals.proportion_bounds(round(passed), len(marks), paired.level)
    center = passed / len(marks)
    return Estimate(center, min(center, lo), max(center, hi), len(marks), confidence=paired.level)


def _with_expectation(paired: PairedAnswers, kind: str | None) -> set[str]:
    return {name for name, canary in paired.canaries.items() if canary.expect and kind in {None, canary.expect.kind}}


def _marks(paired: PairedAnswers, answers: Iterable[Generation]) -> dict[str, list[bool]]:
    grades = (
        (generation.canary, paired.canaries[generation.canary].grade(generation.answer)) for generation in answers
    )
    return intervals.by_canary((canary, right) for canary, right in grades if right is not None)


def _unanswered(
    names: Collection[str], answered: Collection[str], paired: PairedAnswers, where: str = "both arms"
) -> Missing | None:
    lacking = len(set(names) - set(answered))
    if not lacking:
        return None
    reason = f"; {paired.not_forced}" if paired.not_forced else ""
    return Missing(f"{lacking} of {len(names)} canaries were not answered in {where}{reason}", len(names) - lacking)


def agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries whose greedy answers have the words of plain decoding."""
    if not paired.greedy:
        return Missing("tokens can only be compared at temperature 0")
    paired = paired.words
    explanations = explanations_for(paired)
    compared = exactness.compare(paired.answers, paired.plain, explanations)
    if (missing := _unanswered(paired.canaries, compared.agree, paired)) is not None:
        return missing
    agreed = _share_of_canaries(compared.agree, paired, *compared.notes())
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
    return _share_of_canaries(repeated, paired)


def plain_answers(paired: PairedAnswers) -> tuple[Generation, ...]:
    """Return the answers that plain decoding wrote, without those that a forced pass stands in for."""
    words = paired.words
    return tuple(
        generation for generation in (*words.plain, *words.answers) if dict(generation.setting).get("draft") is None
    )


def warm_cache_agreement(paired: PairedAnswers, metric: str) -> Estimate | Missing:
    """Return the share of canaries whose words the prompt cache leaves alone, under the condition of *metric*."""
    if isinstance(paired.warm_cache, str):
        return Missing(paired.warm_cache)
    if metric == "warm_cache_agreement" and any(record.arm == warm_cache_words.CONTROL for record in paired.warm_cache):
        cold = successful(paired.answers) if paired.greedy else ()
        return warm_cache_words.beyond_control(paired.warm_cache, paired.canaries.keys(), cold, paired.level)
    compared = warm_cache_words.warm_cache_agreement(
        paired.warm_cache, paired.canaries.keys(), warm_cache_words.WARM_PARTS[metric]
    )
    return compared if isinstance(compared, Missing) else _share_of_canaries(compared[0], paired, *compared[1])


def first_tokens(paired: PairedAnswers) -> Estimate | Missing:
    """Test whether first tokens above temperature 0 are distributed as plain decoding's."""
    if isinstance(paired.first_tokens, str):
        return Missing(paired.first_tokens)
    entropy = paired.rules > 1
    return distribution_test(paired.first_tokens, len(paired.canaries), paired.seed, entropy=entropy)


def error_rate(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers that failed."""
    failed = per_canary(paired.answers, lambda answer: answer.fault is not None)
    return _noted(_share_of_answers(failed, paired, "had an answer that failed"), *_commonest_fault(paired.answers))


def _commonest_fault(answers: Sequence[Generation]) -> list[str]:
    """Describe the kind of fault that most failed answers have, by its commonest wording; nothing where none failed."""
    faults = [generation.answer.fault for generation in answers if generation.answer.fault is not None]
    if not faults:
        return []
    kind, count = Counter(fault.partition(":")[0] for fault in faults).most_common(1)[0]
    wording = Counter(fault for fault in faults if fault.partition(":")[0] == kind).most_common(1)[0][0]
    return [f"most often {quote(wording)} ({count} of {counted(len(faults), 'failed answer')})"]


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
    return _share_of_answers(proposed, paired, "had an answer with drafted tokens")


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


def truncation(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of canaries that the draft cut short."""
    by_words = paired.rules > 2 and paired.greedy
    drafting, plain = (
        per_canary(successful(arm), _ending_with_text if by_words else _ending)
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
    if not paired.frozen and (missing := _unanswered(paired.canaries, cut, paired)) is not None:
        return missing
    return _share_of_canaries(cut, paired)


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


def _share_of_canaries(holds: Mapping[str, bool], paired: PairedAnswers, *notes: str) -> Estimate | Missing:
    """Return the share of canaries for which something *holds*: counted, or bounded for all prompts like them."""
    if paired.frozen:
        return fact(fmean(holds.values()), len(holds), *notes)
    return _noted(intervals.clustered_share({name: [mark] for name, mark in holds.items()}, paired.level), *notes)


def _share_of_answers(
    marks: Mapping[str, Sequence[bool]], paired: PairedAnswers, description: str
) -> Estimate | Missing:
    """Return the share of marked answers: counted, or bounded for all prompts like them; *what* describes a mark."""
    if paired.frozen:
        count = sum(map(len, marks.values()))
        return fact(sum(map(sum, marks.values())) / count, count)
    marked = sum(any(canary_marks) for canary_marks in marks.values())
    return _noted(intervals.clustered_share(marks, paired.level), f"{marked} of {len(marks)} canaries {description}")


def _noted(share: Estimate | Missing, *notes: str) -> Estimate | Missing:
    return replace(share, notes=(*share.notes, *notes)) if isinstance(share, Estimate) else share
