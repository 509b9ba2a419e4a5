"""A dialect: what has to be known of one family of servers to start it, ask it and understand it.

A new system is one file with one `DIALECT`. Whatever it leaves out is what an OpenAI-compatible server does. Nothing in
a dialect is believed: the freeze asks a server twice and looks at what came back.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gatekeeper.backends.http.chat import ChatResponse, ResolvedRequest, request_fields
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer
from gatekeeper.core.subject import Subject

COMPLETIONS = "/v1/chat/completions"
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
    """What the program prints for --help, asked once; empty where it prints nothing."""
    place: Callable[[str], str]
    """Tells where a model lies that the SLO names, for a server that cannot start without a draft."""

    def knob(self, name: str) -> str | None:
        """Return the value of a knob as a word of a command line, None where it is not turned."""
        value = self.knobs.get(name)
        return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request, and by which names the server knows its models."""

    asked: ResolvedRequest
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
        """Return what came in between; None stays None, and a counter that was reset tells nothing."""

        def less(now: int | None, then: int | None) -> int | None:
            return None if now is None or then is None or now < then else now - then

        was = (*before.accepted_by_position, *(0 for _ in self.accepted_by_position))
        gained = tuple(now - then for now, then in zip(self.accepted_by_position, was, strict=False))
        return Counters(
            less(self.drafted, before.drafted),
            less(self.accepted, before.accepted),
            less(self.rounds, before.rounds),
            () if any(one < 0 for one in gained) else gained,
        )


Get = Callable[[str], str | None]
"""Fetches a path of the server: its text, or None where it gives none."""


def chat_body(wanted: ServerRequest) -> dict[str, Any]:
    """Return the request of a server without fields of its own."""
    return request_fields(wanted.asked, model=wanted.model, chat_template_kwargs=thinking(wanted))


def thinking(wanted: ServerRequest) -> dict[str, bool] | None:
    """Return how most chat templates are told whether to think aloud; None leaves it to the template."""
    return None if wanted.asked.thinking is None else {"enable_thinking": wanted.asked.thinking}


def unchanged(answer: Answer, said: ChatResponse) -> Answer:
    """Return *answer* unchanged: the server says nothing of its drafting."""
    del said
    return answer


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of servers is started, asked and understood."""

    name: str
    install: str
    """How to get the program."""
    silent: str
    """What is usually missing where it decodes plainly although a draft is set."""
    program: tuple[str, ...] = ()
    """What is looked for on PATH."""
    module: str | None = None
    """What is imported from this environment, where the SLO names no program."""
    argv: Callable[[Start], Iterable[str]] | None = None
    """The whole command line; None: it is started by hand, so the SLO names a `url` or a `command`."""
    request: Callable[[ServerRequest], dict[str, Any]] = chat_body
    read: Callable[[Answer, ChatResponse], Answer] = unchanged
    """Adds what the server claims of itself."""
    counters: Callable[[Get], Counters | None] | None = None
    """Reads its cumulative counters; asked before and after an answer, where one is under way at a time."""
    aside: Callable[[Get, ServerRequest, Answer], Answer] | None = None
    """Adds what it says of the answer it gave last, in another place; asked where one is under way at a time."""
    tokens_of: Callable[[Mapping[str, Any]], int | None] | None = None
    """How many tokens the answer has so far, where a chunk tells."""
    sight: Sight = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT
    """A forecast of what answers show; memory and a plain twin depend on how it is reached."""
    knobs: frozenset[str] = frozenset()
    """The knobs of the draft it can turn; `draft` and the conditions go without saying."""
    restart_knobs: tuple[str, ...] = ("draft",)
    switches: bool = False
    """Drafting is switched with each request, at no cost to plain decoding."""
    streams: int = 64
    caches: Literal["start", "request"] | None = None
    """What switches its prompt cache; None: it has none, or nothing switches it."""
    named: Literal["listed", "path"] | None = None
    """Its requests carry the target's name: `served_model_name`, else the only one it lists or the target as written;
    or else where its files lie, which holds for the draft too."""
    by_request: frozenset[str] = frozenset()
    """Knobs that take a restart of the model and go with a request all the same: the server loads anew by itself."""
    headers: Mapping[str, str] = field(default_factory=dict)
    own_drafts: frozenset[str] = frozenset()
    """Drafts it brings along, such as heads inside the target or an n-gram look-up: there is no file to hash."""
    path: str = COMPLETIONS
    health: str = "/health"
    loading: int | None = None
    """The status its health has until the models are loaded; None: it says nothing of that."""
    version: Callable[[Subject], dict[str, str]] | None = None
    """Tells the versions of what we start, where `PROGRAM --version` does not."""
    packages: tuple[str, ...] = ()
    """The Python packages whose versions tell what the program is, looked up in the environment it runs in."""
    version_path: str | None = None
    """Where a running server tells its version."""
    version_key: str | None = None
    """Under which key of a JSON document there; None: the first line is the version."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Words on its command line, or variables with their value as `NAME=value`, that no verdict can be given for."""

    def complaint(self, subject: Subject) -> str | None:
        """Say why this server, started so, can not be certified; None where it can."""
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
