"""Near-ties: where greedy tokens diverge from plain decoding's, and whether the target's logits nearly tie there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gatekeeper.core.records import Answer, Tie
from gatekeeper.core.records.arrivals import UNKNOWN

TIE_TOLERANCE = 0.125
"""The largest gap between the target's two best logits at which either token is correct.

One unit in the last place of a bfloat16 logit from 16 to 32, where the best logits of chat models lie. A round verifies
several tokens in one pass and plain decoding one token a pass; their sums are rounded in another order, so logits that
lie closer than one unit can swap. The other token is then at most e^0.125 = 1.13 times less likely.
"""


def token_column(answer: Answer) -> bytes:
    """Return the column of an answer's tokens; empty where one is unknown."""
    column = answer.columns.token_ids
    return column if _is_known(column) else b""


def known_tokens(answer: Answer) -> tuple[int, ...]:
    """Return the tokens of an answer; none where one is unknown."""
    return tuple(memoryview(token_column(answer)).cast("q"))


@lru_cache(maxsize=4096)
def _is_known(column: bytes) -> bool:
    return UNKNOWN not in memoryview(column).cast("q").tolist()


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token at which a candidate's answer differs from plain decoding's."""

    canary: str
    shared: tuple[int, ...]
    plain_id: int
    candidate_id: int

    def matches(self, tie: Tie) -> bool:
        """Return whether *tie* was read at this position."""
        place = (self.canary, len(self.shared), self.shared, self.plain_id, self.candidate_id)
        return place == (tie.canary, tie.position, tie.shared, tie.plain_id, tie.candidate_id)


def first_divergence(canary: str, answer: Answer, baseline: Answer) -> Divergence | None:
    """Return where two answers diverge; None where tokens are unknown or one answer only ends earlier."""
    candidate, plain = (memoryview(token_column(output)).cast("q") for output in (answer, baseline))
    for position, (token, plain_token) in enumerate(zip(candidate, plain, strict=False)):
        if token != plain_token:
            return Divergence(canary, tuple(plain[:position]), plain_token, token)
    return None


def gap_at(where: Divergence | None, ties: Sequence[Tie]) -> tuple[float | None, str]:
    """Return the gap of the target's logits at a divergence and its place, or None and why it is unknown."""
    if where is None:
        return None, "the texts differ or one ends early, and there are no tokens to compare"
    place = f"at token {len(where.shared) + 1}"
    tie = next((tie for tie in ties if where.matches(tie)), None)
    if tie is None:
        return None, f"{place} the target's logits were not read"
    if tie.gap is None:
        return None, f"{place} the gap between the target's logits is unknown: {tie.fault or 'no reason given'}"
    return tie.gap, place
