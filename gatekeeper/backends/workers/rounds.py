"""The rounds of a speculative answer, counted from the flags of its drafted tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gatekeeper.core.records import Rounds


def count_rounds(drafted: Iterable[bool], *, draft_tokens: int, max_tokens: int) -> Rounds:
    """Count the rounds of one answer from its tokens' `from_draft` flags, in order.

    Proposals behind the end of the answer count as drafted and as neither tried nor accepted.
    """
    flags = list(drafted)
    tried_at, accepted_at = [0] * draft_tokens, [0] * draft_tokens
    rounds = proposed = accepted = emitted = 0
    for width, length in round_shapes(flags, draft_tokens=draft_tokens, max_tokens=max_tokens):
        run = sum(flags[emitted : emitted + min(length, width)])  # an engine that drops tokens flags one more
        for position in range(run):
            tried_at[position] += 1
            accepted_at[position] += 1
        if run < min(length, width):
            tried_at[run] += 1
        emitted += length
        rounds, proposed, accepted = rounds + 1, proposed + width, accepted + run
    return Rounds(rounds, proposed, accepted, tuple(tried_at), tuple(accepted_at))


def round_shapes(flags: Sequence[bool], *, draft_tokens: int, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield of each round how many tokens were proposed, and how many of the answer it emitted.

    A round proposes `min(draft_tokens, max_tokens - emitted)` tokens, keeps the longest agreeing prefix and adds one of
    the target's own; the last round lacks that one where the answer ended on a proposed token. This is mlx-lm's
    `speculative_generate_step`.
    """
    emitted = 0
    while emitted < len(flags):
        width = min(draft_tokens, max_tokens - emitted)
        run = 0
        while run < width and emitted + run < len(flags) and flags[emitted + run]:
            run += 1
        length = min(run + 1, len(flags) - emitted)
        yield width, length
        emitted += length


def rounds_from(written: Mapping[str, Any]) -> Rounds:
    """Return rounds as another process wrote them; raise KeyError where a counter is missing."""
    return Rounds(
        written["rounds"],
        written["drafted"],
        written["accepted"],
        tuple(written["tried_by_position"]),
        tuple(written["accepted_by_position"]),
        str(written.get("proposals", "")),
        str(written.get("chosen", "")),
    )
