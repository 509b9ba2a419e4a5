"""The context window that a running server states, against the longest prompt and answer of a policy.

A window that is too short is a difference, not a warning: beyond it a server refuses the request or cuts the prompt
without a word, and neither was certified. A server that states no window is not checked.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.policy import Conditions, Policy, RouteRegion

Fetch = Callable[[str], str | None]
"""Fetches a path of the server: its text, or None where there is none."""


Outcome = Literal["as certified", "differs", "not checked"]
"""Of one part of the conditions, compared with the running server."""


@dataclass(frozen=True, slots=True)
class WindowSource:
    """Where a server states how many tokens one request may have, and how that is raised."""

    path: str
    key: str
    """Of the list of models; empty: the document is about the one model that is served."""
    field: tuple[str, ...]
    option: str = ""


_SOURCES = {
    "llama-server": WindowSource(
        "/props", "", ("default_generation_settings", "n_ctx"), "--ctx-size, which its slots share"
    ),
    "vllm": WindowSource("/v1/models", "data", ("max_model_len",), "--max-model-len"),
    "sglang": WindowSource("/v1/models", "data", ("max_model_len",), "--context-length"),
    "ollama": WindowSource("/api/ps", "models", ("context_length",), "OLLAMA_CONTEXT_LENGTH"),
    "lmstudio": WindowSource("/api/v0/models", "data", ("loaded_context_length",), "the model's context length"),
}
_OTHER = WindowSource("/v1/models", "data", ("max_model_len",))
"""Servers of the OpenAI protocol state it there, if at all; mlx_lm.server does not."""
_NAMES = ("id", "name", "model")


def compare_window(policy: Policy, known: Conditions, fetch: Fetch) -> tuple[Outcome, str]:
    """Return the outcome and the detail of the part `context`."""
    source = _SOURCES.get(known.backend, _OTHER)
    window = _stated(source, known.target, fetch(source.path))
    needed, where = needed_window(policy, known)
    if window is None:
        return "not checked", f"not stated: {source.path} names no context window; {needed} tokens are needed{where}"
    if window >= needed:
        return "as certified", f"{window} tokens, {needed} are needed{where}"
    advice = f"; raise {source.option}" if source.option else ""
    return "differs", f"{window} tokens, certified with prompts and answers of {needed}{where}{advice}"


def needed_window(policy: Policy, known: Conditions) -> tuple[int, str]:
    """Return the most tokens of a prompt and its answer that may speculate, and whose region reaches that far."""
    needed, where = (known.longest_prompt or 0) + known.max_tokens, ""
    for route in policy.route:
        if not route.speculation or route.region is None:
            continue
        most = int(max(prompt + answer for prompt, answer in _ends(route.region, known)))
        if most > needed:
            needed, where = most, f" (the region of {route.workload})"
    return needed, where


def _ends(region: RouteRegion, known: Conditions) -> Iterator[tuple[float, float]]:
    """Yield the longest prompts with the longest answers that a region allows: each axis alone, and both together."""
    context, limit = region.context, region.max_tokens
    prompt = context.certified if context is not None else known.longest_prompt or 0
    answer = limit.certified if limit is not None else known.max_tokens
    yield context.at_most if context is not None else prompt, answer
    yield prompt, limit.at_most if limit is not None else answer
    if context is not None and limit is not None:
        yield context.together_at_most or prompt, limit.together_at_most or answer


def _stated(source: WindowSource, target: str, text: str | None) -> int | None:
    """Return the window that a document states for *target*; None where it is unclear whose it is."""
    try:
        document = json_value(text or "{}", from_server=True)
    except ParseError:
        return None
    if source.key:
        listed = document.get(source.key) if isinstance(document, dict) else None
        models = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        named = [one for one in models if any(_is(one.get(key), target) for key in _NAMES)]
        document = next(iter(named or models), None) if len(named or models) == 1 else None
    return _number(document, source.field)


def _is(name: object, target: str) -> bool:
    return isinstance(name, str) and target in {name, name.removesuffix(":latest")}


def _number(document: Any, field: tuple[str, ...]) -> int | None:
    for key in field:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, int) and not isinstance(document, bool) and document > 0 else None
