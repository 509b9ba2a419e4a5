"""Agreement: whether greedy answers are plain decoding's, token by token, and what excuses them where they part."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gatekeeper.core.records import Answer, Generation, Tie
from gatekeeper.core.verdict import Missing

TIE_TOLERANCE = 0.125
"""The largest gap between the target's two best logits at which either token is a right one.

One unit in the last place of a bfloat16 logit from 16 to 32, where the best logits of chat models lie. A round verifies
several tokens in one pass and plain decoding one token a pass; their sums are rounded in another order, so logits that
lie closer than one unit can swap. The other token is then at most e^0.125 = 1.13 times less likely.
"""


def same_output(mine: Answer, other: Answer) -> bool:
    """Tell whether two answers are the same tokens; the same reasoning, text and calls where no tokens are shown."""
    ids = [_ids(answer) for answer in (mine, other)]
    if all(ids):
        return ids[0] == ids[1]
    calls = [[_call(call) for call in answer.tool_calls] for answer in (mine, other)]
    return (mine.reasoning, mine.text) == (other.reasoning, other.text) and calls[0] == calls[1]


def _ids(answer: Answer) -> tuple[int, ...]:
    """Return the tokens of an answer; nothing where one of them is not known."""
    known = tuple(arrival.token_id for arrival in answer.arrivals if arrival.token_id is not None)
    return known if len(known) == len(answer.arrivals) else ()


def _call(call: dict[str, object]) -> str:
    function = call.get("function", call)
    return json.dumps(function, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token at which a candidate's answer is not plain decoding's."""

    canary: str
    shared: tuple[int, ...]
    plain_id: int
    candidate_id: int

    def read_in(self, tie: Tie) -> bool:
        """Tell whether *tie* was read for this very parting."""
        mine = (self.canary, len(self.shared), self.shared, self.plain_id, self.candidate_id)
        return mine == (tie.canary, tie.position, tie.shared, tie.plain_id, tie.candidate_id)


def first_divergence(canary: str, mine: Answer, twin: Answer) -> Divergence | None:
    """Return where two answers part; None where no tokens are shown or one answer only ends before the other."""
    candidate, plain = _ids(mine), _ids(twin)
    for position, (ours, theirs) in enumerate(zip(candidate, plain, strict=False)):
        if ours != theirs:
            return Divergence(canary, plain[:position], theirs, ours)
    return None


def divergences(answers: Iterable[Generation], plain: Iterable[Generation]) -> tuple[Divergence, ...]:
    """Return every parting of the candidate's answers from plain decoding's, each once, in order of the answers."""
    found = (first_divergence(one.canary, one.answer, twin) for one, twin in _twins(answers, plain))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _twins(answers: Iterable[Generation], plain: Iterable[Generation]) -> Iterable[tuple[Generation, Answer]]:
    """Pair what was answered with what plain decoding answered; the same words said again change no comparison."""
    by_canary: dict[str, list[Answer]] = defaultdict(list)
    for one in _distinct(plain):
        by_canary[one.canary].append(one.answer)
    return ((one, twin) for one in _distinct(answers) for twin in by_canary[one.canary])


def _distinct(answers: Iterable[Generation]) -> Iterable[Generation]:
    """Return, in order, the first of the answers to a canary that say the same; those that failed say nothing."""
    found: dict[tuple[object, ...], Generation] = {}
    for one in answers:
        if (said := one.answer).fault is None:
            calls = tuple(_call(call) for call in said.tool_calls)
            found.setdefault((one.canary, _ids(said), said.reasoning, said.text, calls), one)
    return found.values()


@dataclass(slots=True)
class Comparison:
    """What became of each canary."""

    agree: dict[str, bool] = field(default_factory=dict)
    excused: dict[str, float] = field(default_factory=dict)
    """The widest gap that excuses a canary's partings."""
    unexplained: dict[str, str] = field(default_factory=dict)
    """Why a canary does not agree."""

    def notes(self) -> tuple[str, ...]:
        """Say what was excused and what was not, and at which tolerance."""
        said = []
        if self.excused:
            widest = max(self.excused.values())
            said.append(
                f"{len(self.excused)} part at a near-tie of the target's logits "
                f"(gap at most {widest:.3g}, tolerance {TIE_TOLERANCE:g})"
            )
        if self.unexplained:
            canary, why = next(iter(self.unexplained.items()))
            said.append(f"{len(self.unexplained)} part without an explanation, the first is {canary}: {why}")
        return tuple(said)


def compare(answers: Iterable[Generation], plain: Iterable[Generation], ties: Sequence[Tie]) -> Comparison:
    """Compare every answer with every plain answer to the same canary; one unexplained parting is enough to differ."""
    compared = Comparison()
    for one, twin in _twins(answers, plain):
        compared.agree.setdefault(one.canary, True)
        if same_output(one.answer, twin):
            continue
        gap, why = _explained(first_divergence(one.canary, one.answer, twin), ties)
        if gap is None:
            compared.agree[one.canary] = False
            compared.unexplained.setdefault(one.canary, why)
        else:
            compared.excused[one.canary] = max(gap, compared.excused.get(one.canary, 0.0))
    for canary in compared.unexplained:
        compared.excused.pop(canary, None)
    return compared


def _explained(where: Divergence | None, ties: Sequence[Tie]) -> tuple[float | None, str]:
    """Return the gap that excuses a parting, or None and why nothing does."""
    if where is None:
        return None, "the texts differ, or one ends early, where no token shows a choice"
    place = f"at token {len(where.shared) + 1}"
    tie = next((tie for tie in ties if where.read_in(tie)), None)
    if tie is None:
        return None, f"{place} the target's logits were not read"
    if tie.gap is None:
        return None, f"{place} nobody can tell how near the target's logits lie: {tie.fault or 'no reason given'}"
    if not 0 <= tie.gap <= TIE_TOLERANCE:
        return None, f"{place} the target prefers its own token by {tie.gap:.3g}, more than {TIE_TOLERANCE:g}"
    return tie.gap, ""


def warm_cache_agreement(
    records: Sequence[Generation], canaries: Collection[str]
) -> tuple[dict[str, bool], tuple[str, ...]] | Missing:
    """Tell of each canary whether its answers with the cache on, repeated and later, are plain decoding's; and notes.

    A record's pair names the canary that opened the conversation; a prompt of several turns has an id of its own. An
    answer that fails with the cache on differs.
    """
    plain: dict[str, Answer] = {one.canary: one.answer for one in records if one.arm == "plain"}
    seen: dict[str, dict[str, list[bool]]] = {name: defaultdict(list) for name in canaries}
    for one in records:
        twin = plain.get(one.canary)
        if one.arm == "candidate" and one.pair in seen and twin is not None and twin.fault is None:
            turn = "single" if one.canary == one.pair else "later"
            seen[one.pair][turn].append(one.answer.fault is None and same_output(one.answer, twin))
    whole = {name for name, turns in seen.items() if len(turns["single"]) > 1 and turns["later"]}
    if not seen or len(whole) < len(seen):
        lacking = len(seen) - len(whole)
        return Missing(f"{lacking} of {len(seen)} canaries were not repeated and continued in both arms", len(whole))
    agree = {name: all(all(same) for same in turns.values()) for name, turns in seen.items()}
    return agree, _differing(seen)


def _differing(seen: Mapping[str, Mapping[str, Sequence[bool]]]) -> tuple[str, ...]:
    said = []
    for turn, words in (("single", "repeated answers"), ("later", "second turns")):
        same = [one for turns in seen.values() for one in turns[turn]]
        if not all(same):
            said.append(f"{same.count(False)} of {len(same)} {words} are not plain decoding's")
    return (" and ".join(said) + " once the prompt cache is on",) if said else ()
