"""The `[subject]` table of an SLO: the system under test and its models."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from gatekeeper.core.backend_registry import ALIASES, READING_OPTIONS, SCRIPTED, SERVERS, backend_names
from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.hidden_keys import EXAMPLE_URL, Address
from gatekeeper.core.toml_file import InputTable, Seconds


class KnobPlace(InputTable):
    """How a generic server takes a knob: as command-line arguments (a restart) or as a request field."""

    argv: tuple[str, ...] | None = None
    field: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "KnobPlace":
        if (self.argv is None) == (self.field is None):
            raise ValueError("set exactly one of: argv, field\nargv for the command line, field for each request")
        return self


class Subject(InputTable):
    """The system under test: a target, its drafts, and the server or library that runs them."""

    backend: str = Field(json_schema_extra=lambda schema: schema.update(enum=[*backend_names()]))
    target: str = Field(min_length=1, description="a hub id in the local cache, or a path relative to this file")
    drafts: tuple[str, ...] = Field(
        default=(), description="heaviest first; later ones are the lighter drafts of the fallback ladder"
    )
    prompt_cache: Literal["off", "as-deployed"] = "off"
    args: tuple[str, ...] = Field(default=(), description="appended to the server's command")
    prefill_chunk: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="tokens of a prompt read at once, in both arms; unset: the system's own number",
    )
    kv_bits: Literal[4, 8] | None = Field(
        default=None, description="bits of a cached key or value of the target; unset: as wide as the model's numbers"
    )
    url: Address | None = Field(default=None, description="address of a running server to attach to")
    plain_url: Address | None = None
    served_model_name: str | None = Field(default=None, description="the target's name in requests")
    program: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="the program to start instead of the one on PATH; gatekeeper adds the flags",
    )
    command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="command that starts a server; may hold {target} {draft} {port} and knobs such as {window}",
    )
    plain_command: tuple[str, ...] | None = Field(default=None, min_length=1)
    draft_method: str | None = Field(
        default=None, description="the server's name for how it drafts: draft-mtp, dflash, ngram, eagle3 ..."
    )
    api_key_env: str | None = Field(default=None, description="name of the environment variable with the key")
    script: str | None = Field(default=None, description="the script of the scripted backend")
    knobs: dict[str, KnobPlace] = Field(default={})
    timeout: Seconds = Field(default=120.0, gt=0, le=86400, description="longest gap inside an answer")
    deadline: Seconds | None = Field(
        default=None,
        gt=0,
        description="longest time of one answer in all; unset: from max_tokens and the slowest answer so far",
    )
    start_timeout: Seconds = Field(default=180.0, gt=0, le=86400, description="longest wait until a server is healthy")

    @field_validator("backend", mode="before")
    @classmethod
    def _check_backend(cls, backend: object) -> object:
        if backend not in backend_names():
            name = str(backend).casefold()
            hint = f"did you mean '{ALIASES[name]}'?" if name in ALIASES else did_you_mean(name, backend_names())
            raise ValueError(f"unknown backend {backend!r}\n{hint}")
        return backend

    @model_validator(mode="after")
    def _consistent(self) -> "Subject":
        if len(set(self.drafts)) != len(self.drafts):
            raise ValueError("a draft is listed twice\nremove one of them")
        if self.backend == SCRIPTED and self.script is None:
            raise ValueError(f'the {SCRIPTED} backend needs a script\nset script = "truth.json"')
        for key in ("prefill_chunk", "kv_bits"):
            able = READING_OPTIONS if self.url is None and self.command is None else ()
            if getattr(self, key) is not None and self.backend not in able:
                hint = f"remove it; it is set where gatekeeper starts {', '.join(READING_OPTIONS)}"
                raise ValueError(f"{key} cannot be set for this backend '{self.backend}'\n{hint}")
        if self.program is not None and self.command is not None:
            raise ValueError(
                "program replaces the first word of the start command, command all of it\nremove one of the two"
            )
        return self

    @model_validator(mode="after")
    def _check_addresses(self) -> "Subject":
        for key, address in (("url", self.url), ("plain_url", self.plain_url)):
            if address is not None and not address.is_http:
                raise ValueError(f'{key} is not an http address\nfor example {key} = "{EXAMPLE_URL}"')
        if self.url is not None and self.backend not in SERVERS:
            hint = "remove url, or name the backend of the server that answers there"
            raise ValueError(f"url is for a running server, and the backend '{self.backend}' is none\n{hint}")
        started = [name for name in ("command", "plain_command", "program") if getattr(self, name) is not None]
        if self.url is not None and started:
            raise ValueError(f"url attaches to a running server, {started[0]} starts one\nremove one of the two")
        if self.plain_url is not None and self.url is None:
            raise ValueError("plain_url is the plain counterpart of url, which is missing\nset url")
        return self
