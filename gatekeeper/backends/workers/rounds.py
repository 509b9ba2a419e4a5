"""The rounds of a speculative answer, counted from the flags of its drafted tokens."""

from collections.abc import Iterable, Mapping
from typing import Any

from gatekeeper.core.records import Rounds


def count_rounds(drafted: Iterable[bool], *, draft_tokens: int, max_tokens: int) -> Rounds:
    """Count the rounds of one answer from its tokens' `from_draft` flags, in order.

    A round proposes `min(draft_tokens, max_tokens - emitted)` tokens, keeps the longest agreeing prefix and adds one of
    the target's own; the last round lacks that one where the answer ended on a proposed token. Proposals behind the end
    of the answer count as drafted and as neither tried nor accepted. This is mlx-lm's `speculative_generate_step`.
    """
    flags = list(drafted)
    tried_at, accepted_at = [0] * draft_tokens, [0] * draft_tokens
    rounds = proposed = accepted = emitted = 0
    while emitted < len(flags):
        width = min(draft_tokens, max_tokens - emitted)
        run = 0
        while run < width and emitted < len(flags) and flags[emitted]:
            run += 1
            emitted += 1
        finished = emitted < len(flags)
        for position in range(run):
            tried_at[position] += 1
            accepted_at[position] += 1
        if finished:
            emitted += 1
            if run < width:
                tried_at[run] += 1
        rounds, proposed, accepted = rounds + 1, proposed + width, accepted + run
    return Rounds(rounds, proposed, accepted, tuple(tried_at), tuple(accepted_at))


def rounds_from(written: Mapping[str, Any]) -> Rounds:
    """Return rounds as another process wrote them; raise KeyError where a counter is missing."""
    return Rounds(
        written["rounds"],
        written["drafted"],
        written["accepted"],
        tuple(written["tried_by_position"]),
        tuple(written["accepted_by_position"]),
    )
