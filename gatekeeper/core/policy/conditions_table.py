"""The tables `[conditions]` and `[[launch]]` of a policy: under what, and by which commands, it was certified."""

from typing import Any, Literal

from pydantic import Field

from gatekeeper.core.subject import Address, InputTable


class CertifiedSampling(InputTable):
    """How the certified answers were sampled; a value that is left out was the server's default."""

    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    thinking: bool | None = None


class Conditions(InputTable):
    """What was true of every certified answer: the certificate holds under these conditions alone."""

    backend: str
    target: str
    prompt_cache: Literal["off", "on", "unknown"]
    concurrency: int = Field(ge=1, description="requests in flight at once, at most")
    longest_prompt: int | None = Field(default=None, ge=1, description="tokens of the longest certified prompt")
    max_tokens: int = Field(ge=1, description="tokens of the longest answer that a request may ask for")
    sampling: CertifiedSampling = CertifiedSampling()
    request: dict[str, Any] = Field(default={}, description="fields that every request must carry")
    url: Address | None = Field(default=None, description="the running server that was certified")


class Launch(InputTable):
    """How one certified server was started: with this command the certificate holds."""

    workloads: tuple[str, ...] = ()
    speculation: bool
    command: tuple[str, ...] = Field(min_length=1, description="models by their names in the SLO, the port as {port}")
    environment: dict[str, str] = Field(default={}, description="variables that change how the server decodes")
