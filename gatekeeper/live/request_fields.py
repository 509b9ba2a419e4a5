"""The fields of a request by what they may change, and what of them is compared with the certificate."""

import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from gatekeeper.core.canary import LIMITS, SCHEMAS, WITHOUT_EFFECT
from gatekeeper.core.policy import digest, shape_of

ANSWERS = ("n", "best_of", "n_cmpl", "num_return_sequences")
"""Fields that ask for several answers at once, by server; 1 is one answer, as canaries ask for."""
TABLES = ("options", "chat_template_kwargs")
"""Fields that hold fields of their own."""
WITH_TEXT = ("tools", "tool_choice")
"""Fields that may differ from a canary's, and that a server writes into the prompt."""
FORMATS = (*SCHEMAS, "format")
"""Fields whose schema may differ from a canary's; only some servers write it into the prompt."""
PROMPTS = ("prompt", "input", "system")
KNOWN_OF_MESSAGES = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "tool_name", "function_call", "refusal"}
    | {"reasoning_content", "reasoning", "thinking"}
)
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Any other one may be a part of the prompt as it is."""
TEXT_PART = frozenset({"type", "text", "cache_control"})
"""Fields of a part of a message that is text alone."""
TEXT_TYPES = (None, "text", "input_text", "output_text")
TEMPLATE_TOKENS = 8
"""Tokens that a chat template adds to a message."""
DRAFTING = frozenset({
    "depth", "draft_block_size", "draft_model", "draft_num_predict", "gemma_draft_block_size", "generation_mode",
    "mtp_depth", "num_draft_tokens", "tree_budget",
})  # fmt: skip
"""Fields that choose the draft, by server, and all that begin with `speculative`: the proxy chooses, not a client."""
MOST_FIELDS = 64
"""Fields of a request that are compared: no canary has so many, so that one with more is outside by these."""
MOST_CHARACTERS = 200
"""Characters of a value that is compared as it is, as JSON; a longer one has its digest compared."""
MOST_OF_MODEL = 512
"""Characters of a model's name that are compared: no certified name has so many."""
FORMS: tuple[Literal["NFC", "NFKC"], ...] = ("NFC", "NFKC")
"""Unicode's forms that tokenizers bring a text into before they split it: it may get longer."""


@dataclass(frozen=True, slots=True)
class RequestConditions:
    """What of a request is compared with the conditions of the certificate."""

    prompt_bytes: int | None
    """Bytes of all texts and tools; None where something else is in it, such as an image."""
    messages: int
    options: Mapping[str, str]
    """Its fields that may change how it is decoded, by name, each with its value as `comparable` writes it."""
    model: str | None = None
    """As it names it; None where it names none."""
    format_bytes: int = 0
    """Bytes of its response format, as JSON."""

    def most_prompt_tokens(self, longest_format: int, text_tokens: int | None) -> int | None:
        """Return how many tokens its prompt has at most; None where its prompt is not text alone.

        *text_tokens* are those of its texts where they were counted. Else a byte is one token: to a tokenizer that
        knows every byte it is at most that. A response format counts as a part of the prompt by what it has more than
        the longest certified one, which is in the certified prompts if any is. So are the template's tokens for one
        message: those of further ones are added, else the longest certified request would be outside itself.
        """
        if self.prompt_bytes is None:
            return None
        tokens = self.prompt_bytes if text_tokens is None else text_tokens
        return tokens + max(0, self.format_bytes - longest_format) + TEMPLATE_TOKENS * (self.messages - 1)


def read_conditions(body: Mapping[str, Any]) -> RequestConditions:
    """Read them; raise ValueError or RecursionError for a value that cannot be compared."""
    messages, model, texts = messages_of(body), body.get("model"), prompt_texts(body)
    options = {**comparable_fields(body), **{name: comparable(value) for name, value in _strange(body, messages)}}
    return RequestConditions(
        prompt_bytes=None if texts is None else sum(map(_most_bytes, texts)),
        messages=max(1, len(messages)),
        options=dict(islice(sorted(options.items()), MOST_FIELDS)),
        model=None if model is None else model[:MOST_OF_MODEL] if isinstance(model, str) else "",
        format_bytes=sum(_most_bytes(_json_of(body.get(name))) for name in FORMATS),
    )


def comparable_fields(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a body that may change how it is decoded, each with its value as it is compared.

    Null is the same as no field. Fields that choose a draft are left out: the proxy sets them itself.
    """
    fields = {}
    for name, value in _flat(body):
        shape = shape_of(name.rpartition(".")[2], value)
        if shape is not None:
            fields[name] = comparable(shape)
    return fields


def _flat(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a body that have an effect, those of tables one by one."""
    for name, value in body.items():
        if name in TABLES and isinstance(value, dict):
            for inner_name, inner_value in value.items():
                is_option = name == "options" and (inner_name in {*LIMITS, "seed"} or chooses_draft(inner_name))
                if not is_option:
                    yield f"{name}.{inner_name}", inner_value
        elif name not in WITHOUT_EFFECT and not chooses_draft(name) and not _is_one_answer(name, value):
            yield f".{name}" if "." in name else name, value  # "options.seed" is no field of `options`


def _is_one_answer(name: str, value: Any) -> bool:
    return name in ANSWERS and value == 1 and value is not True


def comparable(value: Any) -> str:
    """Return a value as JSON by which it is compared: 0 and 0.0 are the same number, false is another value."""
    text = json.dumps(_with_plain_numbers(value), sort_keys=True)
    return text if len(text) <= MOST_CHARACTERS else f'"sha256:{digest(text)}"'


def _with_plain_numbers(value: Any) -> Any:
    """Return a value whose whole numbers are integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _with_plain_numbers(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_plain_numbers(part) for part in value]
    return value


def chooses_draft(name: str) -> bool:
    """Return whether a field chooses the draft, in any spelling: it is removed before a server sees it."""
    return name.casefold() in DRAFTING or name.casefold().startswith("speculative")


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that are objects."""
    return [message for message in list_items(body.get("messages")) if isinstance(message, dict)]


def _strange(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield what of a request's messages is not as canaries have it, under a name that no canary's field has."""
    written = body.get("messages")
    if not (isinstance(written, list) and all(isinstance(message, dict) for message in written)):
        yield "messages", written
    for message in messages:
        for name in message.keys() - KNOWN_OF_MESSAGES:
            yield f"messages.{name}", message[name]
        if message.get("role") not in ROLES:
            yield "messages.role", message.get("role")


def list_items(value: Any) -> Iterable[Any]:
    """Return the items of a list; none of another value."""
    return value if isinstance(value, list) else ()


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = (part.get("text") if isinstance(part, dict) else part for part in list_items(content))
    return "".join(text for text in parts if isinstance(text, str))


def prompt_texts(body: Mapping[str, Any]) -> list[str] | None:
    """Return all texts of a request's prompt, tools among them; None where it has parts that are no text."""
    texts = [_json_of(body.get(name)) for name in WITH_TEXT]
    for message in messages_of(body):
        texts += [_json_of(value) for name, value in message.items() if name not in {"role", "content"}]
        content = message.get("content")
        if content is None:
            continue
        for part in content if isinstance(content, list) else [content]:
            text = part
            if isinstance(part, dict) and part.keys() <= TEXT_PART and part.get("type") in TEXT_TYPES:
                text = part.get("text")
                texts.append(_json_of(part.get("cache_control")))
            if not isinstance(text, str):
                return None
            texts.append(text)
    return texts


def _most_bytes(text: str) -> int:
    """Return the bytes of a text in the form that has most of them: a tokenizer may bring it into any."""
    if text.isascii():
        return len(text)
    sizes = [len(unicodedata.normalize(form, text).encode("utf-8", "surrogatepass")) for form in FORMS]
    return max(len(text.encode("utf-8", "surrogatepass")), *sizes)


def _json_of(value: Any) -> str:
    """Return a value as JSON, where it may be text in a prompt: a switch or a usual number is none."""
    is_text = isinstance(value, str | list | dict) or (isinstance(value, int) and value.bit_length() > 64)
    return json.dumps(value, ensure_ascii=False) if value and is_text else ""


def highest_of(body: Mapping[str, Any], names: Sequence[str]) -> float | None:
    """Return the largest of some fields, of the body or of its `options`; None where none is a number."""
    options = body.get("options")
    values = [table.get(name) for table in (body, options) if isinstance(table, dict) for name in names]
    present = [value for value in values if value is not None]
    numbers = [
        value for value in present if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    ]
    if not numbers or len(numbers) != len(present):
        return None
    try:
        return float(max(numbers))
    except OverflowError:
        return math.inf
