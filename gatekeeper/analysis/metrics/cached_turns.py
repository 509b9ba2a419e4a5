"""The warm cache: what turns with the prompt cache on, as deployed, show of both arms: times, faults and words."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers, successful
from gatekeeper.analysis.metrics.words.exactness import same_output
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.text import quote

WARM_CACHE = "warm_cache"
"""The follow-up that sends the turns."""
LEAST_ANSWERS = 2
"""Answers of a conversation in an arm: its first turn alone only fills the cache."""


def conversation_of(turn: Generation) -> str:
    """Return the name of the conversation that a turn belongs to."""
    return turn.pair.rpartition("#")[0]


def pair_timed_turns(paired: PairedAnswers) -> PairedAnswers | Missing:
    """Return the turns that found the cache of the turn before, paired; the first turn of a conversation found none.

    The conversation takes the place of the canary: its turns share their text, so they are not independent.
    """
    answers = paired.answers_of(WARM_CACHE)
    if isinstance(answers, Missing):
        return answers
    turns = [
        replace(turn, canary=conversation_of(turn)) for turn in answers if turn.role is Role.WARM and turn.repeat > 0
    ]
    opening = {canary.conversation or name: canary for name, canary in reversed([*paired.canaries.items()])}
    return pair_answers(
        replace(
            paired,
            canaries={name: opening[name] for name in dict.fromkeys(turn.canary for turn in turns) if name in opening},
            answers=tuple(turn for turn in turns if turn.arm == "candidate"),
            plain=tuple(turn for turn in turns if turn.arm == "plain"),
            greedy=True,
            drift_limit=math.inf,
            settled_s=None,
            interleaved=False,  # each arm has processes of its own
            before=(),
            swept=((), ()),
            untimed=(),
            elsewhere=(),
            cache={},
        )
    )  # fmt: skip


def failed_share(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of the turns that failed, in both arms; of plain decoding's where that itself is judged."""
    answers = paired.answers_of(WARM_CACHE)
    if isinstance(answers, Missing):
        return answers
    arms = ("candidate", "plain") if paired.plain else ("plain",)
    turns = [turn for turn in answers if turn.role is Role.WARM and turn.arm in arms]
    if not turns:
        return Missing("no request was sent with the prompt cache on")
    failed = [turn for turn in turns if turn.answer.fault is not None]
    return fact(len(failed) / len(turns), len(turns), *_name_failed(failed, turns, arms))


def _name_failed(failed: Sequence[Generation], turns: Sequence[Generation], arms: Iterable[str]) -> list[str]:
    """Say how many turns of each arm failed, and how the first of them did; nothing where none did."""
    if not failed:
        return []
    sent, lost = Counter(turn.arm for turn in turns), Counter(turn.arm for turn in failed)
    words = {"candidate": "with the draft", "plain": "plainly"}
    counts = " and ".join(f"{lost[arm]} of {sent[arm]} {words[arm]}" for arm in arms)
    first = failed[0]
    return [f"with the prompt cache on, {counts} failed, first {first.key}: {quote(str(first.answer.fault))}"]


def agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of conversations whose words the draft's cache leaves alone, beyond what plain decoding's does.

    Where neither the draft without a cache nor plain decoding's own cache ever changes a word, no numerics are at work,
    and every difference counts. Elsewhere a conversation counts that differs with the draft's cache alone, less those
    that differ with plain decoding's alone: proven by an exact sign test (McNemar 1947), else open.
    """
    answers = paired.answers_of(WARM_CACHE)
    if isinstance(answers, Missing):
        return answers
    without_cache = {
        turn.canary: turn.answer for turn in answers if turn.role is Role.COLD and turn.answer.fault is None
    }
    names = dict.fromkeys(map(conversation_of, answers))
    drafting, plain = (_compare_turns(answers, without_cache, arm) for arm in ("candidate", "plain"))
    complete = [name for name in names if _is_complete(drafting.get(name, {}), plain.get(name, {}))]
    if not names or len(complete) < len(names):
        lacking = f"{len(names) - len(complete)} of {len(names)} conversations"
        return Missing(f"{lacking} lack answers to repeated or later turns in one of the arms", len(complete))
    agree, control = (
        {name: all(turn.agrees for turn in arm[name].values() if turn is not None) for name in names}
        for arm in (drafting, plain)
    )
    notes = _describe_differences(drafting)
    draft_without_cache = successful(paired.answers) if paired.greedy else []
    numerics = not all(control.values()) or any(
        turn.canary in without_cache and not same_output(turn.answer, without_cache[turn.canary])
        for turn in draft_without_cache
    )
    return _bound_share(agree, control if numerics else None, notes, paired)


class _Words(NamedTuple):
    """What was compared of one turn."""

    is_repeated: bool
    """Its prompt is the one that opened the conversation."""
    agrees: bool | None
    """Its words are those without a cache; None: they are not known."""


_Turns = Mapping[int, _Words | None]
"""The turns of a conversation in one arm; None for one that failed, which is counted elsewhere."""


def _compare_turns(
    records: Iterable[Generation], without_cache: Mapping[str, Answer], arm: str
) -> dict[str, dict[int, _Words | None]]:
    """Compare every turn of an arm with the same one without a cache, by conversation and turn."""
    turns: dict[str, dict[int, _Words | None]] = defaultdict(dict)
    for turn in records:
        if turn.role is not Role.WARM or turn.arm != arm:
            continue
        name, baseline = conversation_of(turn), without_cache.get(turn.canary)
        agrees = None if baseline is None else same_output(turn.answer, baseline)
        turns[name][turn.repeat] = None if turn.answer.fault is not None else _Words(turn.canary == name, agrees)
    return turns


def _is_complete(drafting: _Turns, plain: _Turns) -> bool:
    """Return whether both arms have the same turns, with sound ones on a warm cache, and all can be compared."""
    return drafting.keys() == plain.keys() and all(
        len(sound := [turn for turn in arm.values() if turn is not None]) >= LEAST_ANSWERS
        and all(turn.agrees is not None for turn in sound)
        for arm in (drafting, plain)
    )


def _describe_differences(conversations: Mapping[str, _Turns]) -> tuple[str, ...]:
    turns = [turn for by_number in conversations.values() for turn in by_number.values() if turn is not None]
    parts = []
    for repeated, name in ((True, "repeated answers"), (False, "later turns")):
        same = [turn.agrees for turn in turns if turn.is_repeated is repeated]
        if not all(same):
            parts.append(f"{same.count(False)} of {len(same)} {name}")
    return (f"with the prompt cache on, {' and '.join(parts)} differ from plain decoding's",) if parts else ()


def _bound_share(
    agree: Mapping[str, bool], control: Mapping[str, bool] | None, notes: Sequence[str], paired: PairedAnswers
) -> Estimate:
    """Return the share of conversations that agree, beyond those of the *control*; None: every difference counts."""
    level, n = paired.level, len(agree)
    if control is None:
        share = fact(sum(agree.values()) / n, n, *notes)
    else:
        worse = sum(not agree[name] and control[name] for name in agree)
        better = sum(agree[name] and not control[name] for name in agree)
        words = f"{worse} conversations differ with the draft's cache alone, {better} with plain decoding's alone"
        center = 1 - max(0, worse - better) / n
        proven = worse > better and 1 - intervals.binomial_cdf(worse - 1, worse + better, 0.5) < 1 - level
        if proven or worse <= better:
            share = fact(center, n, *notes, words)
        else:
            share = Estimate(center, center, 1.0, n, (*notes, words), level)
    if paired.frozen:
        return share
    # Of prompts like these a count is no fact: so many conversations bound their share.
    lo, hi = intervals.proportion_bounds(round(share.center * n), n, level)
    return replace(share, lo=min(lo, share.lo), hi=max(hi, share.hi), confidence=level)
