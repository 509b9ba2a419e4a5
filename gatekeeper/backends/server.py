"""A server under test: it runs, is asked, watched and ended."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gatekeeper.backends.dialects.dialect import Counters, Dialect, ServerRequest
from gatekeeper.backends.http import control
from gatekeeper.backends.http.chat import PLAIN, read_answer, resolve
from gatekeeper.backends.http.stream import post
from gatekeeper.backends.process import ServerProcess
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, SamplingParameters
from gatekeeper.core.records import Answer, Claims, Setting
from gatekeeper.core.subject import Subject

_ENDING_S = 0.5
"""After a torn connection: as long as a killed server may take to be gone."""
_TORN = ("connection broken", "no connection", "cut off", "empty answer")
_PING = Canary.model_validate({"id": "ping", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """How one server is spoken to."""

    dialect: Dialect
    subject: Subject
    headers: Mapping[str, str]
    model: str | None
    """What it calls the target; None: it need not be named."""
    drafts: Mapping[str, str]
    """What it calls each draft."""
    cache: bool

    def wanted(self, ask: DecodeRequest) -> ServerRequest:
        """Return *ask* in the server's names; a seed is left out where it would change more than the draw."""
        asked, knobs = resolve(ask), dict(ask.setting)
        if (knobs.get("concurrency") or 1) > 1:
            asked = replace(asked, seed=None)
        draft = None if asked.draft is None else self.drafts[asked.draft]
        return ServerRequest(asked, knobs, self.model, draft, self.cache)

    def body(self, wanted: ServerRequest) -> bytes:
        """Return the request, the knobs of the SLO's own table included."""
        fields, knobs = self.dialect.request(wanted), wanted.knobs
        for name, place in self.subject.knobs.items():
            if place.field is not None and knobs.get(name) is not None:
                fields[place.field] = knobs[name]
        return json.dumps(fields).encode()


class Server(RunningSystem):
    """One server, launched by us or running already; answers may be asked for from many threads."""

    def __init__(self, launched: ServerProcess | None, root: str, started_for: Setting, tongue: RequestFormat) -> None:
        self.launched, self.root = launched, root
        self._tongue, self._started_for, self._draft = tongue, started_for, dict(started_for).get("draft")
        self._closed = False

    def answer(self, ask: DecodeRequest) -> Answer:
        """Answer one request; a dead server, a torn or senseless stream and silence are the answer's fault."""
        self._check_draft(ask)
        dialect, wanted = self._tongue.dialect, self._tongue.wanted(ask)
        # What it counts elsewhere is one answer's own only where no other is under way.
        counted = ask.draft is not None and (wanted.knobs.get("concurrency") or 1) == 1
        before = dialect.counters(self._get) if counted and dialect.counters is not None else None
        answer = self._hear(wanted, self._tongue.subject.timeout)
        if answer.fault is not None:
            return self._with_ending(answer)
        if before is not None and dialect.counters is not None and (after := dialect.counters(self._get)) is not None:
            answer = replace(answer, claims=_filled_in(answer.claims, after.since(before)))
        if counted and dialect.aside is not None:
            answer = dialect.aside(self._get, wanted, answer)
        return answer if ask.draft is not None else _plain(answer)

    def ping(self, timeout: float) -> Answer:
        """Ask for one token with the setting it was started for, waiting *timeout* seconds."""
        return self._hear(self._tongue.wanted(shortest_request(self._started_for)), timeout)

    def _hear(self, wanted: ServerRequest, timeout: float) -> Answer:
        if self._closed:
            now = SystemClock().now_ns()
            return Answer(now, now, fault="no connection: it was closed")
        dialect = self._tongue.dialect
        heard = post(self.root + dialect.path, self._tongue.body(wanted), headers=self._tongue.headers, timeout=timeout)
        answer, said = read_answer(heard, tokens_of=dialect.tokens_of)
        return dialect.read(answer, said) if answer.fault is None else answer

    def _check_draft(self, ask: DecodeRequest) -> None:
        dialect = self._tongue.dialect
        switched = dialect.switches and ("draft" not in dialect.restart_knobs or ask.draft is None)
        if ask.draft != self._draft and not switched:
            message = f"asked the server of '{self._draft or PLAIN}' to decode with '{ask.draft or PLAIN}'"
            raise GatekeeperError(message, hint="this is a bug; please report it")

    def _get(self, path: str) -> str | None:
        return control.fetch(self.root + path, self._tongue.headers)

    def _with_ending(self, answer: Answer) -> Answer:
        fault = answer.fault or ""
        if self.launched is None:
            return answer
        ended = self.launched.ending(_ENDING_S if fault.startswith(_TORN) else 0.0)
        return answer if ended is None else replace(answer, fault=f"server died: {ended} ({fault})")

    def counters(self) -> Counters | None:
        """Return its cumulative counters as they are now; None where it has none, or does not answer."""
        read = self._tongue.dialect.counters
        return None if read is None else read(self._get)

    def pids(self) -> tuple[int, ...]:
        """Return the server's process, without its guard; none of a server that was running already."""
        return () if self.launched is None else (self.launched.pid,)

    def alive(self) -> bool:
        """Tell whether it can still be asked."""
        return not self._closed and (self.launched is None or self.launched.alive())

    def close(self) -> None:
        """End the server and wait for it; one that was running already is left alone."""
        self._closed = True
        if self.launched is not None:
            self.launched.close()


def shortest_request(setting: Setting) -> DecodeRequest:
    """Return the shortest request with *setting*."""
    return DecodeRequest(_PING, setting, SamplingParameters())


def _plain(answer: Answer) -> Answer:
    """Return an answer of plain decoding; one that was drafted for all the same is no reference for anything."""
    if answer.claims.drafted:
        return replace(answer, fault=f"not plain: {answer.claims.drafted} tokens were drafted, and none asked for")
    return replace(answer, rounds=None)


def _filled_in(claims: Claims, gained: Counters) -> Claims:
    """Return *claims* with what only the server's counters tell; where both tell, the answer's own stand.

    Counters that contradict the answer count somebody else's too, and are left alone.
    """
    for own, counted in ((claims.drafted, gained.drafted), (claims.accepted, gained.accepted)):
        if None not in {own, counted} and own != counted:
            return claims
    return replace(
        claims,
        drafted=claims.drafted if claims.drafted is not None else gained.drafted,
        accepted=claims.accepted if claims.accepted is not None else gained.accepted,
        rounds=claims.rounds if claims.rounds is not None else gained.rounds,
        accepted_by_position=claims.accepted_by_position or gained.accepted_by_position,
    )
