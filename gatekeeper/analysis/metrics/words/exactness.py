"""Agreement of greedy answers with plain decoding's, token by token, and which divergences are near-ties."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gatekeeper.analysis.metrics.words.near_ties import (
    TIE_TOLERANCE,
    Divergence,
    explained,
    first_divergence,
    token_column,
)
from gatekeeper.core.records import Answer, Generation, Role, Tie
from gatekeeper.core.verdict import Missing

EARLY = 16
"""Tokens that must be alike before a difference may be a near-tie where the target's logits cannot be read.

Near-ties are rare (0.5 % of the tokens would be many), so first differences lie among the first tokens of few answers.
"""
CHARACTERS = 4
"""Of a token, where no token ids are seen."""


def same_output(answer: Answer, baseline: Answer) -> bool:
    """Return whether two answers have the same tokens; the same reasoning, text and calls where tokens are unknown."""
    (tokens, content), (baseline_tokens, baseline_content) = _output(answer), _output(baseline)
    return tokens == baseline_tokens if tokens and baseline_tokens else content == baseline_content


def _output(answer: Answer) -> tuple[bytes, tuple[str, str, tuple[str, ...]]]:
    """Return the column of an answer's tokens, empty where one is unknown; and its reasoning, text and calls."""
    calls = tuple(json.dumps(call.get("function", call), sort_keys=True) for call in answer.tool_calls)
    return token_column(answer), (answer.reasoning, answer.text, calls)


def shared_tokens(answer: Answer, baseline: Answer) -> int:
    """Return how many tokens two answers have in common before they differ; four characters where ids are unknown."""
    (tokens, content), (baseline_tokens, baseline_content) = _output(answer), _output(baseline)
    if tokens and baseline_tokens:
        return _shared_length(memoryview(tokens).cast("q"), memoryview(baseline_tokens).cast("q"))
    (reasoning, text, _), (baseline_reasoning, baseline_text, _) = content, baseline_content
    return _shared_length(f"{reasoning}{text}", f"{baseline_reasoning}{baseline_text}") // CHARACTERS


def _shared_length(tokens: Sequence[object], baseline: Sequence[object]) -> int:
    for index, (token, expected) in enumerate(zip(tokens, baseline, strict=False)):
        if token != expected:
            return index
    return min(len(tokens), len(baseline))


def divergences(answers: Iterable[Generation], plain: Iterable[Generation]) -> tuple[Divergence, ...]:
    """Return where the candidate's answers diverge from plain decoding's, each place once, in order of the answers."""
    places = (
        first_divergence(generation.canary, generation.answer, baseline)
        for generation, baseline in _distinct_pairs(answers, plain)
    )
    return tuple(dict.fromkeys(place for place in places if place is not None))


def _distinct_pairs(answers: Iterable[Generation], plain: Iterable[Generation]) -> Iterable[tuple[Generation, Answer]]:
    """Pair every answer with every plain answer to its canary; a repeated output would change no comparison."""
    by_canary: dict[str, list[Answer]] = defaultdict(list)
    for generation in distinct_outputs(plain):
        by_canary[generation.canary].append(generation.answer)
    return (
        (generation, baseline) for generation in distinct_outputs(answers) for baseline in by_canary[generation.canary]
    )


def distinct_outputs(answers: Iterable[Generation]) -> Iterable[Generation]:
    """Return, in order, the first of the answers to a canary with the same output; failed answers are left out."""
    first_by_output: dict[tuple[object, ...], Generation] = {}
    for generation in answers:
        if generation.answer.fault is None:
            first_by_output.setdefault((generation.canary, *_output(generation.answer)), generation)
    return first_by_output.values()


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
            canary, reason = next(iter(self.unexplained.items()))
            notes.append(f"{len(self.unexplained)} diverge otherwise, first {canary}: {reason}")
        return tuple(notes)


def compare(
    answers: Iterable[Generation], plain: Iterable[Generation], ties: Sequence[Tie], *, unread: bool = False
) -> Comparison:
    """Compare every answer with every plain answer to its canary; one unexplained divergence is enough to differ.

    *unread*: the backend shows no logits, so that a divergence after the first tokens counts as a near-tie.
    """
    compared = Comparison()
    for generation, baseline in _distinct_pairs(answers, plain):
        compared.agree.setdefault(generation.canary, True)
        if same_output(generation.answer, baseline):
            continue
        gap, reason = explained(first_divergence(generation.canary, generation.answer, baseline), ties)
        if gap is None and unread and shared_tokens(generation.answer, baseline) >= EARLY:
            compared.late.add(generation.canary)
        elif gap is None:
            compared.agree[generation.canary] = False
            compared.unexplained.setdefault(generation.canary, reason)
        else:
            compared.excused[generation.canary] = max(gap, compared.excused.get(generation.canary, 0.0))
    for canary in compared.unexplained:
        compared.excused.pop(canary, None)
        compared.late.discard(canary)
    return compared


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
WARM_PARTS = {"warm_cache_agreement": REPEATED, "shared_prefix_agreement": SHARED, "model_switch_agreement": SWITCHED}
"""By the metric that is computed of it."""


def warm_cache_agreement(
    records: Sequence[Generation], canaries: Collection[str], part: WarmPart = REPEATED
) -> tuple[dict[str, bool], tuple[str, ...]] | Missing:
    """Return by canary whether its repeated and later answers with the cache on equal plain decoding's; and notes.

    A record's pair names the canary that opened the conversation; a prompt of several turns has an id of its own. An
    answer that fails with the cache on counts as different. What was to stand between two answers must have been
    answered: otherwise nothing stood there.
    """
    plain = {generation.canary: generation.answer for generation in records if generation.arm == "plain"}
    same_by_canary: dict[str, dict[str, list[bool]]] = {name: defaultdict(list) for name in canaries}
    counted = [generation for generation in records if generation.arm == "candidate" and generation.role is part.role]
    for generation in counted:
        baseline = plain.get(generation.canary)
        counts = generation.repeat >= part.first_repeat or generation.canary != generation.pair
        if counts and generation.pair in same_by_canary and baseline is not None and baseline.fault is None:
            turn = "single" if generation.canary == generation.pair else "later"
            same_by_canary[generation.pair][turn].append(
                generation.answer.fault is None and same_output(generation.answer, baseline)
            )
    if (missing := _nothing_between(records, part)) is not None:
        return missing
    least = 2 - part.first_repeat
    complete = {name for name, turns in same_by_canary.items() if len(turns["single"]) >= least and turns["later"]}
    if not same_by_canary or len(complete) < len(same_by_canary):
        lacking = len(same_by_canary) - len(complete)
        return Missing(
            f"{lacking} of {len(same_by_canary)} canaries lack repeated answers or a second turn in one of the arms",
            len(complete),
        )
    agree = {name: all(all(agreeing) for agreeing in turns.values()) for name, turns in same_by_canary.items()}
    return agree, _differing(same_by_canary, part)


def _nothing_between(records: Sequence[Generation], part: WarmPart) -> Missing | None:
    """Return why nothing stood between the answers of a part; None where something did, or nothing is to."""
    if part.between is None:
        return None
    answers = [generation.answer for generation in records if generation.role is part.between]
    between = "the other conversation" if part is SHARED else "the other model"
    if not answers:
        return Missing(f"{between} was not requested")
    if fault := next((answer.fault for answer in answers if answer.fault is not None), None):
        return Missing(f"{between} was not answered: {fault}")
    own_models = {generation.answer.claims.model for generation in records if generation.role is part.role} - {None}
    if part is SWITCHED and own_models & {answer.claims.model for answer in answers}:
        return Missing("the server answered with the same model when another one was requested")
    return None


def _differing(same_by_canary: Mapping[str, Mapping[str, Sequence[bool]]], part: WarmPart) -> tuple[str, ...]:
    parts = []
    for turn, words in (("single", "repeated answers"), ("later", "second turns")):
        agreements = [agrees for turns in same_by_canary.values() for agrees in turns[turn]]
        if not all(agreements):
            parts.append(f"{agreements.count(False)} of {len(agreements)} {words}")
    return (f"{part.condition}, {' and '.join(parts)} differ from plain decoding's",) if parts else ()
