"""A request as the proxy sorts it: what its path, headers and body say, never what a prompt says."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from gatekeeper.core.policy import RESPONSE_FORMATS, WORKLOAD_HEADER, Proxy, ProxyRule, digest
from gatekeeper.proxy import request_fields
from gatekeeper.proxy.conversations import prefix_digests

COMPLETIONS = "/completions"
NOT_GENERATING = re.compile(
    r"(?:/v[0-9]+)?(?:/(?:tokenize|detokenize|apply-template|messages/count_tokens|embeddings?|rerank|reranking)/?"
    r"|/embed|/api/(?:embed|embeddings|show|ps))",
    re.ASCII,
)
"""Paths whose requests make no model write, as plainly spelled as here: they are passed on, any other one is routed."""
READING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods by which no server writes; SGLang takes PUT for POST."""
CONVERSATION_HEADER = "x-gatekeeper-conversation"
"""The header by which a client may name the conversation of a request."""
HEADERS = (WORKLOAD_HEADER, CONVERSATION_HEADER, "Authorization", "x-api-key")
"""The headers that are read."""
TEMPLATE_TOKENS = 8
"""That a chat template adds to a message, at most."""
SYSTEM_ROLES = ("system", "developer")
MOST_ANSWERS = 1024
"""That one request counts for; so many where their number cannot be read."""


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
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Names of its fields whose effect is not known, and digests of their values."""
    drafting: Mapping[str, Any] = field(default_factory=dict)
    """Its own fields of drafting, as a merge patch that removes them."""
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    is_long: bool = False
    """Its body is a JSON object that was read in another process and is not here."""
    session: str | None = None
    """The conversation that it names, with the key of its client."""
    prefixes: tuple[bytes, ...] = field(default=(), repr=False)
    """A digest after each message, by which its conversation is recognized."""

    @property
    def is_read(self) -> bool:
        """Return whether its body is a JSON object without ambiguity."""
        return self.is_long or self.body is not None

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


def read_request(path: str, headers: Mapping[str, str], content: bytes) -> LiveRequest:
    """Read a generating request; a body that is no JSON object, or is ambiguous, has no properties."""
    workload = headers.get(WORKLOAD_HEADER)
    key = headers.get("Authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "")
    name, key_digest = headers.get(CONVERSATION_HEADER), digest(key) if key else ""
    session = f"{key_digest} {name}" if name else None
    request = LiveRequest(path, workload, api_key_sha256=key_digest, session=session)
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
    messages = [message for message in _listed(body.get("messages")) if isinstance(message, dict)]
    instructions = (_text(message.get("content")) for message in messages if message.get("role") in SYSTEM_ROLES)
    system = next(instructions, None)
    prompts = [message.get("content") for message in messages] + [body.get(name) for name in request_fields.PROMPTS]
    other_values = [value for name, value in body.items() if name not in request_fields.READ_APART]
    response_format = body.get("response_format")
    format_type = response_format.get("type") if isinstance(response_format, dict) else None
    return replace(
        request,
        model=str(body.get("model") or ""),
        tools=bool(body.get("tools")),
        response_format=format_type if format_type in RESPONSE_FORMATS else "text",
        prompt_chars=sum(len(_text(prompt)) for prompt in prompts),
        system_sha256="" if system is None else digest(system),
        prompt_bytes=_prompt_bytes(prompts, other_values, messages),
        messages=max(1, len(messages)),
        temperature=_temperature(body),
        max_tokens=_most_tokens(body),
        answers=_answers(body),
        unknown=_unknown(body, messages),
        drafting=_drafting(body),
        body=body,
        prefixes=_prefixes(request, body, messages),
    )


def _prefixes(
    request: LiveRequest, body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]
) -> tuple[bytes, ...]:
    """Return a digest after each message, or of a prompt without messages; path, client and model are in each."""
    others = [item for item in _listed(body.get("input")) if isinstance(item, dict)]
    texts = [(str(message.get("role")), _text(message.get("content"))) for message in (*messages, *others)]
    if not texts:
        texts = [("prompt", text) for name in ("prompt", "input") if (text := _text(body.get(name)))]
    before = (request.path, request.api_key_sha256, body.get("model"), body.get("system"), body.get("instructions"))
    return prefix_digests(json.dumps(before), texts) if texts else ()


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
    return name in request_fields.DRAFTING or name.startswith("speculative")


def _drafting(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch that removes a client's own choice of a draft."""
    options = body.get("options")
    patch: dict[str, Any] = {name: None for name in body.keys() - request_fields.KNOWN if _is_drafting(name.casefold())}
    inner = options.keys() - request_fields.KNOWN if isinstance(options, dict) else ()
    if drafting := {name: None for name in inner if _is_drafting(name.casefold())}:
        patch["options"] = drafting
    return patch


def value_digest(value: Any) -> str:
    """Return the digest by which a field's value is compared with a certified one."""
    return digest(json.dumps(value, sort_keys=True))


def _unknown(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the fields whose effect is not known."""
    fields = {name: body[name] for name in sorted(body.keys() - request_fields.KNOWN - request_fields.DRAFTING)}
    options, listed = body.get("options"), body.get("messages")
    if isinstance(options, dict):
        fields |= {
            f"options.{name}": options[name]
            for name in options.keys() - request_fields.KNOWN_OF_OPTIONS - request_fields.DRAFTING
        }
    elif options is not None:
        fields["options"] = options
    if listed is not None and not (isinstance(listed, list) and all(isinstance(message, dict) for message in listed)):
        fields["messages"] = listed
    for message in messages:
        fields |= {f"messages.{name}": message[name] for name in message.keys() - request_fields.KNOWN_OF_MESSAGES}
        if message.get("role") not in request_fields.ROLES:
            fields["messages.role"] = message.get("role")
    return {name: value_digest(value) for name, value in fields.items()}


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = (part.get("text") if isinstance(part, dict) else part for part in _listed(content))
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
            if (
                isinstance(part, dict)
                and part.keys() <= request_fields.TEXT_PART
                and part.get("type") in request_fields.TEXT_TYPES
            ):
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


def _most_tokens(body: Mapping[str, Any]) -> float | None:
    """Return the largest limit of tokens; None where none is named, or one of 0, which is no limit for Ollama."""
    tables = [table for table in (body, body.get("options")) if isinstance(table, dict)]
    has_zero = any(table.get(name) == 0 for table in tables for name in request_fields.LIMITS if name != "min_tokens")
    return None if has_zero else _highest(body, request_fields.LIMITS)


def _highest(body: Mapping[str, Any], names: Sequence[str]) -> float | None:
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
    return _highest(body, ("temperature",)) if agree and not moves else None


def _answers(body: Mapping[str, Any]) -> int:
    """Return how many answers a request asks for at once: so many for each of its prompts."""
    prompts = body.get("prompt")
    count = sum(isinstance(prompt, str | list | dict) for prompt in prompts) if isinstance(prompts, list) else 1
    if any(body.get(name) is not None for name in request_fields.ANSWERS):
        highest = _highest({name: body.get(name) for name in request_fields.ANSWERS}, request_fields.ANSWERS)
        count = max(1, count) * math.ceil(min(MOST_ANSWERS, MOST_ANSWERS if highest is None else highest))
    return min(MOST_ANSWERS, max(1, count))


def choose_workload(request: LiveRequest, proxy: Proxy, workloads: Iterable[str]) -> tuple[str, str]:
    """Return the workload of a request and what chose it; an unknown name in the header is a workload without a route.

    The header decides first, then the first rule that fits, then the default.
    """
    if request.workload is not None:
        has_route = request.workload in set(workloads)
        return (request.workload, "header") if has_route else ("unknown", "header")
    for number, rule in enumerate(proxy.rule, start=1):
        if fits(request, rule):
            return rule.workload, f"rule {number}"
    return proxy.default or "default", "default"


def fits(request: LiveRequest, rule: ProxyRule) -> bool:
    """Return whether a request has every property that a rule names."""
    return (
        (rule.path is None or fnmatchcase(request.path, rule.path))
        and (rule.model is None or fnmatchcase(request.model, rule.model))
        and _has_prefix(request.api_key_sha256, rule.api_key_sha256)
        and (rule.tools is None or rule.tools == request.tools)
        and (rule.response_format is None or rule.response_format == request.response_format)
        and (rule.prompt_chars_at_least is None or request.prompt_chars >= rule.prompt_chars_at_least)
        and (rule.prompt_chars_at_most is None or request.prompt_chars <= rule.prompt_chars_at_most)
        and _has_prefix(request.system_sha256, rule.system_sha256)
    )


def _has_prefix(sha256: str, prefix: str | None) -> bool:
    return prefix is None or sha256.startswith(prefix)
