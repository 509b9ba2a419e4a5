"""The share of canaries that the draft cut short."""

from typing import NamedTuple

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, per_canary, successful
from gatekeeper.analysis.metrics.shares.counted_shares import share_of_canaries
from gatekeeper.analysis.metrics.shares.pass_rates import unanswered
from gatekeeper.analysis.metrics.words.harm import CUT_SHORT
from gatekeeper.core.records import Answer
from gatekeeper.core.verdict import Estimate, Missing

COMPLETE = frozenset({"stop", "tool_calls"})
"""Finish reasons of an answer that is not cut short."""


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
    if not paired.frozen and (missing := unanswered(paired.canaries, cut, paired)) is not None:
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
