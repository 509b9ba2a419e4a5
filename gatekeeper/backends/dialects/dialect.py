"""A dialect: how one family of servers is started, what its requests look like, and what its responses claim.

A new server is one file with one `DIALECT`, and one entry in core/backend_registry.py. Whatever a dialect leaves out is
what an OpenAI-compatible server does. Nothing in it is trusted: before a run, test requests show what the server does.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gatekeeper.backends.http.chat import ChatResponse, ResolvedRequest, request_fields
from gatekeeper.backends.process import HOST
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer
from gatekeeper.core.subject import Subject

COMPLETIONS = "/v1/chat/completions"
STREAMED = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT
"""What every server that streams its answers shows."""
CONDITIONS = frozenset({"temperature", "max_tokens", "concurrency"})
"""Knobs that any server takes with a request, or that need nothing of it."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a server is started for."""

    subject: Subject
    target: str
    """Where the target lies: a folder or a file; its name, where the server keeps its own models."""
    draft: str | None
    """Where the draft lies, or its name where the server brings it along; None: plain decoding."""
    knobs: Mapping[str, Any]
    port: int
    cache: bool
    """Leave its prompt cache on, as deployed."""
    program: tuple[str, ...]
    """The program: the dialect's own, or the one the SLO names."""
    help: Callable[[], str]
    """Returns what the program prints for --help, run once; empty where it prints nothing."""
    place: Callable[[str], str]
    """Returns where a model of the SLO lies, for a server that cannot start without a draft."""

    @property
    def address(self) -> tuple[str, ...]:
        """Return the words with which most servers are given the address they listen on."""
        return ("--host", HOST, "--port", str(self.port))

    def knob(self, name: str) -> str | None:
        """Return the value of a knob as a word of a command line, None where it is not set."""
        value = self.knobs.get(name)
        return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request, with the names by which the server knows its models."""

    resolved: ResolvedRequest
    knobs: Mapping[str, Any]
    model: str | None
    """None: it serves one model, and needs no name."""
    draft: str | None
    """As the server knows it; None: decode plainly."""
    cache: bool


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative counters of a server, so that the difference over one answer is that answer's own."""

    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    accepted_by_position: tuple[int, ...] = ()

    def since(self, before: "Counters") -> "Counters":
        """Return the difference to *before*; None stays None, and a counter that was reset becomes None."""

        def gain(now: int | None, then: int | None) -> int | None:
            return None if now is None or then is None or now < then else now - then

        was = (*before.accepted_by_position, *(0 for _ in self.accepted_by_position))
        gained = tuple(now - then for now, then in zip(self.accepted_by_position, was, strict=False))
        return Counters(
            gain(self.drafted, before.drafted),
            gain(self.accepted, before.accepted),
            gain(self.rounds, before.rounds),
            () if any(one < 0 for one in gained) else gained,
        )


Get = Callable[[str], str | None]
"""Fetches a path of the server: its text, or None where it gives none."""


def chat_body(request: ServerRequest) -> dict[str, Any]:
    """Return the body of a request to a server without fields of its own."""
    return request_fields(request.resolved, model=request.model, chat_template_kwargs=thinking(request))


def thinking(request: ServerRequest) -> dict[str, bool] | None:
    """Return the option by which most chat templates switch thinking; None leaves it to the template."""
    return None if request.resolved.thinking is None else {"enable_thinking": request.resolved.thinking}


def unchanged(answer: Answer, response: ChatResponse) -> Answer:
    """Return *answer* unchanged: the server claims nothing of its drafting."""
    del response
    return answer


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of servers is started and spoken to."""

    name: str
    install: str
    """How to get the program."""
    draft_hint: str
    """What is usually wrong where it decodes plainly although a draft is set."""
    program: tuple[str, ...] = ()
    """What is looked for on PATH."""
    module: str | None = None
    """What is imported from this environment where the SLO names no program."""
    argv: Callable[[Start], Iterable[str]] | None = None
    """The whole command line; None: it is started by hand, so the SLO names a `url` or a `command`."""
    body: Callable[[ServerRequest], dict[str, Any]] = chat_body
    read: Callable[[Answer, ChatResponse], Answer] = unchanged
    """Adds what the server claims of itself."""
    counters: Callable[[Get], Counters | None] | None = None
    """Reads its cumulative counters, before and after an answer, where one is under way at a time."""
    after_answer: Callable[[Get, ServerRequest, Answer], Answer] | None = None
    """Adds what it tells of its last answer in another place, where one is under way at a time."""
    tokens_of: Callable[[Mapping[str, Any]], int | None] | None = None
    """Reads how many tokens the answer has so far, where a chunk tells."""
    sight: Sight = STREAMED
    """A forecast of what answers show; memory and a plain server depend on how it is reached."""
    knobs: frozenset[str] = frozenset()
    """The knobs it takes besides `draft` and the conditions."""
    restart_knobs: tuple[str, ...] = ("draft",)
    switches: bool = False
    """Drafting is switched with each request, at no cost to plain decoding."""
    streams: int = 64
    caches: Literal["start", "request"] | None = None
    """What switches its prompt cache; None: it has none, or it cannot be switched."""
    named: Literal["listed", "path"] | None = None
    """Its requests carry the target's name: `served_model_name`, else (`listed`) the only one it lists or the target as
    written, or (`path`) where the files of target and draft lie."""
    by_request: frozenset[str] = frozenset()
    """Knobs that need the model loaded anew and still go with a request: the server reloads by itself."""
    headers: Mapping[str, str] = field(default_factory=dict)
    own_drafts: frozenset[str] = frozenset()
    """Drafts it brings along, such as heads inside the target or an n-gram look-up: there is no file to hash."""
    path: str = COMPLETIONS
    health: str = "/health"
    loading: int | None = None
    """The HTTP status of its health until the models are loaded; None: it has none for that."""
    version: Callable[[Subject], dict[str, str]] | None = None
    """Returns the versions of what we start, where `PROGRAM --version` does not."""
    packages: tuple[str, ...] = ()
    """Python packages whose versions identify the program, looked up in the environment it runs in."""
    version_path: str | None = None
    """The path under which a running server tells its version."""
    version_key: str | None = None
    """The key of its version in a JSON document there; None: the first line is the version."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Words on its command line, or variables with their value as `NAME=value`, that no verdict can be given for."""

    def complaint(self, subject: Subject) -> str | None:
        """Return why this server cannot be certified when it is started so; None where it can."""
        words = (*subject.args, *(subject.command or ()), *(subject.plain_command or ()))
        for refused, because in self.refused.items():
            name, _, value = refused.partition("=")
            if any(word.split("=")[0] == refused for word in words) or (value and os.environ.get(name) == value):
                return f"{refused}: {because}"
        return None


def option(flag: str, value: object) -> Iterator[str]:
    """Yield *flag* and its value as words, nothing where there is no value."""
    if value is not None:
        yield from (flag, str(value))
