"""A request as the proxy sorts it: what its path, headers and body say, never what a prompt says."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from gatekeeper.core.canary import OWN_FORMATS, PENALTIES
from gatekeeper.core.policy import RESPONSE_FORMATS, WORKLOAD_HEADER, Proxy, ProxyRule, digest
from gatekeeper.live import request_fields
from gatekeeper.live.live_conversations import CONVERSATION_HEADER, prefix_digests, session_of
from gatekeeper.live.request_fields import (
    PROMPTS,
    RequestConditions,
    highest_of,
    list_items,
    messages_of,
    read_conditions,
    text_of,
)

COMPLETIONS = "/completions"
NOT_GENERATING = re.compile(
    r"(?:/v[0-9]+)?(?:/(?:tokenize|detokenize|apply-template|messages/count_tokens|embeddings?|rerank|reranking)/?"
    r"|/embed|/api/(?:embed|embeddings|show|ps))",
    re.ASCII,
)
"""Paths whose requests make no model write, as plainly spelled as here: they are passed on, any other one is routed."""
READING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods by which no server writes; SGLang takes PUT for POST."""
HEADERS = (WORKLOAD_HEADER, CONVERSATION_HEADER, "Authorization", "x-api-key")
"""The headers that are read."""
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
    thinking: bool | None = None
    """What it says of thinking; None where it says nothing."""
    penalties: bool = False
    """It sets a penalty that changes answers."""
    response_format: str = "text"
    prompt_chars: int = 0
    system_sha256: str = ""
    answers: int = 1
    """That it asks for at once."""
    drafting: Mapping[str, Any] = field(default_factory=dict)
    """Its own fields of drafting, as a merge patch that removes them."""
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    is_long: bool = False
    """Its body is a JSON object that was read in another process and is not here."""
    session: str | None = None
    """The conversation that it names, with the key of its client."""
    prefixes: tuple[bytes, ...] = field(default=(), repr=False)
    """A digest after each message, by which its conversation is recognized."""
    text_tokens: int | None = None
    """Tokens of the texts of its prompt, as the model's tokenizer counts them; None where they were not counted."""
    conditions_of_long: RequestConditions | None = None
    """Where its body is not here."""

    @property
    def is_read(self) -> bool:
        """Return whether its body is a JSON object without ambiguity."""
        return self.is_long or self.body is not None

    def conditions(self) -> RequestConditions | None:
        """Return what is compared with the certificate, where a route speculates; None where it cannot be read."""
        if self.body is None:
            return self.conditions_of_long
        try:
            return read_conditions(self.body)
        except (ValueError, RecursionError):
            return None


@lru_cache(maxsize=64)
def unread(path: str) -> LiveRequest:
    """Return a request of which only its path is known."""
    return LiveRequest(path)


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
    key_digest = digest(key) if key else ""
    session = session_of(headers, key_digest)
    try:
        body = _DECODER.decode(content.decode(json.detect_encoding(content), "surrogatepass"))
        properties = _properties(path, key_digest, body) if isinstance(body, dict) else {}
    except (ValueError, RecursionError):
        properties = {}
    return LiveRequest(path, workload, api_key_sha256=key_digest, session=session, **properties)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise ValueError where a name comes twice: servers differ in which of them they take."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name comes twice")
    return table


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""As json.loads makes for every text anew."""


def _properties(path: str, key_digest: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a request that its body shows."""
    texts = [(str(message.get("role")), text_of(message.get("content"))) for message in messages_of(body)]
    system = next((text for role, text in texts if role in SYSTEM_ROLES), None)
    return {
        "model": str(body.get("model") or ""),
        "tools": bool(body.get("tools")),
        "thinking": _thinking(body),
        "penalties": _is_penalized(body),
        "response_format": _format_type(body),
        "prompt_chars": sum(
            [len(text) for _, text in texts] + [len(text_of(body[key])) for key in PROMPTS if key in body]
        ),
        "system_sha256": "" if system is None else digest(system),
        "answers": _answers(body),
        "drafting": _drafting(body),
        "body": body,
        "prefixes": _prefixes(path, key_digest, body, texts),
    }


def _thinking(body: Mapping[str, Any]) -> bool | None:
    """Return what a request says of thinking, by the fields of the servers: in its template's arguments, or beside."""
    arguments = body.get("chat_template_kwargs")
    values = [arguments.get("enable_thinking")] if isinstance(arguments, dict) else []
    values += [body.get(name) for name in ("enable_thinking", "think")]
    return next((value for value in values if isinstance(value, bool)), None)


def _format_type(body: Mapping[str, Any]) -> str:
    """Return to what form a request binds its answer, by the fields of the servers, as a rule names it."""
    outputs = body.get("structured_outputs")
    by_kind = outputs if isinstance(outputs, dict) else {}
    if by_kind.get("json") or any(body.get(name) for name in ("json_schema", "guided_json")):
        return "json_schema"
    if by_kind or any(body.get(name) for name in OWN_FORMATS):
        return "json_object" if by_kind.get("json_object") else "grammar"
    response_format = body.get("response_format")
    written = response_format.get("type") if isinstance(response_format, dict) else None
    return written if isinstance(written, str) and written in RESPONSE_FORMATS else "text"


def _is_penalized(body: Mapping[str, Any]) -> bool:
    """Return whether a request sets a penalty to another value than the one that changes nothing."""
    options = body.get("options")
    tables = (body, options if isinstance(options, dict) else {})
    written = ((table.get(name), neutral) for table in tables for name, neutral in _PENALTIES.items())
    return any(value is not None and value != neutral for value, neutral in written)


_PENALTIES = PENALTIES | {"repeat_penalty": PENALTIES["repetition_penalty"]}
"""With the name that llama-server and Ollama have for one."""


def _prefixes(
    path: str, key_digest: str, body: Mapping[str, Any], texts: Sequence[tuple[str, str]]
) -> tuple[bytes, ...]:
    """Return a digest after each message, or of a prompt without messages; path, client and model are in each."""
    others = [item for item in list_items(body.get("input")) if isinstance(item, dict)]
    texts = [*texts, *((str(item.get("role")), text_of(item.get("content"))) for item in others)]
    if not texts:
        texts = [("prompt", text) for name in ("prompt", "input") if (text := text_of(body.get(name)))]
    before = (path, key_digest, body.get("model"), body.get("system"), body.get("instructions"))
    return prefix_digests(repr(before), texts) if texts else ()


def merge_patches(body: Mapping[str, Any], *patches: Mapping[str, Any]) -> bytes:
    """Return a body with *patches* (RFC 7396): their fields replace its own, and null removes one.

    Another spelling of a field's name goes, too: Go's servers, such as Ollama, do not tell upper case from lower.
    """
    for patch in patches:
        body = _merge_patch(body, patch)
    return json.dumps(body).encode()


def _merge_patch(body: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    folded = {name.casefold() for name in patch}
    table = {name: value for name, value in body.items() if name in patch or name.casefold() not in folded}
    for name, value in patch.items():
        inner = table.get(name)
        if value is None:
            table.pop(name, None)
        elif isinstance(value, Mapping):
            nested = _merge_patch(inner if isinstance(inner, Mapping) else {}, value)
            if nested or isinstance(inner, Mapping):  # a patch that only removes something adds no empty table
                table[name] = nested
        else:
            table[name] = value
    return table


def _drafting(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch that removes a client's own choice of a draft."""
    options = body.get("options")
    patch: dict[str, Any] = {name: None for name in body if request_fields.chooses_draft(name)}
    inner = options if isinstance(options, dict) else ()
    if drafting := {name: None for name in inner if request_fields.chooses_draft(name)}:
        patch["options"] = drafting
    return patch


def _answers(body: Mapping[str, Any]) -> int:
    """Return how many answers a request asks for at once: so many for each of its prompts."""
    prompts = body.get("prompt")
    count = sum(isinstance(prompt, str | list | dict) for prompt in prompts) if isinstance(prompts, list) else 1
    if numbers := {name: body[name] for name in request_fields.ANSWERS if body.get(name) is not None}:
        highest = highest_of(numbers, request_fields.ANSWERS)
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
        and (rule.thinking is None or rule.thinking == request.thinking)
        and (rule.penalties is None or rule.penalties == request.penalties)
        and (rule.response_format is None or rule.response_format == request.response_format)
        and (rule.prompt_chars_at_least is None or request.prompt_chars >= rule.prompt_chars_at_least)
        and (rule.prompt_chars_at_most is None or request.prompt_chars <= rule.prompt_chars_at_most)
        and _has_prefix(request.system_sha256, rule.system_sha256)
    )


def _has_prefix(sha256: str, prefix: str | None) -> bool:
    return prefix is None or sha256.startswith(prefix)
