"""A live request and what became of it, and what it is evidence of; its record: `live_records.py`."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gatekeeper.backends.dialect import Dialect
from gatekeeper.backends.server_requests import drafted_by_claims
from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.observation import Observation
from gatekeeper.live.request_routes import RequestDecision
from gatekeeper.live.server_load import IDLE, LoadMet

CLIENT_LEFT = "client left"
STOPPED = "the proxy was stopping"
UNREADABLE = "the body is no JSON object that can be read, so that the proxy cannot choose how it is decoded"
NOT_PLAIN = "at this path no server is known to decode plainly"
OWN_LIMIT = "the proxy has no more connections or memory for this request"
NOT_ITS_FAULT = frozenset({CLIENT_LEFT, STOPPED, UNREADABLE, NOT_PLAIN, OWN_LIMIT})
"""Ends of an answer that say nothing of the server."""
UNDECIDED = RequestDecision("unknown", "none", False, "")
MOST_COUNT = 2**53
"""Of the tokens that a server says it counted: a float holds every whole number up to here."""


@dataclass(slots=True)
class EndedRequest:
    """Filled in while a request is answered; `measure` completes it once it has ended."""

    method: str
    arrived: datetime
    meter: AnswerMeter
    request: LiveRequest
    decision: RequestDecision = UNDECIDED
    target: str = "plain"
    """The server that answered, or was tried last; `none` where the proxy itself refused it."""
    status: int | None = None
    fault: str | None = None
    """Why its answer is none, or not whole."""
    failed: str = ""
    """Why a server that was tried did not answer."""
    seconds: float = 0.0
    tokens: int | None = None
    prompt_tokens: int | None = None
    drafted: int | None = None
    """Tokens that its server says it drafted; None where it does not tell."""
    id: str = ""
    """Random, and drawn at its end."""

    def measure(self, now_ns: int, dialect: Dialect | None) -> None:
        """Take the time and the tokens of an answer that has ended, by the *dialect* of its server."""
        self.id = secrets.token_hex(8)
        usage = self.meter.finish()
        self.seconds = (now_ns - self.meter.begun_ns) / 1e9
        self.tokens, self.prompt_tokens = _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens"))
        self.drafted = None if dialect is None else drafted_by_claims(dialect, self.meter.reports())

    @property
    def is_not_plain(self) -> bool:
        """Return whether it was to be decoded plainly, and its server says that it was drafted."""
        return self.target == "plain" and bool(self.drafted)

    @property
    def ttft(self) -> float | None:
        """Return the seconds to its first text; None where it has none."""
        first_ns = self.meter.first_ns
        return None if first_ns is None else (first_ns - self.meter.begun_ns) / 1e9

    @property
    def decoding(self) -> LoadMet:
        """Return what was in flight while it was written."""
        return self.meter.served.decoding if self.meter.served is not None else IDLE

    @property
    def is_evidence(self) -> bool:
        """Return whether it counts for or against its arm: the arm was drawn, and the end is the server's."""
        drawn = self.decision.arm is not None and self.fault not in NOT_ITS_FAULT and self.failed not in NOT_ITS_FAULT
        return drawn and not self.is_not_plain and (self.status is None or not 400 <= self.status < 500)


def observation(ended: EndedRequest) -> Observation:
    """Return what a request is evidence of."""
    decision, meter = ended.decision, ended.meter
    return Observation(
        workload=decision.workload,
        arm=decision.arm or "",
        epoch=decision.epoch,
        conversation=decision.conversation or ended.id,
        prompt_chars=ended.request.prompt_chars,
        streamed=meter.streamed,
        speed=meter.chars_per_s,
        ttft=ended.ttft,
        failed=bool(ended.fault or ended.failed),
        whole_speed=meter.chars / ended.seconds if meter.chars and ended.seconds > 0 else None,
        waiting=meter.served.waiting if meter.served is not None else IDLE,
        decoding=ended.decoding,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT else None
