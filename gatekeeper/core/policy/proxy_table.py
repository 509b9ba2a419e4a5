"""The table `[proxy]` of a policy: how live requests are sorted into workloads."""

import hashlib
import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from gatekeeper.core.toml_file import InputTable, Seconds

_DIGEST = r"^[0-9a-f]{16,64}$"


def _checked_digest(value: object) -> object:
    """Return a digest in lower case; refuse another text without showing it: it may be the key itself."""
    if isinstance(value, str) and re.match(_DIGEST, value.lower()) is None:
        raise ValueError('not 16 to 64 hexadecimal digits of a SHA-256\nprintf %s "$TEXT" | shasum -a 256')
    return value.lower() if isinstance(value, str) else value


Digest = Annotated[str, Field(pattern=_DIGEST), BeforeValidator(_checked_digest)]
"""The first 16 to 64 hexadecimal digits of a SHA-256."""
WORKLOAD_HEADER = "x-gatekeeper-workload"
"""The header of a request that names its workload, which wins over every rule; the proxy's answers carry it, too."""
RESPONSE_FORMATS = ("text", "json_object", "json_schema")


class ProxyRule(InputTable):
    """A request that has every property named here belongs to `workload`; the first rule that fits decides."""

    workload: str = Field(min_length=1)
    path: str | None = Field(default=None, description="path of the request; * and ? are wildcards")
    model: str | None = Field(default=None, description="`model` of the request; * and ? are wildcards")
    api_key_sha256: Digest | None = Field(default=None, description="digest of the key in the Authorization header")
    tools: bool | None = Field(default=None, description="whether the request offers tools")
    response_format: Literal["text", "json_object", "json_schema"] | None = None
    prompt_chars_at_least: int | None = Field(default=None, ge=1, description="characters of all messages")
    prompt_chars_at_most: int | None = Field(default=None, ge=0)
    system_sha256: Digest | None = Field(default=None, description="digest of the first system message's text")

    @model_validator(mode="after")
    def _has_condition(self) -> "ProxyRule":
        if not self.model_fields_set - {"workload"}:
            raise ValueError(
                "a rule without a condition fits every request\nname the workload of all others as `default` of [proxy]"
            )
        return self


class Proxy(InputTable):
    """How `gatekeeper proxy` sorts requests into workloads, and how it proves the benefit on them."""

    default: str | None = Field(
        default=None, description="workload of a request that no rule fits [default: none, plain decoding]"
    )
    holdout: float = Field(
        default=0.02, ge=0.01, le=0.05, description="share of the speculating conversations that is decoded plainly"
    )
    speedup_at_least: float = Field(
        default=1.0,
        gt=0,
        description="a speed over plain decoding's proven lower turns a route down",
    )
    resume_at: float = Field(
        default=0.75, gt=0, lt=1, description="share of max_concurrency at which requests speculate again"
    )
    resume_after: Seconds = Field(default=5.0, ge=0, description="time for which it must have been that low")
    rule: tuple[ProxyRule, ...] = ()


def digest(text: str) -> str:
    """Return the digest that a rule compares with."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
