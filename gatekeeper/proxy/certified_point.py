"""Under what the requests of a workload were certified: one that lies outside is decoded plainly."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.policy import Policy
from gatekeeper.core.text import condition_value
from gatekeeper.proxy.live_request import LiveRequest
from gatekeeper.proxy.request_fields import RequestConditions, value_digest

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
"""Names of fields that a record may show; any other text may be a part of a prompt."""
MOST_TOKENS_PER_BYTE = 1.0
"""A token has a byte or more, so this estimates too many tokens, where the policy says nothing of its prompts."""


@dataclass(frozen=True, slots=True)
class CertifiedPoint:
    """The temperature, the longest prompt and the streams at which a workload was certified."""

    streams: int
    """Requests in flight up to which it may speculate."""
    temperature: float
    longest_prompt: int | None
    """In tokens; None where they were not counted."""
    tokens_per_byte: float
    fields: Mapping[str, Any]
    """Of the requests that were certified: they may come again with the same values."""

    @classmethod
    def of(cls, policy: Policy, workload: str) -> "CertifiedPoint":
        """Return the certified point of a workload."""
        route, conditions = policy.route_of(workload), policy.conditions
        return cls(
            streams=policy.max_concurrency(workload),
            temperature=conditions.sampling.temperature,
            longest_prompt=route.longest_prompt,
            tokens_per_byte=route.tokens_per_byte or MOST_TOKENS_PER_BYTE,
            fields=conditions.request,
        )

    def difference(self, request: LiveRequest) -> str | None:
        """Return why the draft is not certified for a request; None where it is.

        What the request does not say counts as different: the server's own defaults were not certified.
        """
        if (conditions := request.conditions()) is None:
            return "the request's body cannot be read"
        return (
            self._name_unknown_field(conditions)
            or self._compare_temperature(conditions)
            or self._compare_prompt(conditions)
        )

    def _name_unknown_field(self, conditions: RequestConditions) -> str | None:
        for name, value in conditions.unknown.items():
            if name in self.fields and value_digest(self.fields[name]) == value:
                continue
            shown_name = f"the request's field '{name}'" if FIELD_NAME.fullmatch(name) else "a field of the request"
            return f"the effect of {shown_name} is not known"
        return None

    def _compare_temperature(self, conditions: RequestConditions) -> str | None:
        if conditions.temperature is None:
            return "the request does not say its temperature"
        if conditions.temperature != self.temperature:
            temperature = condition_value(conditions.temperature)
            return f"temperature {temperature} is not the certified one, {condition_value(self.temperature)}"
        return None

    def _compare_prompt(self, conditions: RequestConditions) -> str | None:
        if self.longest_prompt is None:
            return "the policy does not say how long the certified prompts were"
        tokens = conditions.prompt_tokens(self.tokens_per_byte)
        if tokens is None:
            return "the length of the request's prompt cannot be estimated"
        if tokens > self.longest_prompt:
            return f"its prompt has about {tokens} tokens, certified up to {self.longest_prompt}"
        return None
