"""The fields of a request by what they may change, and what of them is compared with the certificate."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.policy import TEMPLATE_TOKENS, digest

LIMITS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_length", "num_predict",
    "n_predict", "min_tokens",
)  # fmt: skip
"""Fields that limit the tokens of an answer, or demand some, by server: the largest counts."""
ANSWERS = ("n", "best_of", "n_cmpl", "num_return_sequences")
"""Fields that ask for several answers at once, by server."""
PROMPTS = ("prompt", "input", "system")
NOT_PROMPT = frozenset({
    "logit_bias", "metadata", "model", "options", "prompt_cache_key", "request_id", "safety_identifier",
    "service_tier", "session_id", "stop", "stop_sequences", "stop_token_ids", "stream_options", "user",
})  # fmt: skip
"""Fields that no model reads as a part of its prompt; the text of any other field counts as one."""
READ_APART = NOT_PROMPT | {"messages", *PROMPTS}
DRAWN = frozenset({
    "add_generation_prompt", "cache_prompt", "dynatemp_exponent", "enable_thinking", "frequency_penalty",
    "ignore_eos", "include_reasoning", "include_stop_str_in_output", "keep_alive", "logprobs", "min_p",
    "parallel_tool_calls", "presence_penalty", "repeat_last_n", "repeat_penalty", "repetition_context_size",
    "repetition_penalty", "return_progress", "return_spec_tokens_details", "return_tokens", "seed",
    "separate_reasoning", "skip_special_tokens", "store", "stream", "stream_reasoning", "think",
    "timings_per_token", "top_k", "top_logprobs", "top_p", "typical_p",
})  # fmt: skip
"""Fields that say how a token is drawn or reported, and not how many there are."""
KNOWN = (
    NOT_PROMPT
    | DRAWN
    | {"messages", *PROMPTS, *LIMITS, *ANSWERS, "temperature", "dynatemp_range"}
    | {  # read as parts of the prompt
        "chat_template_kwargs", "documents", "format", "function_call", "functions", "grammar",
        "guided_grammar", "guided_json", "guided_regex", "input_extra", "input_prefix", "input_suffix",
        "instructions", "json_schema", "reasoning_effort", "response_format", "suffix", "tool_choice", "tools",
    }
)  # fmt: skip
"""Fields whose effect on prompt, load and temperature is known: a request with another one is decoded plainly."""
KNOWN_OF_OPTIONS = DRAWN | {*LIMITS, "temperature", "dynatemp_range", "stop"}
KNOWN_OF_MESSAGES = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "tool_name", "function_call", "refusal"}
    | {"reasoning_content", "reasoning", "thinking"}
)
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Any other one may be a part of the prompt as it is."""
TEXT_PART = frozenset({"type", "text", "cache_control"})
"""Fields of a part of a message that is text alone."""
TEXT_TYPES = (None, "text", "input_text", "output_text")
DRAFTING = frozenset({
    "depth", "draft_block_size", "draft_model", "draft_num_predict", "gemma_draft_block_size", "generation_mode",
    "mtp_depth", "num_draft_tokens", "tree_budget",
})  # fmt: skip
"""Fields that choose the draft, by server, and all that begin with `speculative`: the proxy chooses, not a client."""


@dataclass(frozen=True, slots=True)
class RequestConditions:
    """What of a request is compared with the conditions of the certificate."""

    prompt_bytes: int | None
    """Of all texts and tools; None where something else is in it, such as an image."""
    messages: int
    temperature: float | None
    """None where it names none, several, or one that moves."""
    unknown: Mapping[str, str]
    """Names of its fields whose effect is not known, and digests of their values."""

    def prompt_tokens(self, tokens_per_byte: float) -> int | None:
        """Estimate the tokens of its prompt; None where its prompt is not text alone."""
        if self.prompt_bytes is None:
            return None
        return round(self.prompt_bytes * tokens_per_byte) + TEMPLATE_TOKENS * self.messages


def read_conditions(body: Mapping[str, Any]) -> RequestConditions:
    """Read them; raise ValueError or RecursionError for a value that cannot be compared."""
    messages = messages_of(body)
    other_values = [value for name, value in body.items() if name not in READ_APART]
    return RequestConditions(
        prompt_bytes=_prompt_bytes(prompts_of(body, messages), other_values, messages),
        messages=max(1, len(messages)),
        temperature=_temperature(body),
        unknown=_unknown(body, messages),
    )


def chooses_draft(name: str) -> bool:
    """Return whether a field chooses the draft, in any spelling: it is removed before a server sees it."""
    return name.casefold() in DRAFTING or name.casefold().startswith("speculative")


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that are objects."""
    return [message for message in listed(body.get("messages")) if isinstance(message, dict)]


def prompts_of(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return what a model may read: the contents of messages, and the fields that hold a prompt."""
    return [message.get("content") for message in messages] + [body.get(name) for name in PROMPTS]


def value_digest(value: Any) -> str:
    """Return the digest by which a field's value is compared with a certified one."""
    return digest(json.dumps(value, sort_keys=True))


def _unknown(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the fields whose effect is not known."""
    fields = {name: body[name] for name in sorted(body.keys() - KNOWN) if not chooses_draft(name)}
    options, listed = body.get("options"), body.get("messages")
    if isinstance(options, dict):
        strange = (name for name in options.keys() - KNOWN_OF_OPTIONS if not chooses_draft(name))
        fields |= {f"options.{name}": options[name] for name in strange}
    elif options is not None:
        fields["options"] = options
    if listed is not None and not (isinstance(listed, list) and all(isinstance(message, dict) for message in listed)):
        fields["messages"] = listed
    for message in messages:
        fields |= {f"messages.{name}": message[name] for name in message.keys() - KNOWN_OF_MESSAGES}
        if message.get("role") not in ROLES:
            fields["messages.role"] = message.get("role")
    return {name: value_digest(value) for name, value in fields.items()}


def listed(value: Any) -> Iterable[Any]:
    """Return the items of a list; none of another value."""
    return value if isinstance(value, list) else ()


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = (part.get("text") if isinstance(part, dict) else part for part in listed(content))
    return "".join(text for text in parts if isinstance(text, str))


def _prompt_bytes(
    prompts: Iterable[Any], other_values: Iterable[Any], messages: Iterable[Mapping[str, Any]]
) -> int | None:
    """Return the bytes of all texts that may be in a prompt; None where it has parts that are no text."""
    message_values = [message[name] for message in messages for name in message.keys() - {"role", "content"}]
    size = sum(_size(value) for value in (*other_values, *message_values))
    for content in prompts:
        parts = content if isinstance(content, list) else [] if content is None else [content]
        for part in parts:
            text = part
            if isinstance(part, dict) and part.keys() <= TEXT_PART and part.get("type") in TEXT_TYPES:
                text = part.get("text")
                size += _size(part.get("cache_control"))
            if not isinstance(text, str):
                return None
            size += len(text.encode("utf-8", "surrogatepass"))
    return size


def _size(value: Any) -> int:
    """Return the bytes of a value as JSON, where it may be text in a prompt: a switch or a usual number is none."""
    is_text = isinstance(value, str | list | dict) or (isinstance(value, int) and value.bit_length() > 64)
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) if value and is_text else 0


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


def _temperature(body: Mapping[str, Any]) -> float | None:
    """Return the temperature; None where the request names none, or several, or one that moves."""
    options = body.get("options")
    tables = [table for table in (body, options) if isinstance(table, dict)]
    temperatures = [table["temperature"] for table in tables if table.get("temperature") is not None]
    moves = any(table.get("dynatemp_range") for table in tables)
    agree = len(temperatures) < 2 or temperatures[0] == temperatures[1]
    return highest_of(body, ("temperature",)) if agree and not moves else None
