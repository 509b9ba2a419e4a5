"""Turns on a warm cache by the length of their context: how soon both arms answer, and what the draft gets accepted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

from pydantic import Field

from gatekeeper.analysis.metrics.cached_turns import pair_timed_turns
from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, values_of
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.core.document import IF_ANY
from gatekeeper.core.judgement import Estimate, Missing, OutcomeWord, Rounded
from gatekeeper.core.metrics import ANSWER_RATIO
from gatekeeper.core.slo import Objective

CONTEXTS = (*(512 * 2**power for power in range(12)), math.inf)
"""The longest prompts that each bin may have, in tokens."""
TURN_RATIO = "warm_cache_turn_ratio"
_UNMEASURED = Missing("it was not measured")


def _is_missing(value: object) -> bool:
    return isinstance(value, Missing)


@dataclass(frozen=True, slots=True)
class CachedContext:
    """The turns whose prompts are of one length, about."""

    least: int
    """Tokens of the shortest prompt among them."""
    most: int
    """The same of the longest."""
    conversations: int
    """The conversations that the turns belong to."""
    turns: int
    """Compared in both arms."""
    failed: int
    """Turns that failed in either arm."""
    outcome: OutcomeWord
    """The outcome of the bound on the ratio; the bounds of all lengths hold together."""
    ratio: Annotated[Estimate | Missing, Field(alias=TURN_RATIO, exclude_if=_is_missing)] = _UNMEASURED
    """Time of whole turns, plain decoding over drafting."""
    first_token: Annotated[Estimate | Missing, Field(alias="warm_cache_ttft_delta", exclude_if=_is_missing)] = (
        _UNMEASURED
    )
    """The relative change of the time to first token."""
    acceptance: Annotated[Estimate | Missing, Field(alias="acceptance_rate", exclude_if=_is_missing)] = _UNMEASURED
    ttft: Annotated[Mapping[str, Rounded], IF_ANY] = field(default_factory=dict)
    """The median seconds to the first token, by arm."""


def measure_contexts(paired: PairedAnswers, objectives: Sequence[Objective]) -> tuple[CachedContext, ...]:
    """Return the turns of a workload by the tokens of their prompts, the shortest first.

    Nothing is returned where no such turn was compared, or the server does not count the tokens of a prompt.
    """
    bound = next((objective for objective in objectives if objective.metric == TURN_RATIO), None)
    turns = pair_timed_turns(paired)
    if bound is None or isinstance(turns, Missing):
        return ()
    by_context: dict[float, list[Pair]] = {}
    for pair in sorted(turns.pairs, key=_prompt_tokens):
        if tokens := _prompt_tokens(pair):
            context = next(context for context in CONTEXTS if tokens <= context)
            by_context.setdefault(context, []).append(pair)
    level = 1 - (1 - paired.level) / max(1, len(by_context))
    return tuple(_measure(replace(turns, level=level), pairs, bound) for pairs in by_context.values())


def _prompt_tokens(pair: Pair) -> int:
    """Return the tokens of the prompt, those from the cache included: some servers leave them out of one arm's."""
    return max(turn.answer.prompt_tokens or 0 for turn in pair)


def _measure(turns: PairedAnswers, pairs: Sequence[Pair], bound: Objective) -> CachedContext:
    candidate, plain = (tuple(arm) for arm in zip(*pairs, strict=True))
    arms = {"candidate": candidate, "plain": plain}
    part = replace(turns, answers=candidate, plain=plain, pairs=tuple(pairs))
    ratio = estimate(ANSWER_RATIO, part)
    times = {arm: [seconds for _, seconds in values_of(answers, ttft)] for arm, answers in arms.items()}
    return CachedContext(
        least=_prompt_tokens(pairs[0]),
        most=_prompt_tokens(pairs[-1]),
        conversations=len({turn.canary for turn in candidate}),
        turns=len(pairs),
        failed=sum(turn.answer.fault is not None for pair in pairs for turn in pair),
        outcome=check(bound, ratio).outcome,
        ratio=ratio,
        first_token=estimate("ttft_delta", part),
        ttft={arm: median(seconds) for arm, seconds in times.items() if seconds},
        acceptance=estimate("acceptance_rate", replace(part, answers=counted_or_claimed(candidate)[0])),
    )
