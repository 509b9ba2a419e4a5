"""Log-probabilities over HTTP: an answer whose tokens come with them, in the forms that servers use."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from gatekeeper.core.records import Likely, Scored

LIKELIEST = 5
"""Tokens at each place that are requested with their log-probabilities."""

Ask = Callable[[str, Mapping[str, Any]], Any]
"""Posts fields to a path of the server; returns the document it answers with, None where there is none."""


def with_scores(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chat request that asks for log-probabilities, in one document: some streams lack them."""
    plain = {name: value for name, value in fields.items() if name not in {"stream", "stream_options"}}
    return {**plain, "stream": False, "logprobs": True, "top_logprobs": LIKELIEST}


def scored_from(document: Any) -> Scored | None:
    """Return the answer in a chat completion with its log-probabilities; None where it has none.

    A place without a finite log-probability, or without likely tokens, tells nothing but its token.
    """
    choice = choice_of(document)
    places = places_of(choice)
    if not places:
        return None
    tokens, logprobs, likeliest = [], [], []
    for place in places:
        itself = likely_in(place)
        tokens.append(name_of(place))
        logprobs.append(itself.logprob if itself is not None else 0.0)
        likeliest.append(likeliest_at(place) if itself is not None else ())
    return Scored(
        "", "", "", text=text_of(choice), tokens=tuple(tokens), logprobs=tuple(logprobs), likeliest=tuple(likeliest)
    )


def likeliest_at(place: Mapping[str, Any]) -> tuple[Likely, ...]:
    """Return the likely tokens that a place tells, the likeliest first; none where a server tells none."""
    likely = [token for token in map(likely_in, _list(place.get("top_logprobs"))) if token is not None]
    return tuple(sorted(likely, key=lambda token: -token.logprob))


def likely_in(place: object) -> Likely | None:
    """Return the token of a place with its log-probability; None where that is not a finite number."""
    logprob = place.get("logprob") if isinstance(place, Mapping) else None
    if isinstance(logprob, bool) or not isinstance(logprob, int | float) or not math.isfinite(logprob):
        return None
    assert isinstance(place, Mapping)
    return Likely(name_of(place), float(logprob))


def name_of(place: Mapping[str, Any]) -> str:
    """Return a token's number with a `#`, or its text."""
    number = place.get("id")
    return f"#{number}" if type(number) is int else str(place.get("token", ""))


def choice_of(document: Any) -> Mapping[str, Any]:
    """Return the first choice of a completion; empty where there is none."""
    choices = _list(document.get("choices")) if isinstance(document, Mapping) else []
    return choices[0] if choices and isinstance(choices[0], Mapping) else {}


def places_of(choice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a choice tells of each token."""
    told = choice.get("logprobs")
    content = _list(told.get("content")) if isinstance(told, Mapping) else []
    return [place for place in content if isinstance(place, Mapping)]


def text_of(choice: Mapping[str, Any]) -> str:
    """Return the reasoning and the content of a choice."""
    message = choice.get("message")
    parts = (message.get(name) for name in ("reasoning_content", "content")) if isinstance(message, Mapping) else ()
    return "".join(part for part in parts if isinstance(part, str))


def lead_in(places: list[Mapping[str, Any]]) -> tuple[float | None, str | None]:
    """Return by how much the likeliest token of the first place leads, and its name; None where that is not told."""
    likely = likeliest_at(places[0]) if places else ()
    return (likely[0].logprob - likely[1].logprob, likely[0].name) if len(likely) > 1 else (None, None)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
