"""For which requests a workload was certified: one that lies outside is decoded plainly."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.backends.dialect import Dialect, ServerRequest
from gatekeeper.backends.http.chat_request import ResolvedRequest
from gatekeeper.core.policy import CertifiedRequest, Conditions, Route
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.request_fields import RequestConditions, comparable_fields

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
"""Names of fields that a record may show; any other text may be a part of a prompt."""
SHOWN_VALUE = re.compile(r"true|false|-?[0-9][0-9.e+-]{0,20}")
"""Values that a record may show: switches and usual numbers; a text may be a part of a prompt."""
MOST_BYTES_A_TOKEN = 16
"""A prompt of more bytes for each token of the longest certified one is not counted: it is longer, or very odd."""
PROMPT = "its prompt"
"""Begins what is said of a prompt that is too long."""
LATEST = ":latest"
"""What Ollama adds to a model's name that has no tag."""


@dataclass(frozen=True, slots=True)
class CertifiedPoint:
    """The streams, models, fields and prompts with which a workload was certified."""

    streams: int
    """Requests in flight up to which it may speculate."""
    models: frozenset[str]
    """Names that a request may give the model."""
    may_be_nameless: bool
    """The certified requests named no model: the server has one."""
    requests: tuple[Mapping[str, str], ...]
    """The fields of each certified request, as requests are compared; empty where the policy names none."""
    added: Mapping[str, Any]
    """Fields of the certified requests that the proxy adds: whether the server's prompt cache is used."""
    longest_prompt: int | None
    """Tokens of the longest prompt; None where they were not counted."""
    longest_format: int
    """Bytes of the longest certified response format."""
    dialect: Dialect

    @classmethod
    def of(cls, route: Route, conditions: Conditions, streams: int, dialect: Dialect) -> "CertifiedPoint":
        """Return the certified point of a route, its requests written as *dialect* sends them."""
        is_cached = conditions.prompt_cache == "on"
        bodies = [_body(dialect, conditions, request, cache=is_cached) for request in route.request]
        added: dict[str, Any] = {}
        for request, body in zip(route.request, bodies, strict=True):
            other_body = _body(dialect, conditions, request, cache=not is_cached)
            added |= {name: value for name, value in body.items() if other_body.get(name) != value}
        added |= conditions.request
        rest = [{name: value for name, value in body.items() if name not in added} for body in bodies]
        return cls(
            streams=streams,
            models=frozenset(name.removesuffix(LATEST) for name in route.models),
            may_be_nameless=dialect.model_name is None,
            requests=tuple(comparable_fields(body) for body in rest),
            added=added,
            longest_prompt=route.longest_prompt,
            longest_format=route.longest_format or 0,
            dialect=dialect,
        )

    def difference(self, request: LiveRequest) -> str | None:
        """Return why the draft is not certified for a request; None where it is.

        What the request does not say counts as different where a certified one said it, and the other way round: the
        server's own defaults are certified only where canaries left them alone.
        """
        if not self.dialect.steers(request.path):
            paths = " or ".join(self.dialect.steered_paths or (self.dialect.path,))
            return f"certified were requests to {paths}"
        if (conditions := request.conditions()) is None:
            return "the request's body cannot be read"
        return (
            self.compare_model(conditions)
            or self._compare_fields(conditions.options)
            or self._compare_prompt(conditions, request.text_tokens)
        )

    def must_be_counted(self, request: LiveRequest) -> bool:
        """Return whether the tokens of a request's prompt decide: its bytes alone do not show that it is short enough.

        Where its body is not in this process, its bytes decide.
        """
        if self.longest_prompt is None or request.body is None or not self.dialect.steers(request.path):
            return False
        conditions = request.conditions()
        if conditions is None or conditions.prompt_bytes is None:
            return False
        is_short = (conditions.most_prompt_tokens(self.longest_format, None) or 0) <= self.longest_prompt
        if is_short or conditions.prompt_bytes > MOST_BYTES_A_TOKEN * self.longest_prompt:
            return False
        return self.compare_model(conditions) is None and self._compare_fields(conditions.options) is None

    def compare_model(self, conditions: RequestConditions) -> str | None:
        """Return how a request's name of the model differs from the certified ones; None where it is one."""
        if conditions.model is None:
            return None if self.may_be_nameless else "the request names no model, as the certified ones did"
        if conditions.model.removesuffix(LATEST) not in self.models:
            return "the request names another model than the certified one"
        return None

    def _compare_fields(self, options: Mapping[str, str]) -> str | None:
        """Return the first difference from the certified request that differs least; None where one is the same."""
        if not self.requests:
            return "the policy does not say what the certified requests asked for"
        added = comparable_fields(self.added)
        asked_for = {name: value for name, value in options.items() if added.get(name) != value}
        nearest = min(self.requests, key=lambda certified: len([*_differing(asked_for, certified)]))
        name = next(_differing(asked_for, nearest), None)
        return None if name is None else self._describe_difference(name, asked_for, nearest, added)

    @staticmethod
    def _describe_difference(
        name: str, asked_for: Mapping[str, str], nearest: Mapping[str, str], added: Mapping[str, str]
    ) -> str:
        """Return how a request differs in one field from the certified one that is nearest to it."""
        shown_name = f"'{name}'" if FIELD_NAME.fullmatch(name) else "a field"
        if name.startswith("messages"):
            return f"{shown_name} of the request is not as canaries have it"
        if name in added:
            return f"{shown_name} of the request is not the certified one, {_show_value(added[name])}"
        if name not in nearest:
            return f"no certified request like it had {shown_name}"
        certified_value = _show_value(nearest[name])
        if name not in asked_for:
            return f"the request has no {shown_name}, certified with {certified_value}"
        return f"{shown_name} of the request is {_show_value(asked_for[name])}, certified with {certified_value}"

    def _compare_prompt(self, conditions: RequestConditions, text_tokens: int | None) -> str | None:
        if self.longest_prompt is None:
            return "the policy does not say how long the certified prompts were"
        tokens = conditions.most_prompt_tokens(self.longest_format, text_tokens)
        if tokens is None:
            return "the length of the request's prompt cannot be bounded"
        if tokens > self.longest_prompt:
            estimate = "may have" if text_tokens is None else "has about"
            return f"{PROMPT} {estimate} {tokens} tokens, certified up to {self.longest_prompt}"
        return None


def _body(dialect: Dialect, conditions: Conditions, request: CertifiedRequest, *, cache: bool) -> dict[str, Any]:
    """Return the body of a certified request, as it was sent without a draft."""
    sampling = conditions.sampling
    resolved = ResolvedRequest(
        draft=None,
        draft_tokens=None,
        max_tokens=conditions.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=None,
        thinking=request.thinking,
        messages=(),
        tools=({},) if request.tools else (),
        options=request.options,
    )
    return dialect.body(ServerRequest(resolved, knobs={}, model=None, draft=None, cache=cache))


def _differing(asked_for: Mapping[str, str], certified: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of the fields in which a request differs from a certified one, by the alphabet."""
    for name in sorted({*asked_for, *certified}):
        if asked_for.get(name) != certified.get(name):
            yield name


def _show_value(value: str) -> str:
    """Return a compared value for people; a text is not shown."""
    return value if SHOWN_VALUE.fullmatch(value) else "another value"
