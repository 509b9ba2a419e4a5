"""Requests to a server under test and its answers, its cumulative counters, and how it ended."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gatekeeper.backends.answer_limits import AnswerLimits, most_bytes
from gatekeeper.backends.dialect import Counters, Dialect, ServerRequest
from gatekeeper.backends.http import control_requests
from gatekeeper.backends.http.chat_answer import CUT_OFF, ChatResponse, read_answer
from gatekeeper.backends.http.chat_request import PLAIN, resolve
from gatekeeper.backends.http.echoed_keys import Keys
from gatekeeper.backends.http.response import parse_response
from gatekeeper.backends.http.scores import Beginning
from gatekeeper.backends.http.stream import BROKEN, post
from gatekeeper.backends.server_process import ServerProcess
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, SamplingParameters
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import EMPTY, NO_CONNECTION, Answer, Claims, Scored, Setting
from gatekeeper.core.slo.subject_table import Subject

GREEDY_HINT = "set temperature = 0 in [sampling], and remove other temperatures, or use another backend"
NOT_PLAIN = "not plain"
"""The kind of fault of a plain answer that was drafted."""
OK = 200
_EXIT_S = 0.5
"""Seconds to wait for the exit of a server whose connection broke."""
_LEFT_ALONE_S = 120.0
"""Seconds for which a path that took too long is not requested again."""
_PERHAPS_DEAD = (BROKEN, NO_CONNECTION, CUT_OFF, EMPTY)
"""Kinds of faults after which a server may be exiting."""
_PING = Canary.model_validate({"id": "ping", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """Makes the requests to one server."""

    dialect: Dialect
    subject: Subject
    headers: Mapping[str, str]
    model: str | None
    """The server's name for the target; None: requests need no name."""
    drafts: Mapping[str, str]
    """The server's name for each draft."""
    cache: bool
    limits: AnswerLimits
    folder: Path | None = None
    """The target's folder or file, where it is on this machine."""

    def server_request(self, request: DecodeRequest) -> ServerRequest:
        """Return *request* with the server's names, without a seed where it would change more than the draw."""
        resolved, knobs = resolve(request), dict(request.setting)
        if (knobs.get("concurrency") or 1) > 1:
            resolved = replace(resolved, seed=None)
        draft = None if resolved.draft is None else self.drafts[resolved.draft]
        return ServerRequest(resolved, knobs, self.model, draft, self.cache)

    def fields(self, request: ServerRequest) -> dict[str, Any]:
        """Return the request's fields, the knobs of the SLO's own table included.

        Raise InputError for sampling where the server would silently decode greedily.
        """
        if self.dialect.greedy_only and not request.resolved.greedy:
            message = f"{self.dialect.name} decodes greedily at any temperature, but a request has temperature = "
            raise InputError(f"{message}{request.resolved.temperature:g}", hint=GREEDY_HINT)
        fields, knobs = self.dialect.body(request), request.knobs
        for name, place in self.subject.knobs.items():
            if place.field is not None and knobs.get(name) is not None:
                fields[place.field] = knobs[name]
        return fields

    def body(self, request: ServerRequest) -> bytes:
        """Return the request's JSON."""
        return json.dumps(self.fields(request)).encode()


class Server(RunningSystem):
    """One server, started by us or already running; several threads may send requests at once."""

    def __init__(
        self, process: ServerProcess | None, root: Address, started_for: Setting, requests: RequestFormat
    ) -> None:
        self.process, self.root, self.model = process, root, requests.model
        self._requests, self._started_for, self._draft = requests, started_for, dict(started_for).get("draft")
        self._closed = False
        self._slow_until: dict[str, float] = {}

    @property
    def drafts(self) -> bool:
        """Return whether it was opened for a setting with a draft."""
        return self._draft is not None

    def answer(self, request: DecodeRequest) -> Answer:
        """Answer one request; a dead server, a broken or invalid stream and silence are the answer's fault."""
        self._check_draft(request)
        dialect, sent = self._requests.dialect, self._requests.server_request(request)
        # Its counters hold one answer alone only while no other request is running.
        counted = request.draft is not None and (sent.knobs.get("concurrency") or 1) == 1
        read = dialect.counters if counted else None
        before = read(self.document) if read is not None else None
        limits, tokens = self._requests.limits, sent.resolved.max_tokens
        deadline = limits.seconds(tokens, sent.knobs.get("concurrency") or 1)
        answer = self._post(sent, self._requests.subject.timeout, deadline)
        limits.note(answer)
        if answer.fault is not None:
            return self._with_ending(answer)
        if read is not None and before is not None and (after := read(self.document)) is not None:
            answer = replace(answer, claims=_complete_claims(answer.claims, after.since(before)))
        if counted and dialect.after_answer is not None:
            answer = dialect.after_answer(self.document, sent, answer)
        if request.draft is not None and dialect.corrected is not None:
            answer = dialect.corrected(sent, answer)
        return answer if request.draft is not None else _plain(answer)

    def ping(self, timeout: float) -> Answer:
        """Request one token with the setting it was started for, waiting *timeout* seconds."""
        answer = self._post(self._requests.server_request(shortest_request(self._started_for)), timeout, timeout)
        self._requests.limits.note(answer)
        return answer

    def request_scores(self, request: DecodeRequest) -> Scored | None:
        """Answer with the log-probabilities of the likeliest tokens; None where the server tells none. Untimed."""
        self._check_draft(request)
        read, sent = self._requests.dialect.scored, self._requests.server_request(request)
        record = None if read is None else read(self._ask, self._requests.fields(sent))
        return self._without_keys(record, sent.resolved.max_tokens)

    def _without_keys(self, record: Scored | None, max_tokens: int) -> Scored | None:
        if record is None:
            return None
        most = max_tokens + 1  # the token that ends an answer may not count
        keys = Keys(self.root.at(self._requests.dialect.path), self._requests.headers)
        # Pieces of a key may be tokens of their own, which hide it from a search.
        echoes = any(keys.mask(text) != text for text in (record.text, "".join(record.spelled)))
        return Scored("", "", "", fault="the answer repeats a key") if echoes else record.first(most)

    def continue_answer(self, request: DecodeRequest, beginning: Scored, tokens: int) -> Scored | None:
        """Return at most *tokens* tokens that follow *beginning*, which is read as a prompt. Untimed."""
        self._check_draft(request)
        read, requests = self._requests.dialect.continued, self._requests
        fields = requests.fields(requests.server_request(request))
        if read is None:
            return None
        return self._without_keys(read(self._ask, Beginning(fields, beginning, requests.folder), tokens), tokens)

    def _ask(self, path: str, fields: Mapping[str, Any]) -> Any:
        """Post *fields* to *path* and return the document that answers; None where none does."""
        body, tokens = json.dumps(fields).encode(), fields.get("max_tokens", 1)
        deadline = self._requests.limits.seconds(tokens)  # it comes in one piece, so that nothing of it comes earlier
        raw = post(
            self.root.at(path), body, headers=self._requests.headers, timeout=deadline, deadline=deadline,
            most_bytes=most_bytes(tokens, len(body)),
        )  # fmt: skip
        response = parse_response(raw)
        try:
            return json_value(response.body, from_server=True) if response.status == OK and not raw.broken else None
        except ParseError:
            return None

    def _post(self, request: ServerRequest, timeout: float, deadline: float) -> Answer:
        if self._closed:
            now = SystemClock().now_ns()
            return Answer(now, now, fault=f"{NO_CONNECTION}: gatekeeper has ended the server")
        dialect, headers = self._requests.dialect, self._requests.headers
        body = self._requests.body(request)
        url = self.root.at(dialect.path)
        raw = post(
            url,
            body,
            headers=headers,
            timeout=timeout,
            deadline=deadline,
            most_bytes=most_bytes(request.resolved.max_tokens, len(body)),
        )
        answer, response = read_answer(raw, tokens_of=dialect.tokens_of)
        answer = dialect.read(answer, response) if answer.fault is None else answer
        return Keys(url, headers).mask_answer(answer)

    def _check_draft(self, request: DecodeRequest) -> None:
        dialect = self._requests.dialect
        switched = dialect.switches and ("draft" not in dialect.restart_knobs or request.draft is None)
        if request.draft != self._draft and not switched:
            message = f"the server started for '{self._draft or PLAIN}' got a request for '{request.draft or PLAIN}'"
            raise GatekeeperError(message, hint="this is a bug; please report it")

    def document(self, path: str) -> str | None:
        """Return the text of one of its own paths, such as /props; None where there is none.

        One that took too long is left alone for a while: every answer would wait for it.
        """
        begun = time.monotonic()
        if begun < self._slow_until.get(path, 0.0):
            return None
        text = control_requests.fetch(self.root.at(path), self._requests.headers)
        if text is None and time.monotonic() - begun >= control_requests.LIMIT_S:
            self._slow_until[path] = begun + _LEFT_ALONE_S
        return text

    def _with_ending(self, answer: Answer) -> Answer:
        fault = answer.fault or ""
        if self.process is None:
            return answer
        ended = self.process.ending(_EXIT_S if fault.startswith(_PERHAPS_DEAD) else 0.0)
        return answer if ended is None else replace(answer, fault=f"server died: {ended} ({fault})")

    def counters(self) -> Counters | None:
        """Return its cumulative counters as they are now; None where it has none, or does not answer."""
        read = self._requests.dialect.traffic or self._requests.dialect.counters
        return None if read is None else read(self.document)

    def pids(self) -> tuple[int, ...]:
        """Return the server's process, without its guard; none where it was already running."""
        return () if self.process is None else (self.process.pid,)

    def alive(self) -> bool:
        """Tell whether it can still answer."""
        return not self._closed and (self.process is None or self.process.alive())

    def close(self) -> None:
        """End the server and wait for it; one that was already running is left alone."""
        self._closed = True
        if self.process is not None:
            self.process.close()


def shortest_request(setting: Setting) -> DecodeRequest:
    """Return the shortest request with *setting*."""
    return DecodeRequest(_PING, setting, SamplingParameters())


def _plain(answer: Answer) -> Answer:
    """Return an answer of plain decoding; one that was drafted cannot be a baseline, so it gets a fault."""
    if (words := describe_draft(answer)) is not None:
        return replace(answer, fault=f"{NOT_PLAIN}: {words} for a plain request")
    return replace(answer, rounds=None)


def describe_draft(answer: Answer) -> str | None:
    """Return how an answer was drafted, by our count or by what its server says; None where neither says so."""
    if drafted := drafted_in(answer):
        return f"{drafted} tokens were drafted"
    return "its server says that it used a draft" if answer.claims.drafting else None


def drafted_in(answer: Answer) -> int | None:
    """Return how many tokens were drafted for an answer, by our count or its server's; None where neither tells.

    Of a server that counts only what it accepted, or its rounds, that many were drafted at least.
    """
    claims = answer.claims
    counts = [claims.drafted, claims.accepted, claims.rounds]
    if answer.rounds is not None:
        counts.append(answer.rounds.drafted)
    return next(filter(None, counts), 0 if any(count is not None for count in counts) else None)


def read_claims(dialect: Dialect, documents: Iterable[dict[str, Any]]) -> Answer:
    """Return an answer with what its *documents*, of a server of this dialect, say of how it was decoded."""
    response = ChatResponse()
    for document in documents:
        try:
            response.add(0, document)
        except (ValueError, TypeError, AttributeError, KeyError):  # a server may send any kind of value
            continue
    tokens = response.usage.get("completion_tokens")
    answer = Answer(0, 0, output_tokens=tokens if isinstance(tokens, int) else None)
    return dialect.read(answer, response)


def _complete_claims(claims: Claims, gained: Counters) -> Claims:
    """Return *claims*, completed from the server's counters; a claim of the answer itself is kept.

    Counters that contradict the answer count other requests too, and are not used.
    """
    for claimed, counted in ((claims.drafted, gained.drafted), (claims.accepted, gained.accepted)):
        if None not in {claimed, counted} and claimed != counted:
            return claims
    return replace(
        claims,
        drafted=claims.drafted if claims.drafted is not None else gained.drafted,
        accepted=claims.accepted if claims.accepted is not None else gained.accepted,
        rounds=claims.rounds if claims.rounds is not None else gained.rounds,
        accepted_by_position=claims.accepted_by_position or gained.accepted_by_position,
    )
