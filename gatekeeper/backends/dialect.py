"""A dialect: how one family of servers is started, what its requests look like, and what its responses claim.

A new server is one file with one `DIALECT`, and one entry in core/backend_registry.py. Whatever a dialect leaves out is
what an OpenAI-compatible server does. It is a forecast: before a run, test requests show what the server really does.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.backends.http.chat_request import ResolvedRequest, request_fields
from gatekeeper.backends.http.scores import Ask, Beginning, scored_from, with_scores
from gatekeeper.backends.listening_process import HOST
from gatekeeper.backends.lossy_options import Lossy, LossyOption, Written, find_lossy, in_command, in_variables
from gatekeeper.core.canary import OPTIONS, OWN_FORMATS
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import Answer, Scored
from gatekeeper.core.slo.subject_table import Subject

COMPLETIONS = "/v1/chat/completions"
STREAMED = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT
"""What every server that streams its answers shows."""
COMMON_OPTIONS = frozenset(OPTIONS) - frozenset(OWN_FORMATS)
"""The options of a canary's request that the OpenAI protocol has a field for, or most servers."""
CONDITIONS = frozenset({"temperature", "max_tokens", "concurrency"})
"""Knobs that every server takes with a request, or that do not concern it."""
HARMLESS = (
    *("--host", "--port", "-p", "--alias", "-a", "--served-model-name", "--path"),
    *("--api-*", "--ssl*", "--cors*", "--allowed-*", "--allow-*", "--log*", "--verbos*", "--metrics*"),
)
"""Options that change where or how most servers talk, and nothing about how they decode."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a server is started with."""

    subject: Subject
    target: str
    """The target's folder or file; its name, where the server keeps its own models."""
    draft: str | None
    """The draft's folder or file, or its name where it is part of the server; None: plain decoding."""
    knobs: Mapping[str, Any]
    port: int | str
    """The placeholder of a launch line, where nothing is started."""
    cache: bool
    """Leave its prompt cache on, as deployed."""
    program: tuple[str, ...]
    """The program: the dialect's own, or the one the SLO names."""
    help: Callable[[], str]
    """Returns the output of --help, which is run once; empty where there is none."""
    place: Callable[[str], str]
    """Returns where a model of the SLO is stored, for a server that cannot start without a draft."""

    @property
    def address(self) -> tuple[str, ...]:
        """Return the options for the address to listen on, as most servers take them."""
        return ("--host", HOST, "--port", str(self.port))

    def length(self, name: str = "num_draft_tokens") -> int | None:
        """Return the draft length; None where none is set."""
        value = self.knobs.get(name)
        return value if isinstance(value, int) else None

    def knob(self, name: str) -> str | None:
        """Return the value of a knob as a command-line argument, None where it is not set."""
        value = self.knobs.get(name)
        return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request, with the names by which the server knows its models."""

    resolved: ResolvedRequest
    knobs: Mapping[str, Any]
    model: str | None
    """None: the server has one model, and requests need no name."""
    draft: str | None
    """The server's name for it; None: plain decoding."""
    cache: bool


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative counters of a server; the difference of two readings belongs to the answers between them."""

    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    accepted_by_position: tuple[int, ...] = ()

    def since(self, before: "Counters") -> "Counters":
        """Return the difference to *before*; None stays None. Where one counter was reset, all were: each is None."""

        def gain(now: int | None, then: int | None) -> int | None:
            return None if now is None or then is None else now - then

        was = (*before.accepted_by_position, *(0 for _ in self.accepted_by_position))
        difference = Counters(
            gain(self.drafted, before.drafted),
            gain(self.accepted, before.accepted),
            gain(self.rounds, before.rounds),
            tuple(now - then for now, then in zip(self.accepted_by_position, was, strict=False)),
        )
        gains = (difference.drafted, difference.accepted, difference.rounds, *difference.accepted_by_position)
        return Counters() if any(change is not None and change < 0 for change in gains) else difference


Get = Callable[[str], str | None]
"""Fetches a path of the server: its text, or None where there is none."""


@dataclass(frozen=True, slots=True)
class Slots:
    """What a running server tells of the slots that it answers requests with."""

    count: int | None
    drafting: tuple[bool, ...]
    """One flag a slot; empty where it does not tell."""


_NAMES = ("id", "name", "model")
"""Keys of a model's name in a list of models."""


@dataclass(frozen=True, slots=True)
class StatedWindow:
    """Where a running server states its context window: how many tokens a prompt and its answer may have together.

    By default where servers of the OpenAI protocol do.
    """

    path: str = "/v1/models"
    models: str | None = "data"
    """The key of the list of models; None: the document is about the one model that is served."""
    keys: tuple[str, ...] = ("max_model_len",)
    option: str | None = None
    """What raises it."""

    def read(self, text: str | None, target: str) -> int | None:
        """Return the window that a document states for *target*; None where it is unclear whose it is."""
        try:
            document = json_value(text or "{}", from_server=True)
        except ParseError:
            return None
        if self.models is not None:
            listed = document.get(self.models) if isinstance(document, dict) else None
            models = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
            matching = [model for model in models if any(_is(model.get(key), target) for key in _NAMES)]
            document = (matching or models)[0] if len(matching or models) == 1 else None
        return _number(document, self.keys)


def _is(name: object, target: str) -> bool:
    return isinstance(name, str) and target in {name, name.removesuffix(":latest")}


def _number(document: Any, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, int) and not isinstance(document, bool) and document > 0 else None


def chat_body(request: ServerRequest) -> dict[str, Any]:
    """Return the body of a request to a server without fields of its own."""
    return request_fields(request.resolved, model=request.model, chat_template_kwargs=thinking(request))


def body_with_draft(request: ServerRequest) -> dict[str, Any]:
    """Return the body that names the draft; without `draft_model` the same model decodes plainly."""
    return chat_body(request) | ({} if request.draft is None else {"draft_model": request.draft})


def thinking(request: ServerRequest) -> dict[str, bool] | None:
    """Return the option that switches thinking in most chat templates; None leaves it to the template."""
    return None if request.resolved.thinking is None else {"enable_thinking": request.resolved.thinking}


def request_scores(ask: Ask, fields: Mapping[str, Any]) -> Scored | None:
    """Return an answer with log-probabilities, as OpenAI's API tells them."""
    return scored_from(ask(COMPLETIONS, with_scores(fields)))


def keep_answer_unchanged(answer: Answer, response: ChatResponse) -> Answer:
    """Return *answer* unchanged: the server reports nothing about its drafting."""
    del response
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(BackendFacts):
    """How one family of servers is started, and how its requests and responses look."""

    draft_hint: str
    """What to check where it decodes plainly although a draft is set."""
    sight: Sight = STREAMED
    """A forecast of what answers show; memory and plain decoding depend on how the server is started."""

    any_server: bool = False
    """Any kind of server may answer: `sight` is what one may show, and it is no finding where it does not."""

    # How it is started.
    argv: Callable[[Start], Iterable[str]] | None = None
    """The whole command line; None: the SLO has to give a `url` or a `command`."""
    help: str = "--help"
    """The option that lists all of its options."""
    cache_off: tuple[str, ...] = ()
    """The options that switch its prompt cache off, at the end of its command line."""
    cache_defect: str = ""
    """Which of its releases are known to answer otherwise from their prompt cache, and when; empty: none."""
    maps_weights: Callable[[Sequence[str]], bool] | None = None
    """Tells whether with these arguments the weights stay a mapped file, which counts as memory that can be had."""
    variables: tuple[str, ...] = ()
    """How the names of variables begin that change how it decodes."""
    health: str = "/health"
    loading: int | None = None
    """The HTTP status of its health check until the models are loaded; None: it has none."""
    version: Callable[[Subject], dict[str, str]] | None = None
    """Returns the versions of the program, where `PROGRAM --version` does not print them."""
    packages: tuple[str, ...] = ()
    """Python packages whose versions identify the program, looked up in the environment it runs in."""

    # Its requests.
    path: str = COMPLETIONS
    headers: Mapping[str, str] = field(default_factory=dict)
    """What each request carries so that the server heeds the fields in its body, a client's request of a proxy too."""
    steered_paths: tuple[str, ...] = ()
    """Where it reads the fields that choose a draft, its length or plain decoding; empty: at `path` alone."""
    client_hints: tuple[str, ...] = ()
    """Headers of a client, in lower case and with wildcards, for which it would ignore those fields."""
    client_hint_fields: Mapping[str, Any] = field(default_factory=dict)
    """A merge patch (RFC 7396) that removes the same from a body."""
    body: Callable[[ServerRequest], dict[str, Any]] = chat_body
    model_name: Literal["listed", "path"] | None = None
    """Its requests carry the target's name: `served_model_name`, else (`listed`) the only one the server lists or the
    name in the SLO, or (`path`) the paths of target and draft."""
    streams: int = 64
    knobs: frozenset[str] = frozenset()
    """The knobs it takes besides `draft` and the conditions."""
    restart_knobs: tuple[str, ...] = ("draft",)
    by_request: frozenset[str] = frozenset()
    """Restart knobs that are sent with a request: the server reloads the model by itself."""
    caches_by_request: bool = False
    """Each request says whether its prompt cache is used."""
    greedy_only: bool = False
    """It decodes greedily, whatever temperature a request has."""
    options: frozenset[str] = COMMON_OPTIONS
    """The options of a canary's request that its API has a field for."""

    # Its answers.
    read: Callable[[Answer, ChatResponse], Answer] = keep_answer_unchanged
    """Adds the server's claims."""
    counters: Callable[[Get], Counters | None] | None = None
    """Reads its cumulative counters, before and after an answer, where requests run one at a time."""
    traffic: Callable[[Get], Counters | None] | None = None
    """Reads cumulative counters of its whole traffic, where they are not read with every answer; else `counters`."""
    after_answer: Callable[[Get, ServerRequest, Answer], Answer] | None = None
    """Adds what it reports about its last answer elsewhere, where requests run one at a time."""
    corrected: Callable[[ServerRequest, Answer], Answer] | None = None
    """Corrects the claims of a speculating answer by what is known of the server's counters."""
    tokens_of: Callable[[Mapping[str, Any]], int | None] | None = None
    """Reads from a chunk how many tokens the answer has so far."""
    scored: Callable[[Ask, Mapping[str, Any]], Scored | None] | None = None
    """Requests an answer to a request's fields with the log-probabilities of its tokens; None: it tells none."""
    continued: Callable[[Ask, Beginning, int], Scored | None] | None = None
    """Reads the beginning of an answer as a prompt; returns at most so many tokens after it, as `scored` does."""
    count_tokens: Callable[[Ask, str], int | None] | None = None
    """Requests how many tokens a text has; None: it tells none."""
    no_acceptance_hint: str = "remove this guard from the policy"
    """What to do where a watched server does not report acceptance."""

    # What a running server tells of itself.
    version_path: str | None = None
    """The path of a running server's version."""
    version_key: str | None = None
    """The key of the version in the JSON document there; None: the first line is the version."""
    settings_path: str | None = None
    """The path of a JSON document with the options of a running server."""
    window: StatedWindow = StatedWindow()
    slots: Callable[[Get], Slots] | None = None
    """Reads what it tells of its slots."""

    # Its options, as a command line has them.
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Its own name of an option, by each other name that it takes."""
    model_options: frozenset[str] = frozenset({"--model", "--draft-model"})
    """Options with a model: models are compared by their digests, not by the words that name them."""
    harmless: tuple[str, ...] = HARMLESS
    """Patterns of options that change nothing about how it decodes."""
    lossy: tuple[LossyOption, ...] = ()
    """Options and variables with which its answers are not the target's, or its counts are invented."""
    ignored: tuple[LossyOption, ...] = ()
    """Options that it accepts and that have no effect: an SLO that has one would measure something else."""

    @property
    def cache_off_advice(self) -> str | None:
        """Return how to deploy it with its prompt cache off; None where another script than its own is deployed."""
        if self.console_script is None:
            return None
        words, known = json.dumps(list(self.cache_off)), f"{self.cache_defect}: " if self.cache_defect else ""
        return f"{known}deploy {self.console_script} with `{' '.join(self.cache_off)}` (args = {words})"

    def steers(self, path: str) -> bool:
        """Return whether a request to *path* can say how it is decoded, where the server takes that with a request."""
        return path in (self.steered_paths or (self.path,))

    def find_lossy(self, subject: Subject) -> Lossy | None:
        """Return what in *subject* it cannot be certified with; None where there is nothing."""
        return find_lossy(_written_in(subject), (*self.lossy, *self.ignored))

    def find_lossy_variable(self) -> Lossy | None:
        """Return which variable a server that gatekeeper starts would inherit, and could not be certified with."""
        inherited = in_variables(os.environ, "the environment of gatekeeper, which the server inherits,")
        return find_lossy(inherited, self.lossy)


def _written_in(subject: Subject) -> Iterator[Written]:
    """Yield every option and variable that *subject* starts its server with, and the knobs of its requests."""
    for key in ("args", "command", "plain_command", "program"):
        yield from in_command(getattr(subject, key) or (), f"subject.{key}")
    for name, place in subject.knobs.items():
        yield from in_command(place.argv or (), f"subject.knobs.{name}")
        if place.field is not None:
            yield Written(place.field, None, f"subject.knobs.{name}")


def option(flag: str, value: object) -> Iterator[str]:
    """Yield *flag* and its value as arguments, nothing where there is no value."""
    if value is not None:
        yield from (flag, str(value))
