"""Agreement of greedy answers with plain decoding's, token by token, and which divergences are near-ties."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gatekeeper.core.columns.arrivals import UNKNOWN
from gatekeeper.core.records import Answer, Generation, Role, Tie
from gatekeeper.core.verdict import Missing

TIE_TOLERANCE = 0.125
"""The largest gap between the target's two best logits at which either token is correct.

One unit in the last place of a bfloat16 logit from 16 to 32, where the best logits of chat models lie. A round verifies
several tokens in one pass and plain decoding one token a pass; their sums are rounded in another order, so logits that
lie closer than one unit can swap. The other token is then at most e^0.125 = 1.13 times less likely.
"""

EARLY = 16
"""Tokens that must be alike before a difference may be a near-tie where the target's logits cannot be read.

Near-ties are rare (0.5 % of the tokens would be many), so first differences lie among the first tokens of few answers.
"""
CHARACTERS = 4
"""Of a token, where no token ids are seen."""


def same_output(mine: Answer, other: Answer) -> bool:
    """Return whether two answers have the same tokens; the same reasoning, text and calls where tokens are unknown."""
    (ids, content), (other_ids, other_content) = _output(mine), _output(other)
    return ids == other_ids if ids and other_ids else content == other_content


def _output(answer: Answer) -> tuple[bytes, tuple[str, str, tuple[str, ...]]]:
    """Return the column of an answer's tokens, empty where one is unknown; and its reasoning, text and calls."""
    calls = tuple(json.dumps(call.get("function", call), sort_keys=True) for call in answer.tool_calls)
    return _ids(answer), (answer.reasoning, answer.text, calls)


def _ids(answer: Answer) -> bytes:
    column = answer.columns.token_ids
    return column if _is_known(column) else b""


def known_tokens(answer: Answer) -> tuple[int, ...]:
    """Return the tokens of an answer; none where one is unknown."""
    return tuple(memoryview(_ids(answer)).cast("q"))


@lru_cache(maxsize=4096)
def _is_known(column: bytes) -> bool:
    return UNKNOWN not in memoryview(column).cast("q").tolist()


def shared_tokens(mine: Answer, other: Answer) -> int:
    """Return how many tokens two answers have in common before they differ; four characters where ids are unknown."""
    (ids, content), (other_ids, other_content) = _output(mine), _output(other)
    if ids and other_ids:
        return _alike(memoryview(ids).cast("q"), memoryview(other_ids).cast("q"))
    (reasoning, text, _), (other_reasoning, other_text, _) = content, other_content
    return _alike(f"{reasoning}{text}", f"{other_reasoning}{other_text}") // CHARACTERS


def _alike(some: Sequence[object], others: Sequence[object]) -> int:
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(some), len(others)))


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token at which a candidate's answer differs from plain decoding's."""

    canary: str
    shared: tuple[int, ...]
    plain_id: int
    candidate_id: int

    def matches(self, tie: Tie) -> bool:
        """Return whether *tie* was read at this position."""
        mine = (self.canary, len(self.shared), self.shared, self.plain_id, self.candidate_id)
        return mine == (tie.canary, tie.position, tie.shared, tie.plain_id, tie.candidate_id)


def first_divergence(canary: str, mine: Answer, baseline: Answer) -> Divergence | None:
    """Return where two answers diverge; None where tokens are unknown or one answer only ends earlier."""
    candidate, plain = (memoryview(_ids(one)).cast("q") for one in (mine, baseline))
    for position, (ours, theirs) in enumerate(zip(candidate, plain, strict=False)):
        if ours != theirs:
            return Divergence(canary, tuple(plain[:position]), theirs, ours)
    return None


def divergences(answers: Iterable[Generation], plain: Iterable[Generation]) -> tuple[Divergence, ...]:
    """Return where the candidate's answers diverge from plain decoding's, each place once, in order of the answers."""
    found = (first_divergence(one.canary, one.answer, other) for one, other in _distinct_pairs(answers, plain))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _distinct_pairs(answers: Iterable[Generation], plain: Iterable[Generation]) -> Iterable[tuple[Generation, Answer]]:
    """Pair every answer with every plain answer to its canary; a repeated output would change no comparison."""
    by_canary: dict[str, list[Answer]] = defaultdict(list)
    for one in distinct_outputs(plain):
        by_canary[one.canary].append(one.answer)
    return ((one, baseline) for one in distinct_outputs(answers) for baseline in by_canary[one.canary])


def distinct_outputs(answers: Iterable[Generation]) -> Iterable[Generation]:
    """Return, in order, the first of the answers to a canary with the same output; failed answers are left out."""
    found: dict[tuple[object, ...], Generation] = {}
    for one in answers:
        if one.answer.fault is None:
            found.setdefault((one.canary, *_output(one.answer)), one)
    return found.values()


@dataclass(slots=True)
class Comparison:
    """Which canaries agree with plain decoding, and why the others do not."""

    agree: dict[str, bool] = field(default_factory=dict)
    excused: dict[str, float] = field(default_factory=dict)
    """The largest gap between logits at a canary's divergences, all of which are near-ties."""
    late: set[str] = field(default_factory=set)
    """Canaries whose answers differ only after the first tokens, where no logits could be read."""
    unexplained: dict[str, str] = field(default_factory=dict)
    """Why a canary does not agree."""

    def notes(self) -> tuple[str, ...]:
        """Describe the divergences that are near-ties, at which tolerance, and those that are not."""
        notes = []
        if self.excused:
            widest = max(self.excused.values())
            notes.append(
                f"{len(self.excused)} diverge only at a near-tie of the target's logits "
                f"(gap at most {widest:.3g}, tolerance {TIE_TOLERANCE:g})"
            )
        if self.late:
            notes.append(f"{len(self.late)} differ after their first {EARLY} tokens, which near-ties can do")
        if self.unexplained:
            canary, why = next(iter(self.unexplained.items()))
            notes.append(f"{len(self.unexplained)} diverge otherwise, first {canary}: {why}")
        return tuple(notes)


def compare(
    answers: Iterable[Generation], plain: Iterable[Generation], ties: Sequence[Tie], *, unread: bool = False
) -> Comparison:
    """Compare every answer with every plain answer to its canary; one unexplained divergence is enough to differ.

    *unread*: the backend shows no logits, so that a divergence after the first tokens counts as a near-tie.
    """
    compared = Comparison()
    for one, baseline in _distinct_pairs(answers, plain):
        compared.agree.setdefault(one.canary, True)
        if same_output(one.answer, baseline):
            continue
        gap, why = _explained(first_divergence(one.canary, one.answer, baseline), ties)
        if gap is None and unread and shared_tokens(one.answer, baseline) >= EARLY:
            compared.late.add(one.canary)
        elif gap is None:
            compared.agree[one.canary] = False
            compared.unexplained.setdefault(one.canary, why)
        else:
            compared.excused[one.canary] = max(gap, compared.excused.get(one.canary, 0.0))
    for canary in compared.unexplained:
        compared.excused.pop(canary, None)
        compared.late.discard(canary)
    return compared


def _explained(where: Divergence | None, ties: Sequence[Tie]) -> tuple[float | None, str]:
    """Return the gap of a divergence at a near-tie, or None and why it is not one."""
    if where is None:
        return None, "the texts differ or one ends early, and there are no tokens to compare"
    place = f"at token {len(where.shared) + 1}"
    tie = next((tie for tie in ties if where.matches(tie)), None)
    if tie is None:
        return None, f"{place} the target's logits were not read"
    if tie.gap is None:
        return None, f"{place} the gap between the target's logits is unknown: {tie.fault or 'no reason given'}"
    if not 0 <= tie.gap <= TIE_TOLERANCE:
        return (
            None,
            f"{place} the target prefers its own token by {tie.gap:.3g}, {TIE_TOLERANCE:g} allowed",
        )
    return tie.gap, ""


@dataclass(frozen=True, slots=True)
class WarmPart:
    """One part of the warm-cache pass: which of its answers count, and what stood before them."""

    role: Role
    condition: str
    between: Role | None = None
    """What is requested between a canary's first answer, which only fills the cache, and those that count."""

    @property
    def first_repeat(self) -> int:
        """Return the first repeat that counts."""
        return 0 if self.between is None else 1


REPEATED = WarmPart(Role.WARM, "with the prompt cache on")
SHARED = WarmPart(Role.SHARED, "after another user's conversation that begins with the same prompt", Role.OTHER_USER)
SWITCHED = WarmPart(Role.SWITCHED, "after a request to another model", Role.OTHER_MODEL)
WARM_PARTS = {
    "warm_cache_agreement": REPEATED,
    "shared_prefix_agreement": SHARED,
    "model_switch_agreement": SWITCHED,
}
"""By the metric that is computed of it."""


def warm_cache_agreement(
    records: Sequence[Generation], canaries: Collection[str], part: WarmPart = REPEATED
) -> tuple[dict[str, bool], tuple[str, ...]] | Missing:
    """Return by canary whether its repeated and later answers with the cache on equal plain decoding's; and notes.

    A record's pair names the canary that opened the conversation; a prompt of several turns has an id of its own. An
    answer that fails with the cache on counts as different. What was to stand between two answers must have been
    answered: otherwise nothing stood there.
    """
    plain: dict[str, Answer] = {one.canary: one.answer for one in records if one.arm == "plain"}
    seen: dict[str, dict[str, list[bool]]] = {name: defaultdict(list) for name in canaries}
    mine = [one for one in records if one.arm == "candidate" and one.role is part.role]
    for one in mine:
        baseline = plain.get(one.canary)
        counts = one.repeat >= part.first_repeat or one.canary != one.pair
        if counts and one.pair in seen and baseline is not None and baseline.fault is None:
            turn = "single" if one.canary == one.pair else "later"
            seen[one.pair][turn].append(one.answer.fault is None and same_output(one.answer, baseline))
    if (missing := _nothing_between(records, part)) is not None:
        return missing
    least = 2 - part.first_repeat
    whole = {name for name, turns in seen.items() if len(turns["single"]) >= least and turns["later"]}
    if not seen or len(whole) < len(seen):
        lacking = len(seen) - len(whole)
        return Missing(
            f"{lacking} of {len(seen)} canaries lack repeated answers or a second turn in one of the arms", len(whole)
        )
    agree = {name: all(all(same) for same in turns.values()) for name, turns in seen.items()}
    return agree, _differing(seen, part)


def _nothing_between(records: Sequence[Generation], part: WarmPart) -> Missing | None:
    """Return why nothing stood between the answers of a part; None where something did, or nothing is to."""
    if part.between is None:
        return None
    answers = [one.answer for one in records if one.role is part.between]
    what = "the other conversation" if part is SHARED else "the other model"
    if not answers:
        return Missing(f"{what} was not requested")
    if fault := next((one.fault for one in answers if one.fault is not None), None):
        return Missing(f"{what} was not answered: {fault}")
    own = {one.answer.claims.model for one in records if one.role is part.role} - {None}
    if part is SWITCHED and own & {one.claims.model for one in answers}:
        return Missing("the server answered with the same model when another one was requested")
    return None


def _differing(seen: Mapping[str, Mapping[str, Sequence[bool]]], part: WarmPart) -> tuple[str, ...]:
    parts = []
    for turn, words in (("single", "repeated answers"), ("later", "second turns")):
        same = [one for turns in seen.values() for one in turns[turn]]
        if not all(same):
            parts.append(f"{same.count(False)} of {len(same)} {words}")
    return (f"{part.condition}, {' and '.join(parts)} differ from plain decoding's",) if parts else ()
