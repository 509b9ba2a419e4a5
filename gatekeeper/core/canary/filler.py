"""Long prompts: text of a small seeded grammar put before a canary's question, the same on every machine.

The text is a log of invented deliveries. It has nothing to do with the question, so what a canary expects stays right,
and no two canaries share a beginning that a prompt cache could reuse.
"""

import hashlib
from collections.abc import Iterator, Sequence

from gatekeeper.core.canary import Canary

CHARACTERS = 4
"""Characters of one token of a large vocabulary, in English text; a small vocabulary has fewer."""
_OPENING = "Background, which the question below does not depend on:"
_CLOSING = "End of the background. Now answer only this:"
_SUBJECTS = (
    "the north depot", "a courier from the harbour", "the night shift", "the second lorry", "the new clerk",
    "the workshop on the hill", "a buyer from the valley", "the mill", "the old ferry", "the district office",
)  # fmt: skip
_VERBS = (
    "signed for", "returned", "counted", "weighed", "relabelled", "delayed", "inspected", "stored", "replaced",
    "sold on",
)  # fmt: skip
_OBJECTS = (
    "crates of glass jars", "rolls of grey felt", "boxes of brass hinges", "sacks of dried beans",
    "tins of linseed oil", "bundles of willow rods", "coils of hemp rope", "cases of blank ledgers",
    "barrels of vinegar", "trays of clay tiles",
)  # fmt: skip
_REASONS = (
    "because the road was closed", "after a call from the customer", "although the form was incomplete",
    "before the rain set in", "as the week's plan required", "without waiting for the scale", "when the ferry was late",
    "since two of them were damp",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def with_context(canaries: Sequence[Canary], tokens: int | None) -> tuple[Canary, ...]:
    """Return the *canaries* with prompts of about *tokens* tokens each; longer ones, and all without a number, stay."""
    return tuple(canaries) if tokens is None else tuple(_lengthen_canary(canary, tokens) for canary in canaries)


def _lengthen_canary(canary: Canary, tokens: int) -> Canary:
    size = sum(len(str(message.get("content") or "")) for message in canary.messages) + len(str(canary.tools or ""))
    first = next((at for at, message in enumerate(canary.messages) if message["role"] == "user"), None)
    missing = tokens * CHARACTERS - size
    if first is None or missing <= 0:
        return canary
    message = canary.messages[first]
    content = f"{_OPENING}\n\n{_text(f'{canary.id}/{tokens}', missing)}\n\n{_CLOSING}\n\n{message['content']}"
    messages = (*canary.messages[:first], {**message, "content": content}, *canary.messages[first + 1 :])
    return canary.model_copy(update={"messages": messages})


def _text(seed: str, characters: int) -> str:
    """Return whole sentences of about *characters*, in paragraphs, drawn from SHA-256 of *seed*."""
    draw, sentences, size = _draws(seed), list[str](), 0
    while size < characters:
        subject = _pick(draw, _SUBJECTS)
        number, minute = 2 + next(draw) % 400, next(draw) % 60
        sentence = (
            f"On {_pick(draw, _DAYS)} at {6 + next(draw) % 13}:{minute:02d} {subject} {_pick(draw, _VERBS)} {number} "
            f"{_pick(draw, _OBJECTS)} {_pick(draw, _REASONS)}."
        )
        sentences.append(sentence)
        size += len(sentence) + 1
    return "\n\n".join(" ".join(sentences[at : at + 6]) for at in range(0, len(sentences), 6))


def _draws(seed: str) -> Iterator[int]:
    counter = 0
    while True:
        digest = hashlib.sha256(f"{seed}/{counter}".encode()).digest()
        yield from (int.from_bytes(digest[at : at + 4]) for at in range(0, 32, 4))
        counter += 1


def _pick(draw: Iterator[int], options: Sequence[str]) -> str:
    return options[next(draw) % len(options)]
