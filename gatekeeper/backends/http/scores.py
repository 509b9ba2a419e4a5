"""Log-probabilities over HTTP: an answer whose tokens come with them, in the forms that servers use.

What is missing, malformed or too large tells nothing of its place; it is never an error.

Where a server's chat API can be brought to do it, the beginning of an answer is read again as a part of the prompt. A
beginning that is sent as text is split into tokens again. So it counts only where the server reads as many tokens as
the answer had: otherwise the next token follows something else.
"""

import codecs
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.core.parse import COUNTS, WHOLE, json_object
from gatekeeper.core.records import Likely, Scored

LIKELIEST = 5
"""Tokens at each place that are requested with their log-probabilities."""
_MOST_LIKELY = 32
"""Likeliest tokens of a place that are read, however many a server sends."""
_MOST_TEXT = 1 << 10
"""Characters or bytes of one token: the longest in the vocabularies of chat models have under 300."""
_ROUNDED = 1e-3
"""A log-probability up to this is 0, rounded: no probability is above 1."""

Ask = Callable[[str, Mapping[str, Any]], Any]
"""Posts fields to a path of the server; returns the document it answers with, None where there is none."""
Spell = Callable[[str], bytes]
"""Returns the bytes that a server means by the text of a token."""
ReadScored = Callable[[Ask, Mapping[str, Any]], Scored | None]
"""Requests an answer with log-probabilities, as a dialect's `scored` does."""
_TEMPLATE_BYTES = 1 << 20
"""Bytes of a file with a chat template from which it is not read."""
_VARIABLE = "beginning_of_the_answer"
"""The variable of a chat template that holds the beginning."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of an answer that is to be read as a part of the prompt."""

    fields: Mapping[str, Any]
    """The fields of the request that was answered."""
    answer: Scored
    """Its first tokens."""
    folder: Path | None
    """The target's folder or file, where it is on this machine."""


def with_scores(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chat request that asks for log-probabilities, in one document: some streams lack them."""
    plain = {name: value for name, value in fields.items() if name not in {"stream", "stream_options"}}
    return {**plain, "stream": False, "logprobs": True, "top_logprobs": LIKELIEST}


def _as_written(text: str) -> bytes:
    return text.encode("utf-8", "replace")


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
    usage, finish = _mapping(document.get("usage")), choice.get("finish_reason")
    count = usage.get("prompt_tokens")
    return Scored(
        "", "", "", text=text_of(choice), tokens=tuple(tokens), logprobs=tuple(logprobs), likeliest=tuple(likeliest),
        spelled=spelled_by(places, _as_written), prompt_tokens=count if _is_count(count) else None,
        finish=finish if isinstance(finish, str) else None,
    )  # fmt: skip


def spelled_by(places: Iterable[Mapping[str, Any]], spell: Spell = _as_written) -> tuple[str, ...]:
    """Return the text of each token, a character of several tokens as the last one's; empty where one is unknown."""
    decoder, texts = codecs.getincrementaldecoder("utf-8")("replace"), []
    for place in places:
        octets, text = _octets(place.get("bytes")), place.get("token")
        if octets is not None:
            texts.append(decoder.decode(octets))
        elif isinstance(text, str) and len(text) <= _MOST_TEXT:
            texts.append(decoder.decode(spell(text)))
        else:
            return ()
    return tuple(texts)


def _octets(values: Any) -> bytes | None:
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_TEXT:
        return None
    return bytes(values) if all(type(value) is int and value in range(256) for value in values) else None


def likeliest_at(place: Mapping[str, Any]) -> tuple[Likely, ...]:
    """Return the likely tokens that a place tells, the likeliest first; none where a server tells none."""
    listed = _list(place.get("top_logprobs"))[:_MOST_LIKELY]
    likely = [token for token in map(likely_in, listed) if token is not None]
    return tuple(sorted(likely, key=lambda token: -token.logprob))


def likely_in(place: object) -> Likely | None:
    """Return the token of a place with its log-probability; None where that is not one."""
    logprob = place.get("logprob") if isinstance(place, Mapping) else None
    if isinstance(logprob, bool) or not isinstance(logprob, int | float) or not -WHOLE < logprob <= _ROUNDED:
        return None
    assert isinstance(place, Mapping)
    return Likely(name_of(place), min(float(logprob), 0.0))


def name_of(place: Mapping[str, Any]) -> str:
    """Return a token's number with a `#`, or its text."""
    number, text = place.get("id"), place.get("token", "")
    if _is_count(number):
        return f"#{number}"
    return text[:_MOST_TEXT] if isinstance(text, str) else ""


def _is_count(value: object) -> bool:
    return type(value) is int and value in COUNTS


def choice_of(document: Any) -> Mapping[str, Any]:
    """Return the first choice of a completion; empty where there is none."""
    choices = _list(document.get("choices")) if isinstance(document, Mapping) else []
    return _mapping(choices[0]) if choices else {}


def places_of(choice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a choice tells of each token."""
    content = _list(_mapping(choice.get("logprobs")).get("content"))
    return [place for place in content if isinstance(place, Mapping)]


def text_of(choice: Mapping[str, Any]) -> str:
    """Return the reasoning and the content of a choice."""
    message = _mapping(choice.get("message"))
    thought = message.get("reasoning") or message.get("reasoning_content")
    return "".join(part for part in (thought, message.get("content")) if isinstance(part, str))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def by_final_message(read: ReadScored, ask: Ask, beginning: Beginning, tokens: int) -> Scored | None:
    """Let the answer continue a last message that holds the beginning, as vLLM and SGLang do."""
    text, fields = _text_of(beginning), beginning.fields
    if text is None:
        return None
    messages = [*fields["messages"], {"role": "assistant", "content": text}]
    continues = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    return _if_read_alike(read(ask, {**fields, **continues, "max_tokens": tokens}), beginning)


def by_template(read: ReadScored, ask: Ask, beginning: Beginning, tokens: int) -> Scored | None:
    """Send the target's own chat template, which then writes the beginning, as mlx_lm.server takes one."""
    text, template = _text_of(beginning), chat_template(beginning.folder)
    if text is None or template is None:
        return None
    # A template ends without its last line break; what follows would keep it.
    continued = template.removesuffix("\n") + f"{{{{ {_VARIABLE} }}}}"
    options = {**(beginning.fields.get("chat_template_kwargs") or {}), "chat_template": continued, _VARIABLE: text}
    return _if_read_alike(
        read(ask, {**beginning.fields, "chat_template_kwargs": options, "max_tokens": tokens}), beginning
    )


def _text_of(beginning: Beginning) -> str | None:
    """Return the text of a beginning; None where it is unknown, or ends within a character."""
    spelled = beginning.answer.spelled
    text = "".join(spelled)
    return text if text and spelled[-1] and "\ufffd" not in text else None


def _if_read_alike(continued: Scored | None, beginning: Beginning) -> Scored | None:
    """Return what follows the beginning; None where the server read another number of tokens."""
    before, read = beginning.answer.prompt_tokens, None if continued is None else continued.prompt_tokens
    return continued if before is not None and read == before + len(beginning.answer.tokens) else None


def chat_template(folder: Path | None) -> str | None:
    """Return the chat template of a model's folder; None where it has none, or several."""
    if folder is None or not folder.is_dir():
        return None
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        path = folder / name
        try:
            if not path.is_file() or path.stat().st_size > _TEMPLATE_BYTES:
                continue
            text = path.read_text(encoding="utf-8")
            template = text if path.suffix == ".jinja" else json_object(text).get("chat_template")
        except (OSError, ValueError):
            return None
        if template is not None:
            return template if isinstance(template, str) else None
    return None
