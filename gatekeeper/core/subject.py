"""The `[subject]` table of an SLO: the system under test and its models; addresses of servers, their keys hidden."""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from gatekeeper.core.backend_registry import ALIASES, READING_OPTIONS, SCRIPTED, SERVERS, backend_names
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.quantities import Seconds

EXAMPLE_URL = "http://127.0.0.1:8080"
_ROUNDS = 200_000
"""Of the digest of a key: a short key cannot be found by trying all of them."""
_HIDDEN = re.compile(r"hidden-[0-9a-f]{8}")
_WRITTEN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`\\]+")
_PARTS = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]*://|)(.*)")
_SECRET_PART = re.compile(
    r"(?i)(api)?keys?|auth(orization)?|bearer|cookie|cred(ential)?s?|pass(phrase|w(or)?d)|pwd|secrets?|signature|token"
)
"""Parts of the names of options and variables that hold a key. Not `tokens`, which is a number of them."""
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_GIVEN = re.compile(
    r"""((?P<name>[\w-]+)["']?\s*[:=]\s*["']?((Bearer|Basic)\s+)?|(?P<option>--?[\w-]+)\s+["']?)(?P<value>[^\s,;&}"']+)"""
)
_NO_KEY = re.compile(r"[${<].*|--.*|[\d.]+|(bool|float|int|str):.*|.{0,5}")
"""Values that are no key: variables, placeholders, special tokens, options, numbers, typed values, short words."""
SECRET_NAME = re.compile(r"(?i).*(?:key|token|secret|passw|pwd|auth|sig|cred)")
"""Names of values in a query that hold a key."""


class Address(str):
    """An address as it is shown, stored and compared: user, query and fragment are hidden behind a digest of them.

    The digest tells two keys apart. Only `at` returns the address to request.
    """

    __slots__ = ("_given",)
    _given: str

    def __new__(cls, text: str) -> Self:
        """Hide what may be a key in *text*; an address that is hidden already stays what it is."""
        if isinstance(text, cls):
            return text
        address = super().__new__(cls, _shown(text))
        address._given = text
        return address

    @property
    def is_incomplete(self) -> bool:
        """Whether the key is missing: this was read from a file that gatekeeper wrote."""
        return _HIDDEN.search(self._given) is not None

    @property
    def is_http(self) -> bool:
        """Whether its scheme is that of HTTP."""
        return self.lower().startswith(("http://", "https://"))

    @property
    def given(self) -> str:
        """Return the address with its key, for a request or another program's environment alone."""
        return self._given

    def at(self, path: str) -> str:
        """Return the address of *path* on this server, with its key, for a request. It may be given with /v1."""
        start, mark, query = self._given.partition("#")[0].partition("?")
        return start.rstrip("/").removesuffix("/v1") + path + mark + query

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read it from a file as text; an address stays the one it is."""
        return core_schema.no_info_wrap_validator_function(
            lambda value, read: value if isinstance(value, cls) else cls(read(value)), core_schema.str_schema()
        )


def address_of(option: str, text: str) -> Address:
    """Return the address of a server that the command line names; raise InputError for another kind of address."""
    address = Address(text)
    if not address.is_http:
        raise InputError(f"{option} {address} is not an http address", hint=f"for example {option} {EXAMPLE_URL}")
    return address


def _shown(text: str) -> str:
    scheme, rest = _PARTS.findall(text)[0]
    try:
        parts = urlsplit(f"//{rest}")
        usable = parts.port is None or parts.port >= 0
    except ValueError:
        usable = False
    if not usable:  # where its password ends cannot be told
        return text if _HIDDEN.fullmatch(rest) else f"{scheme}hidden-{_digest(rest, scheme)}"
    user, at, host = parts.netloc.rpartition("@")
    query = [part.partition("=") if "=" in part else ("", "", part) for part in parts.query.split("&")]
    keys = filter(None, (user, *(value for _, _, value in query), parts.fragment))
    if all(_HIDDEN.fullmatch(key) for key in keys):
        return text
    hidden = f"hidden-{_digest(f'{user} {parts.query} {parts.fragment}', f'{scheme}{host}{parts.path}')}"
    address = f"{scheme}{hidden if at else ''}{at}{host}{parts.path}"
    address += "?" + "&".join(f"{name}{equals}{hidden}" for name, equals, _ in query) if parts.query else ""
    return address + (f"#{hidden}" if parts.fragment else "")


@lru_cache(maxsize=64)
def _digest(secret: str, salt: str) -> str:
    key, bare = (text.encode(errors="surrogatepass") for text in (secret, salt))  # half characters from a command line
    return hashlib.pbkdf2_hmac("sha256", key, bare, _ROUNDS, 4).hex()


def hide_keys(text: str, addresses: Iterable[Address]) -> str:
    """Return *text* with these *addresses* as they are shown, and so any other address in it that holds a key."""
    for address in sorted(addresses, key=lambda address: len(address.given), reverse=True):
        text = text.replace(address.given, address) if address.given != address else text
    return _WRITTEN.sub(lambda match: Address(match[0]) if _holds_key(match[0]) else match[0], text)


def secret_parts(name: str) -> list[bool]:
    """Return, for each part of the *name* of an option, a variable or a header, whether it names a key."""
    return [_SECRET_PART.fullmatch(part) is not None for part in _NAME_PARTS.findall(name)]


def key_in(words: Iterable[str]) -> str | None:
    """Return the option, variable or header in a command that is given a key; None without one.

    Its name ends in that of a key: `--api-key-file` is given a path.
    """
    option = ""
    for word in words:
        pairs = [(match["name"] or match["option"], match["value"]) for match in _GIVEN.finditer(word)]
        for name, value in [(option, word), *pairs]:
            if secret_parts(name)[-1:] == [True] and not _NO_KEY.fullmatch(value):
                return name
        option = word if word.startswith("-") and "=" not in word else ""
    return None


def _holds_key(address: str) -> bool:
    try:
        parts = urlsplit(address)
        parameters = parse_qsl(parts.query)
    except ValueError:
        return "@" in address
    return bool(parts.password) or any(SECRET_NAME.match(name) for name, _ in parameters)


class InputTable(BaseModel):
    """A table that people write: unknown keys and infinite values are errors, and it is frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


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
    other_model: str | None = Field(
        default=None,
        min_length=1,
        description="another model that the server loads when a request names it, for model_switch_agreement: a folder "
        "relative to this file, or the server's name for it",
    )
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
    draft_schedule: tuple[tuple[int, int, int], ...] = Field(
        default=(),
        max_length=100,
        description="of vllm with an adaptive draft length: [from, to, draft tokens] by requests in flight",
    )
    api_key_env: str | None = Field(default=None, description="name of the environment variable with the key")
    script: str | None = Field(default=None, description="the script of the scripted backend")
    knobs: dict[str, KnobPlace] = {}
    timeout: Seconds = Field(default=120.0, gt=0, le=86400, description="longest gap inside an answer")
    deadline: Seconds | None = Field(
        default=None,
        gt=0,
        description="longest time of one answer in all; unset: from max_tokens and the slowest answer so far",
    )
    start_timeout: Seconds = Field(default=180.0, gt=0, le=86400, description="longest wait until a server is healthy")

    @field_validator("backend", mode="before")
    @classmethod
    def _known(cls, backend: object) -> object:
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
    def _attached(self) -> "Subject":
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
