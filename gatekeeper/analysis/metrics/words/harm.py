"""Degenerate answers: whether drafting harms, as repetition, doubled pieces and answers without an end show."""

import itertools
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.words.exactness import divergent_canaries
from gatekeeper.analysis.metrics.words.near_tie_rule import token_column
from gatekeeper.analysis.metrics.words.replayed_rounds import drafted_replays, is_exact
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.units import percent

HARM_LEVEL = 0.01
"""A draft that harms as often as it helps fails with at most this chance; most have no degenerate answer at all."""
SAMPLED_HARM_LEVEL = 0.001
"""The same above temperature 0, where chance alone makes answers degenerate, so that many runs have such signs.

At nine of nine, the fewest that fail, chance does so in 0.2 % of runs; at HARM_LEVEL it would in 1.6 %.
"""
HARMS, DRAFTING_HARMS = "the other kernel harms", "drafting harms"
"""What more degenerate answers show, where the passes that verified them are known to be right, and where not."""
REPEATS = 4
"""A piece that stands so often in a row at the end of an answer is repetition."""
SHORTEST_PIECE, PIECE = 4, 400
"""Characters of the pieces that are looked for. A quarter of the longest may follow: an end after the repetition."""
DOUBLED = 0.2
"""An answer with this share of its words or tokens doubled, and more, has doubled pieces."""
LEAST_WORDS = 10
CUT_SHORT = 0.5
"""An answer under half of the length of the other arm's, on the same canary, ends early."""
POWER = 0.95
"""The chance with which the share of wrong answers that a note names would have been found."""


@lru_cache(maxsize=4096)
def is_repetitive(text: str) -> bool:
    """Return whether a text ends in a piece of at least four characters again and again, or has its words twice."""
    if _ends_in_repetition(text.rstrip()):
        return True
    words = text.split()
    halves = [word for word in words if len(word) > 2 and word == word[: len(word) // 2] * 2]
    return _is_doubled(words) or (len(words) >= LEAST_WORDS and len(halves) >= DOUBLED * len(words))


def _ends_in_repetition(text: str) -> bool:
    """Return whether each character equals the one a piece before it, for long enough and up to near the end."""
    text = text[-(PIECE * REPEATS + PIECE // 4) :]
    characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    count = len(characters)
    end = count - PIECE // 4
    for piece in range(SHORTEST_PIECE, min(PIECE, count // REPEATS) + 1):
        # A comparison of what every long enough repetition holds is quick, and most pieces differ there.
        begin = count - (REPEATS - 1) * piece
        # Most of them in the first character.
        if begin < end and (text[begin] != text[begin - piece] or text[begin:end] != text[begin - piece : end - piece]):
            continue
        # Any repetition, wherever it begins, holds a whole piece that stands at a multiple of its length from the end.
        starts = range(count - piece, max(piece, begin - PIECE // 4) - 1, -piece)
        if not any(text[start : start + piece] == text[start - piece : start] for start in starts):
            continue
        ends = np.flatnonzero(np.append(characters[piece:] != characters[:-piece], True))
        lengths = np.diff(ends, prepend=-1) - 1
        if np.any((lengths >= (REPEATS - 1) * piece) & (ends >= count - piece - PIECE // 4)):
            return True
    return False


def _is_doubled(words: Sequence[object]) -> bool:
    doubled = sum(first == second for first, second in pairwise(words))
    return len(words) >= LEAST_WORDS and doubled >= DOUBLED * len(words)


def is_degenerate(answer: Answer, other: Answer) -> bool:
    """Return whether an answer repeats itself, or is endless or far shorter where the *other* arm's is not."""
    if _repeats_itself(answer):
        return True
    if answer.finish == "length":
        return other.finish in _ENDS
    tokens, other_tokens = answer.output_tokens, other.output_tokens
    if answer.finish not in _ENDS or tokens is None or other_tokens is None or _repeats_itself(other):
        return False  # repetition is long, and beside it an answer of any length is short
    return tokens < CUT_SHORT * other_tokens


def _repeats_itself(answer: Answer) -> bool:
    return is_repetitive(answer.reasoning + answer.text) or _has_doubled_tokens(token_column(answer))


@lru_cache(maxsize=4096)
def _has_doubled_tokens(column: bytes) -> bool:
    return _is_doubled(memoryview(column).cast("q").tolist())


_ENDS = frozenset({"stop", "tool_calls"})


def harm(paired: PairedAnswers) -> Estimate | Missing:
    """Return the p-value that degenerate answers are as frequent without the draft: one-sided sign test.

    Each canary that is degenerate in one arm alone is one sign, McNemar's test (1947) with mid-p, which keeps its level
    over any number of signs and finds more than the exact one (Fagerland, Lydersen, Laake 2013). One workload has too
    few signs, so those of all workloads of the soak count together: they share target, chip and kernels. A workload
    that has no more of them with the draft than without is not harmed. Above temperature 0 chance makes signs too, but
    in either arm alike, which is what the test assumes.
    """
    paired = paired.words
    signs = _signs(paired.answers, paired.plain)
    if not signs:
        return Missing("no canary was answered in both arms")
    elsewhere = _signs(
        *([generation for generation in paired.elsewhere if generation.arm == arm] for arm in ("candidate", "plain"))
    )
    worse = [canary for canary, sign in signs if sign > 0]
    better = sum(sign < 0 for _, sign in signs)
    together = [sign for _, sign in (*signs, *elsewhere) if sign]
    chance = mid_p(together.count(1), len(together)) if len(worse) > better else 1.0
    notes = [f"of {len(signs)} answers {len(worse)} are degenerate with the draft alone, {better} plainly alone"]
    if elsewhere:
        notes.append(f"{together.count(1)} and {together.count(-1)} of {len(signs) + len(elsewhere)} in all workloads")
    if worse:
        notes.append(f"first {worse[0]}")
    level = HARM_LEVEL if paired.greedy else SAMPLED_HARM_LEVEL
    share = visible_share(len(signs) + len(elsewhere), together.count(-1), level)
    notes.append(f"found if it were {percent(share, '.2g')} of the answers")
    replays = drafted_replays(paired)
    shows = HARMS if replays and all(map(is_exact, replays)) else DRAFTING_HARMS
    if share > paired.visible_harm and chance >= level and shows is DRAFTING_HARMS and _words_differ(paired):
        need = canaries_to_see(paired.visible_harm, level)
        notes[-1] += f", and must be at {percent(paired.visible_harm, '.2g')}: about {need} canaries show that"
        return Missing("; ".join(notes), len(signs))
    return Estimate(chance, chance, chance, len(signs), tuple(notes), shows=shows)


def _words_differ(paired: PairedAnswers) -> bool:
    """Return whether an answer has other words than plain decoding's: where all are the same, none can be harmed.

    They are then known to be the target's own choices, as those are that a replay verified.
    """
    return not paired.greedy or bool(divergent_canaries(paired.answers, paired.plain))


def mid_p(worse: int, signs: int) -> float:
    """Return the chance of more than *worse* of fair *signs*, and half of that of exactly so many."""
    return 1 - (intervals.binomial_cdf(worse, signs, 0.5) + intervals.binomial_cdf(worse - 1, signs, 0.5)) / 2


def _signs(answers: Iterable[Generation], plain: Iterable[Generation]) -> list[tuple[str, int]]:
    """Return each canary answered in both arms: 1 where the drafted answer alone is degenerate, -1 the plain one."""
    drafting, plainly = (_first(successful(arm)) for arm in (answers, plain))
    return [
        (key[1], is_degenerate(answer, plainly[key]) - is_degenerate(plainly[key], answer))
        for key, answer in drafting.items()
        if key in plainly
    ]


def _first(answers: Iterable[Generation]) -> dict[tuple[str, str], Answer]:
    by_canary: dict[tuple[str, str], Answer] = {}
    for generation in answers:
        by_canary.setdefault((generation.workload, generation.canary), generation.answer)
    return by_canary


@lru_cache(maxsize=256)
def visible_share(canaries: int, plainly: int = 0, level: float = HARM_LEVEL) -> float:
    """Return the share of degenerate answers that fails with chance POWER, beside so many *plainly* alone."""
    needed = _signs_needed(plainly, level)
    shares = (step / 200 for step in range(1, 200))
    return next((share for share in shares if _is_found(share, canaries, needed)), 1.0)


def canaries_to_see(share: float, level: float = HARM_LEVEL) -> int:
    """Return with how many canaries this *share* of degenerate answers is found, where plain decoding has none."""
    needed = _signs_needed(0, level)
    return next(canaries for canaries in itertools.count(needed) if _is_found(share, canaries, needed))


def _signs_needed(plainly: int, level: float) -> int:
    return next(count for count in itertools.count(1) if mid_p(count, count + plainly) < level)


def _is_found(share: float, canaries: int, needed: int) -> bool:
    return 1 - intervals.binomial_cdf(needed - 1, canaries, share) >= POWER
