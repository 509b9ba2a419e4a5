"""A line of a canary file: a frozen prompt and what its answer is expected to be; reading a file of them."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from gatekeeper.core.canary.expectation import Expect
from gatekeeper.core.errors import InputError, did_you_mean, nearest_word
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records.answers import EMPTY, Answer
from gatekeeper.core.toml_file import InputTable, reason_of

Tier = Literal["short", "medium", "long"]
SCHEMAS = ("response_format", "json_schema", "structured_outputs", "guided_json")
"""Fields that hold a JSON schema which answers must match, by server: llama-server, vLLM, and vLLM below 0.12."""
OWN_FORMATS = (*SCHEMAS[1:], "grammar", "regex", "ebnf", "guided_regex", "guided_choice", "guided_grammar")
"""Fields that constrain the form of an answer and that only some servers have; `regex` and `ebnf` are SGLang's."""
OPTIONS = (
    "response_format", *OWN_FORMATS, "tool_choice", "stop", "logit_bias", "frequency_penalty", "presence_penalty",
    "repetition_penalty",
)  # fmt: skip
"""Fields of a chat request that a canary may set, and that are sent as it has them."""
PENALTIES = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
"""Those that an SLO may set for all of its canaries, each with the value that changes nothing."""
LIMITS = ("max_completion_tokens", "max_tokens", "max_new_tokens", "n_predict", "num_predict")
"""Fields that limit the tokens of an answer, by server."""
WITHOUT_EFFECT = frozenset({
    *LIMITS,
    "messages",  # compared by length, roles and parts
    "metadata",  # kept for the client: no server's decoding reads it, and a dialect removes what its own would read
    "model",  # compared with the certified names
    "return_spec_tokens_details", "timings_per_token",  # counts beside the answer, which canaries ask for
    "safety_identifier", "user",  # who asks
    "seed",  # which draw is made, not from what
    "service_tier", "store",  # of OpenAI's own service
    "stream", "stream_options",  # how the answer is sent
})  # fmt: skip
"""Fields that change nothing about how a server decodes: a request need not have them as a canary sends them."""


class Canary(InputTable):
    """One line of a canary file; `messages`, `tools` and OPTIONS as in the OpenAI chat API."""

    id: str = Field(min_length=1)
    messages: tuple[dict[str, Any], ...] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    thinking: bool | None = None
    """Reason before the answer; None: as the SLO says."""
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    grammar: str | None = Field(default=None, min_length=1)
    """What the answer must match, in the server's own notation: GBNF of llama-server."""
    json_schema: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    regex: str | None = Field(default=None, min_length=1)
    ebnf: str | None = Field(default=None, min_length=1)
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = Field(default=None, min_length=1)
    guided_choice: tuple[str, ...] | None = None
    guided_grammar: str | None = Field(default=None, min_length=1)
    stop: str | tuple[str, ...] | None = None
    logit_bias: dict[str, float] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    expect: Expect | None = None
    tier: Tier | None = None
    category: str | None = None
    conversation: str | None = Field(default=None, min_length=1)
    """The conversation it is a turn of: a request whose messages begin with all those of the turn before."""
    turn: int | None = Field(default=None, ge=1)
    """Which turn of it, from 1."""

    @model_validator(mode="after")
    def _is_whole_turn(self) -> "Canary":
        if (self.conversation is None) != (self.turn is None):
            raise ValueError("set conversation and turn together: they name one turn of a conversation")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that its request sets."""
        fields = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in fields.items() if value is not None}

    def grade(self, answer: Answer) -> bool | None:
        """Return whether *answer* is what is expected, None where nothing is. A faulty answer is wrong."""
        if self.expect is None or answer.fault is not None:
            return None if self.expect is None else False
        return self.expect.accepts(answer.text, answer.tool_calls)

    def reject_empty(self, answer: Answer) -> Answer:
        """Return *answer*, with a fault where it ended without content and nothing says that it should.

        A server that answers with HTTP 200 and nothing has failed, also where both arms do so: their words are equal.
        """
        has_content = answer.text or answer.reasoning or answer.tool_calls
        if answer.fault is not None or has_content or self.grade(answer):
            return answer
        return replace(answer, fault=f"{EMPTY}: it ended without content")

    @field_validator("messages")
    @classmethod
    def _have_roles(cls, messages: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for message in messages:
            if not isinstance(message.get("role"), str):
                raise ValueError("every message needs a 'role'")
            if message["role"] not in ROLES:
                raise ValueError(f"unknown role '{message['role']}'; {did_you_mean(message['role'], ROLES)}")
            if message["role"] == "user" and isinstance(content := message.get("content"), str) and not content.strip():
                raise ValueError("a user's message has no content")
        return messages


ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
"""A chat template drops a message of a role that it does not know, without a word."""
KEYS = "a canary has id and messages, and optionally "
KEYS += ", ".join(name for name in Canary.model_fields if name not in {"id", "messages"})


def _problem(error: ErrorDetails) -> str:
    """Write one of pydantic's errors for the author of a canary."""
    where = ".".join(str(part) for part in error["loc"]) or "line"
    if error["type"] == "missing":
        return f"{where}: missing"
    if error["type"] == "extra_forbidden":
        near = nearest_word(where, Canary.model_fields)
        return f"{where}: unknown key{f'; did you mean {near!r}?' if near else ''}"
    return f"{where}: {reason_of(error).replace('a table', 'an object in braces')}"


def _find_turn_error(canary: Canary, before: Canary | None, ended: Collection[str]) -> str | None:
    """Return why a turn cannot follow the canary *before* it; None where it can, or is no turn."""
    if canary.conversation is None:
        return None
    if before is None or canary.conversation != before.conversation:
        if canary.conversation in ended:
            return f"conversation '{canary.conversation}' has ended before this line"
        return None if canary.turn == 1 else f"conversation '{canary.conversation}' begins with turn {canary.turn}"
    if canary.turn != (before.turn or 0) + 1:
        return f"turn {canary.turn} of conversation '{canary.conversation}' follows turn {before.turn}"
    grows = len(canary.messages) > len(before.messages)
    continues = canary.messages[: len(before.messages)] == before.messages and canary.tools == before.tools
    if not grows or not continues or canary.options != before.options:
        return f"turn {canary.turn} of conversation '{canary.conversation}' does not begin with turn {before.turn}"
    return None


def parse(text: str, name: str, *, checked: bool = False) -> tuple[Canary, ...]:
    """Read a canary file's *text*; raise InputError with *name*, the line and the problem.

    With *checked* its JSON schemas are known to be ones: to check them takes longer than all the rest.
    """
    return tuple(_lines(text, name, {"checked": checked}))


def _lines(text: str, name: str, context: dict[str, bool]) -> Iterator[Canary]:
    line_by_id: dict[str, int] = {}
    ended, before = set[str](), None
    # Only a line feed ends a line: splitlines() would also split at U+2028, which a JSON string may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}: line {number}"
        try:
            canary = Canary.model_validate(json_value(line), context=context)
        except ParseError as error:
            hint = 'a line is one JSON object: {"id": "a", "messages": [{"role": "user", "content": "…"}]}'
            raise InputError(f"{where}: {error}", hint=hint) from error
        except ValidationError as error:
            raise InputError(f"{where}: {'; '.join(map(_problem, error.errors()[:5]))}", hint=KEYS) from error
        if canary.id in line_by_id:
            hint = "give each canary an id of its own: records name canaries by it"
            raise InputError(f"{where}: id '{canary.id}' is already used in line {line_by_id[canary.id]}", hint=hint)
        if (trouble := _find_turn_error(canary, before, ended)) is not None:
            hint = "the turns of a conversation follow each other, each with the messages of the one before and more"
            raise InputError(f"{where}: {trouble}", hint=hint)
        line_by_id[canary.id] = number
        ended.add(canary.conversation or "")
        before = canary
        yield canary
    if not line_by_id:
        raise InputError(f"{name}: no canaries", hint="write one JSON object per line: id, messages, expect")
