"""Degenerate answers: whether the draft harms, as repetition, doubled pieces and answers without an end show."""

import re
from collections.abc import Iterable
from itertools import pairwise

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, by_canary, successful
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.units import percent
from gatekeeper.core.verdict import Estimate, Missing, fact

HARM_LEVEL = 0.01
"""A draft that harms as often as it helps fails with at most this chance; most have no degenerate answer at all."""
REPEATS = 4
"""A piece that stands so often in a row at the end of an answer is repetition."""
PIECE = 400
"""Characters of the longest piece that is looked for."""
DOUBLED = 0.2
"""An answer with this share of its words doubled, and more, has doubled pieces."""
LEAST_WORDS = 10
POWER = 0.95


def is_repetitive(text: str) -> bool:
    """Return whether a text ends in one piece again and again, or has many of its words twice.

    The piece is of 12 characters at least together, and of more than one character.
    """
    tail = text.rstrip()[-PIECE * REPEATS :]
    if re.search(rf"(.{{4,{PIECE}}}?)\1{{{REPEATS - 1},}}.{{0,{PIECE // 4}}}$", tail, re.DOTALL):
        return True
    words = text.split()
    doubled = sum(first == second for first, second in pairwise(words))
    return len(words) >= LEAST_WORDS and doubled >= DOUBLED * len(words)


def is_degenerate(answer: Answer, other: Answer) -> bool:
    """Return whether an answer repeats itself, or runs into its limit where the *other* arm's ends by itself."""
    endless = answer.finish == "length" and other.finish in {"stop", "tool_calls"}
    return endless or is_repetitive(answer.reasoning + answer.text)


def harm(paired: PairedAnswers) -> Estimate | Missing:
    """Return the p-value that degenerate answers are as frequent without the draft: exact one-sided sign test.

    Each canary that is degenerate in one arm alone is one sign. Source: McNemar 1947, in its exact form.
    """
    if not paired.greedy:
        return Missing("above temperature 0 answers differ by chance")
    paired = paired.words
    drafting, plain = (_first(successful(arm)) for arm in (paired.answers, paired.plain))
    both = [name for name in paired.canaries if name in drafting and name in plain]
    if not both:
        return Missing("no canary was answered in both arms")
    signs = [(is_degenerate(drafting[name], plain[name]), is_degenerate(plain[name], drafting[name])) for name in both]
    worse = [name for name, (drafts, plainly) in zip(both, signs, strict=True) if drafts and not plainly]
    better = sum(plainly and not drafts for drafts, plainly in signs)
    chance = 1 - intervals.binomial_cdf(len(worse) - 1, len(worse) + better, 0.5) if worse else 1.0
    notes = [
        f"of {len(both)} answers {len(worse)} repeat themselves or do not end with the draft alone, {better} plainly"
    ]
    if worse:
        notes.append(f"first {worse[0]}")
    notes.append(f"seen if it were {percent(_visible_share(len(both)), '.2g')} of the answers")
    return fact(chance, len(both), *notes)


def _first(answers: Iterable[Generation]) -> dict[str, Answer]:
    grouped = by_canary((generation.canary, generation.answer) for generation in answers)
    return {name: canary_answers[0] for name, canary_answers in grouped.items()}


def _visible_share(canaries: int) -> float:
    """Return the share of degenerate answers that fails with chance POWER, where plain decoding has none."""
    needed = next(count for count in range(1, 60) if 0.5**count < HARM_LEVEL)
    shares = (step / 200 for step in range(1, 200))
    return next((share for share in shares if 1 - intervals.binomial_cdf(needed - 1, canaries, share) >= POWER), 1.0)
