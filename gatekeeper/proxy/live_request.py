"""A request as the proxy sorts it: what its path, headers and body say, never what a prompt says."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from gatekeeper.core.policy import RESPONSE_FORMATS, Proxy, ProxyRule, digest

WORKLOAD_HEADER = "x-gatekeeper-workload"
GENERATING = ("/completions", "/responses", "/messages", "/api/chat", "/api/generate")
"""Ends of the paths whose requests make a model write; any other request is passed through."""
HEADERS = (WORKLOAD_HEADER, "Authorization", "x-api-key")
"""The headers that are read."""


TEMPLATE_TOKENS = 8
"""That a chat template adds to a message, at most."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
"""Fields that limit the tokens of an answer, by server."""


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


def generates(method: str, path: str) -> bool:
    """Return whether a request makes a model write."""
    return method == "POST" and path.rstrip("/").endswith(GENERATING)


def ends_with_done(path: str) -> bool:
    """Return whether a stream of this path has an end of its own, by the OpenAI protocol of completions."""
    return path.rstrip("/").endswith(GENERATING[0])


def read(path: str, headers: Mapping[str, str], content: bytes) -> LiveRequest:
    """Read a generating request; a body that is no JSON object has no properties, and the server will refuse it."""
    named = headers.get(WORKLOAD_HEADER)
    key = headers.get("Authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "")
    hidden = digest(key) if key else ""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return LiveRequest(path, named, api_key_sha256=hidden)
    messages = [one for one in _listed(body.get("messages")) if isinstance(one, dict)]
    system = next((_text(one.get("content")) for one in messages if one.get("role") in {"system", "developer"}), None)
    prompts = [one.get("content") for one in messages] + [body.get(name) for name in ("prompt", "input", "system")]
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return LiveRequest(
        path,
        named,
        model=str(body.get("model") or ""),
        api_key_sha256=hidden,
        tools=bool(body.get("tools")),
        response_format=kind if kind in RESPONSE_FORMATS else "text",
        prompt_chars=sum(len(_text(one)) for one in prompts),
        system_sha256="" if system is None else digest(system),
        prompt_bytes=_prompt_bytes(prompts, [body.get("tools"), *(one.get("tool_calls") for one in messages)]),
        messages=max(1, len(messages)),
        temperature=_highest(body, ("temperature",)),
        max_tokens=_highest(body, LIMITS),
        body=body,
    )


def merged(body: Mapping[str, Any], fields: Mapping[str, Any]) -> bytes:
    """Return a body with further *fields*, which replace its own."""
    return json.dumps(_merged(body, fields)).encode()


def _merged(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(body)
    for name, value in fields.items():
        inner = made.get(name)
        both = isinstance(value, dict) and isinstance(inner, dict)
        made[name] = _merged(inner, value) if both and inner is not None else value
    return made


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = (one.get("text") if isinstance(one, dict) else one for one in _listed(content))
    return "".join(part for part in parts if isinstance(part, str))


def _prompt_bytes(prompts: Iterable[Any], tools: Iterable[Any]) -> int | None:
    """Return the bytes of a prompt's texts, its tools and their calls; None where it has parts that are no text."""
    found = sum(len(json.dumps(one, ensure_ascii=False).encode("utf-8", "surrogatepass")) for one in tools if one)
    for content in prompts:
        parts = content if isinstance(content, list) else [] if content is None else [content]
        for part in parts:
            text = part.get("text") if isinstance(part, dict) else part
            if not isinstance(text, str):
                return None
            found += len(text.encode("utf-8", "surrogatepass"))
    return found


def _highest(body: Mapping[str, Any], names: Sequence[str]) -> float | None:
    """Return the largest of some fields, of the body or of its `options`; None where none is a number."""
    options = body.get("options")
    found = [table.get(name) for table in (body, options) if isinstance(table, dict) for name in names]
    numbers = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool) and one >= 0]
    return float(max(numbers)) if numbers and len(numbers) == len([one for one in found if one is not None]) else None


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
