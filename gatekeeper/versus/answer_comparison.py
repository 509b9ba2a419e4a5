"""What the answers of two systems to the same canaries show beside their speed: words, prompts, caches."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import model_serializer

from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.metrics.words.exactness import distinct_outputs, same_output
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.core.document import WriteFields
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import Answer, Generation

EXCERPT = 24
"""Characters of each answer that are shown from the first difference on."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where the answers to one canary part."""

    canary: str
    characters: int
    """That both answers begin with."""
    a: str
    """What A writes from there on, the first characters of it."""
    b: str


@dataclass(frozen=True, slots=True)
class WordComparison:
    """The greedy answers of both systems, word by word. Why words differ is not read: no logits are compared."""

    canaries: int
    """That both answered."""
    unsteady: tuple[str, ...]
    """Sides that answered a canary differently when it came again: A, B."""
    differences: tuple[FirstDifference, ...]
    """One a canary whose answers are not all alike, the earliest first."""

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return {"canaries": self.canaries, "same": self.canaries - len(self.differences)} | write(self)


def compare_words(a: Iterable[Generation], b: Iterable[Generation]) -> WordComparison:
    """Compare every answer of *b* with every answer of *a* to its canary; failed ones are left out."""
    outputs = [
        by_canary((generation.canary, generation.answer) for generation in distinct_outputs(answers))
        for answers in (a, b)
    ]
    common = [canary for canary in outputs[0] if canary in outputs[1]]
    differences = []
    for canary in common:
        places = [
            _first_difference(canary, first, second)
            for first in outputs[0][canary]
            for second in outputs[1][canary]
            if not _same_words(first, second)
        ]
        if places:
            differences.append(min(places, key=lambda place: place.characters))
    unsteady = [
        label
        for label, answers in zip("AB", outputs, strict=True)
        if any(not _same_words(repeats[0], repeat) for repeats in answers.values() for repeat in repeats[1:])
    ]
    differences.sort(key=lambda place: place.characters)
    return WordComparison(len(common), tuple(unsteady), tuple(differences))


def _same_words(first: Answer, second: Answer) -> bool:
    """Return whether two answers are the same; the spaces in a tool call's arguments are the server's."""
    return same_output(first, second) or (bool(first.tool_calls) and _content(first) == _content(second))


def _content(answer: Answer) -> str:
    calls = (call.get("function", call) for call in answer.tool_calls)
    return answer.reasoning + answer.text + "".join(f"{call.get('name')}({_arguments(call)})" for call in calls)


def _arguments(call: dict[str, Any]) -> str:
    arguments = call.get("arguments")
    try:
        return json.dumps(json_value(arguments) if isinstance(arguments, str) else arguments, sort_keys=True)
    except ParseError:
        return str(arguments)


def _first_difference(canary: str, a: Answer, b: Answer) -> FirstDifference:
    first, second = _content(a), _content(b)
    shorter = min(len(first), len(second))
    place = next((index for index in range(shorter) if first[index] != second[index]), shorter)
    return FirstDifference(canary, place, first[place : place + EXCERPT], second[place : place + EXCERPT])


def unequal_prompts(a: Iterable[Generation], b: Iterable[Generation]) -> str | None:
    """Return how the prompts of both differ in length, which the same model and chat template cannot; None: alike."""
    lengths = [
        {generation.canary: generation.answer.prompt_tokens for generation in successful(answers)} for answers in (a, b)
    ]
    pairs = {name: (tokens, lengths[1].get(name)) for name, tokens in lengths[0].items()}
    counted = {name: pair for name, pair in pairs.items() if None not in pair}
    unequal = {name: pair for name, pair in counted.items() if pair[0] != pair[1]}
    if not unequal:
        return None
    name, (tokens_a, tokens_b) = next(iter(unequal.items()))
    return (
        f"{len(unequal)} of {len(counted)} prompts have another length in A and B, such as {name}: {tokens_a} and "
        f"{tokens_b} tokens: another model, chat template or way to count; other prompts have other answers and times"
    )


def cache_doubt(label: str, answers: Iterable[Generation], *, uncached: bool) -> str | None:
    """Return why a side's time to first token is not that of reading the prompt; None where it is.

    *uncached*: gatekeeper switched its prompt cache off.
    """
    cached = [generation.answer.claims.cached_tokens for generation in successful(answers)]
    if warm := sum((count or 0) > 0 for count in cached):
        return f"{label} had {warm} of {len(cached)} prompts in its cache; start it with its prompt cache off"
    if not uncached and None in cached:
        return f"{label} does not report whether its prompts came from a cache"
    return None
