"""A request as the proxy sorts it: what its path, headers and body say, never what a prompt says."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from gatekeeper.core.policy import RESPONSE_FORMATS, Proxy, ProxyRule, digest

WORKLOAD_HEADER = "x-gatekeeper-workload"
COMPLETIONS = "/completions"
NOT_GENERATING = re.compile(
    r"(?:/[\w-][\w.-]*)*"
    r"(?:/(?:tokenize|detokenize|apply-template|count_tokens|embeddings?|embed|rerank|reranking)|/api/(?:show|ps))/?",
    re.ASCII,
)
"""Paths whose requests make no model write, as plainly spelled as here: they are passed on, any other one is routed."""
READING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods by which no server writes; SGLang takes PUT for POST."""
HEADERS = (WORKLOAD_HEADER, "Authorization", "x-api-key")
"""The headers that are read."""


TEMPLATE_TOKENS = 8
"""That a chat template adds to a message, at most."""
LIMITS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_length",
    "num_predict",
    "n_predict",
    "min_tokens",
)
"""Fields that limit the tokens of an answer, or demand some, by server: the largest counts."""
ANSWERS = ("n", "best_of", "n_cmpl", "num_return_sequences")
"""Fields that ask for several answers at once, by server."""
MOST_ANSWERS = 1024
"""That one request counts for; so many where their number cannot be read."""
PROMPTS = ("prompt", "input", "system")
NOT_PROMPT = frozenset(
    {
        "logit_bias",
        "metadata",
        "model",
        "options",
        "prompt_cache_key",
        "reasoning_effort",
        "request_id",
        "safety_identifier",
        "service_tier",
        "session_id",
        "stop",
        "stop_sequences",
        "stop_token_ids",
        "stream_options",
        "tool_choice",
        "user",
    }
)
"""Fields that no model reads as a part of its prompt; the text of any other field counts as one."""
READ_APART = NOT_PROMPT | {"messages", *PROMPTS}
KNOWN = (
    NOT_PROMPT
    | {"messages", *PROMPTS, *LIMITS, *ANSWERS, "temperature", "dynatemp_range"}
    | {  # read as parts of the prompt
        "chat_template_kwargs",
        "documents",
        "format",
        "function_call",
        "functions",
        "grammar",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "input_extra",
        "input_prefix",
        "input_suffix",
        "instructions",
        "json_schema",
        "response_format",
        "suffix",
        "tools",
    }
    | {  # how a token is drawn or reported, and not how many there are
        "add_generation_prompt",
        "cache_prompt",
        "dynatemp_exponent",
        "enable_thinking",
        "frequency_penalty",
        "ignore_eos",
        "include_reasoning",
        "include_stop_str_in_output",
        "keep_alive",
        "logprobs",
        "min_p",
        "parallel_tool_calls",
        "presence_penalty",
        "repeat_last_n",
        "repeat_penalty",
        "repetition_context_size",
        "repetition_penalty",
        "return_progress",
        "return_spec_tokens_details",
        "return_tokens",
        "seed",
        "separate_reasoning",
        "skip_special_tokens",
        "store",
        "stream",
        "stream_reasoning",
        "think",
        "timings_per_token",
        "top_k",
        "top_logprobs",
        "top_p",
        "typical_p",
    }
)
"""Fields whose effect on the axes of a region is known: a request with another one is outside of every region."""
KNOWN_OF_MESSAGES = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "tool_name", "function_call", "refusal"}
    | {"reasoning_content", "reasoning", "thinking"}
)
TEXT_PART = frozenset({"type", "text", "cache_control"})
"""Fields of a part of a message that is text alone."""
DRAFTING = frozenset(
    {
        "depth",
        "draft_model",
        "draft_num_predict",
        "generation_mode",
        "num_draft_tokens",
        "tree_budget",
    }
)
"""Fields that choose the draft, by server, and all that begin with `speculative`: the proxy chooses, not a client."""


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """The properties by which a request is sorted, and its body where it is a JSON object."""

    path: str
    workload: str | None = None
    """Named by the header."""
    model: str = ""
    api_key_sha256: str = ""
    tools: bool = False
    response_format: str = "text"
    prompt_chars: int = 0
    system_sha256: str = ""
    prompt_bytes: int | None = None
    """Of all texts and tools; None where something else is in it, such as an image."""
    messages: int = 0
    temperature: float | None = None
    max_tokens: float | None = None
    answers: int = 1
    """That it asks for at once."""
    unknown: tuple[str, ...] = ()
    """Names of its fields whose effect is not known."""
    drafting: Mapping[str, Any] = field(default_factory=dict)
    """Its own fields of drafting, as a merge patch that removes them."""
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    is_long: bool = False
    """Its body is a JSON object that was read in another process and is not here."""

    def on_axes(self, in_flight: int, tokens_per_byte: float) -> dict[str, float | None]:
        """Return where the request lies on each axis of a region; None where it does not say so.

        The tokens of its prompt are estimated, rather too many than too few.
        """
        size, per_message = self.prompt_bytes, TEMPLATE_TOKENS * self.messages
        context = None if size is None else math.ceil(size * tokens_per_byte) + per_message
        return {
            "temperature": self.temperature,
            "context": context,
            "concurrency": in_flight,
            "max_tokens": self.max_tokens,
        }


def generates(method: str, target: str) -> bool:
    """Return whether a request may make a model write, by its method and its target as it was sent."""
    return method not in READING and not NOT_GENERATING.fullmatch(target.partition("?")[0])


def ends_with_done(path: str) -> bool:
    """Return whether a stream of this path has an end of its own, by the OpenAI protocol of completions."""
    return path.rstrip("/").endswith(COMPLETIONS)


def read(path: str, headers: Mapping[str, str], content: bytes) -> LiveRequest:
    """Read a generating request; a body that is no JSON object, or is ambiguous, has no properties."""
    named = headers.get(WORKLOAD_HEADER)
    key = headers.get("Authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "")
    request = LiveRequest(path, named, api_key_sha256=digest(key) if key else "")
    try:
        body = json.loads(content, object_pairs_hook=_unique)
        return _with_properties(request, body) if isinstance(body, dict) else request
    except (ValueError, RecursionError):
        return request


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise ValueError where a name comes twice: servers differ in which of them they take."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name comes twice")
    return table


def _with_properties(request: LiveRequest, body: Mapping[str, Any]) -> LiveRequest:
    messages = [one for one in _listed(body.get("messages")) if isinstance(one, dict)]
    system = next((_text(one.get("content")) for one in messages if one.get("role") in ("system", "developer")), None)
    prompts = [one.get("content") for one in messages] + [body.get(name) for name in PROMPTS]
    others = [value for name, value in body.items() if name not in READ_APART]
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return replace(
        request,
        model=str(body.get("model") or ""),
        tools=bool(body.get("tools")),
        response_format=kind if kind in RESPONSE_FORMATS else "text",
        prompt_chars=sum(len(_text(one)) for one in prompts),
        system_sha256="" if system is None else digest(system),
        prompt_bytes=_prompt_bytes(prompts, others, messages),
        messages=max(1, len(messages)),
        temperature=_temperature(body),
        max_tokens=_highest(body, LIMITS),
        answers=_answers(body),
        unknown=_unknown(body, messages),
        drafting=_drafting(body),
        body=body,
    )


def merged(body: Mapping[str, Any], *patches: Mapping[str, Any]) -> bytes:
    """Return a body with *patches* (RFC 7396): their fields replace its own, and null removes one.

    Another spelling of a field's name goes, too: Go's servers, such as Ollama, do not tell upper case from lower.
    """
    for patch in patches:
        body = _merged(body, patch)
    return json.dumps(body).encode()


def _merged(body: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    folded = {name.casefold() for name in patch}
    table = {name: value for name, value in body.items() if name in patch or name.casefold() not in folded}
    for name, value in patch.items():
        inner = table.get(name)
        if value is None:
            table.pop(name, None)
        elif isinstance(value, Mapping):
            table[name] = _merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            table[name] = value
    return table


def _is_drafting(name: str) -> bool:
    return name in DRAFTING or name.startswith("speculative")


def _drafting(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch that removes a client's own choice of a draft."""
    options = body.get("options")
    patch: dict[str, Any] = {name: None for name in body.keys() - KNOWN if _is_drafting(name.casefold())}
    inner = options.keys() - KNOWN if isinstance(options, dict) else ()
    if drafting := {name: None for name in inner if _is_drafting(name.casefold())}:
        patch["options"] = drafting
    return patch


def _unknown(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of fields whose effect is not known."""
    options = body.get("options")
    names = sorted(body.keys() - KNOWN - DRAFTING)
    if isinstance(options, dict):
        names += [f"options.{name}" for name in options.keys() - KNOWN - DRAFTING]
    elif options is not None:
        names.append("options")
    strange = (message.keys() - KNOWN_OF_MESSAGES for message in messages if not message.keys() <= KNOWN_OF_MESSAGES)
    return (*names, *(f"messages.{name}" for extra in strange for name in extra))


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = (one.get("text") if isinstance(one, dict) else one for one in _listed(content))
    return "".join(part for part in parts if isinstance(part, str))


def _prompt_bytes(prompts: Iterable[Any], others: Iterable[Any], messages: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the bytes of all texts that may be in a prompt; None where it has parts that are no text."""
    beside = [message[name] for message in messages for name in message.keys() - {"role", "content"}]
    written = (value for value in (*others, *beside) if value and isinstance(value, str | list | dict))
    size = sum(len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) for value in written)
    for content in prompts:
        parts = content if isinstance(content, list) else [] if content is None else [content]
        for part in parts:
            text = part.get("text") if isinstance(part, dict) and part.keys() <= TEXT_PART else part
            if not isinstance(text, str):
                return None
            size += len(text.encode("utf-8", "surrogatepass"))
    return size


def _highest(body: Mapping[str, Any], names: Sequence[str]) -> float | None:
    """Return the largest of some fields, of the body or of its `options`; None where none is a number."""
    options = body.get("options")
    found = [table.get(name) for table in (body, options) if isinstance(table, dict) for name in names]
    numbers = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool) and one >= 0]
    if not numbers or len(numbers) != len([one for one in found if one is not None]):
        return None
    try:
        return float(max(numbers))
    except OverflowError:
        return math.inf


def _temperature(body: Mapping[str, Any]) -> float | None:
    """Return the temperature; None where the request names none, or several, or one that moves."""
    options = body.get("options")
    tables = [table for table in (body, options) if isinstance(table, dict)]
    names = [table["temperature"] for table in tables if table.get("temperature") is not None]
    moves = any(table.get("dynatemp_range") for table in tables)
    same = len(names) < 2 or names[0] == names[1]
    return _highest(body, ("temperature",)) if same and not moves else None


def _answers(body: Mapping[str, Any]) -> int:
    """Return how many answers a request asks for at once: so many for each of its prompts."""
    prompts = body.get("prompt")
    count = sum(isinstance(one, str | list) for one in prompts) if isinstance(prompts, list) else 1
    if any(body.get(name) is not None for name in ANSWERS):
        highest = _highest({name: body.get(name) for name in ANSWERS}, ANSWERS)
        count = max(1, count) * math.ceil(min(MOST_ANSWERS, MOST_ANSWERS if highest is None else highest))
    return min(MOST_ANSWERS, max(1, count))


def sort(request: LiveRequest, proxy: Proxy, workloads: Iterable[str]) -> tuple[str, str]:
    """Return the workload of a request and what chose it; an unknown name in the header is a workload without a route.

    The header decides first, then the first rule that fits, then the default.
    """
    if request.workload is not None:
        known = request.workload in set(workloads)
        return (request.workload, "header") if known else ("unknown", "header")
    for number, rule in enumerate(proxy.rule, start=1):
        if fits(request, rule):
            return rule.workload, f"rule {number}"
    return proxy.default or "default", "default"


def fits(request: LiveRequest, rule: ProxyRule) -> bool:
    """Return whether a request has every property that a rule names."""
    return (
        (rule.path is None or fnmatchcase(request.path, rule.path))
        and (rule.model is None or fnmatchcase(request.model, rule.model))
        and _begins(request.api_key_sha256, rule.api_key_sha256)
        and (rule.tools is None or rule.tools == request.tools)
        and (rule.response_format is None or rule.response_format == request.response_format)
        and (rule.prompt_chars_at_least is None or request.prompt_chars >= rule.prompt_chars_at_least)
        and (rule.prompt_chars_at_most is None or request.prompt_chars <= rule.prompt_chars_at_most)
        and _begins(request.system_sha256, rule.system_sha256)
    )


def _begins(digest_of: str, wanted: str | None) -> bool:
    return wanted is None or digest_of.startswith(wanted)
