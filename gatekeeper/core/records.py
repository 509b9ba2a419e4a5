"""The raw records of a run: answers, near-ties, host samples and events, one JSON line each."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

Setting = tuple[tuple[str, Any], ...]
"""Sorted (knob, value) pairs; `draft` is None for plain decoding."""


def setting(**knobs: Any) -> Setting:
    """Return the knobs as a sorted, hashable setting."""
    return tuple(sorted(knobs.items()))


class Arrival(NamedTuple):
    """One piece of an answer: a token in process, a chunk over HTTP. Written as a JSON list."""

    at_ns: int
    """Monotonic nanoseconds, read where the piece arrived."""
    tokens: int | None = None
    """None: this backend cannot count them; unknown is never 0."""
    drafted: bool | None = None
    """True: proposed by the draft and accepted. None: this backend does not know."""
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Rounds:
    """Counters of one speculating answer, in the field's terms: acceptance rate is accepted / drafted."""

    rounds: int
    """Verify passes of the target."""
    drafted: int
    """Tokens the draft proposed."""
    accepted: int
    """Proposed tokens that were kept."""
    tried_by_position: tuple[int, ...] = ()
    """How often position i of a round was reached and verified."""
    accepted_by_position: tuple[int, ...] = ()
    """How often position i of a round was accepted."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a server reports about itself: recorded next to our own counts, never mixed with them."""

    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_seconds: float | None = None
    decode_seconds: float | None = None
    tried_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    model: str | None = None
    """The model that answers, by the server's name for it."""


TIMEOUT = "timeout"
"""The kind of fault after which the system is restarted, because it may hang."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request. All times are monotonic nanoseconds of this machine."""

    sent_ns: int
    ended_ns: int
    arrivals: tuple[Arrival, ...] = ()
    text: str = ""
    reasoning: str = ""
    """Reasoning before the text, if a server separates the two; its arrivals count, and it is not graded."""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """As the OpenAI API writes them: {"function": {"name": …, "arguments": "…"}}."""
    finish: str | None = None
    """stop | length | tool_calls; None when the answer never finished."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    rounds: Rounds | None = None
    """Counted by us; None where only the server could count, or nothing was drafted."""
    claims: Claims = Claims()
    memory_active: int | None = None
    """Bytes the allocator held at the end of the answer; None where it does not report them."""
    memory_peak: int | None = None
    fault: str | None = None
    """An error of the system, as data: its kind (`timeout`, `cut off`, `worker died` ...), a colon and the details."""


class Role(StrEnum):
    """Why an answer was requested."""

    WARMUP = "warmup"
    MEASURED = "measured"
    SENTINEL = "sentinel"
    """A baseline request: plain decoding during a soak, paired with a speculative request."""
    BLOCK = "block"
    """A plain answer of a block before, midway or after a soak, where the arms cannot share a process."""
    CLOSING = "closing"
    """A quality canary, requested again after the soak."""
    WARM = "warm"
    """Requested after the soak with the prompt cache on, or plain decoding's answer to the same prompt."""
    DRAW = "draw"
    """The first tokens of a short prompt, one of many samples after the soak."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One request and its answer."""

    trial: str
    """The trial it belongs to: `baseline`, `num_draft_tokens-4`, `soak-1`."""
    key: str
    """Unique in its record file; a resumed run skips the keys it finds."""
    workload: str
    canary: str
    arm: str
    """`plain` or `candidate`."""
    setting: Setting
    role: Role
    repeat: int
    """Which repeat of the sweep; in a soak, which unbroken stretch of its segment."""
    pair: str
    """Answers of both arms with the same pair were requested next to each other and may be compared."""
    concurrency: int
    answer: Answer
    segment: int = 0
    """Which uninterrupted part of the run: a resumed run begins a new one."""
    at: str = ""
    """Wall time when the answer ended."""


@dataclass(frozen=True, slots=True)
class Tie:
    """Where a candidate's greedy tokens first diverge from plain decoding's, and how sure the target was there."""

    workload: str
    canary: str
    position: int
    """How many tokens both arms share."""
    shared: tuple[int, ...]
    """Those tokens."""
    plain_id: int
    """The token plain decoding gave next."""
    candidate_id: int
    gap: float | None
    """The target's best logit there minus its second; None: unknown."""
    fault: str | None = None
    """Why it is unknown."""
    segment: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of the host in base units; missing is a status, never zero."""

    value: float | str | None
    unit: str
    source: str
    status: str
    """ok | absent | denied | stale | parse_error"""
    age: float | None = None
    """Seconds since the source was read."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """All readings of the host at one instant."""

    at: str
    at_ns: int
    values: dict[str, Reading]
    phase: str = ""
    """The soak this sample belongs to, or the stage it was taken in."""
    segment: int = 0
    took_ns: int = 0
    """How long taking the sample took."""
    late_ns: int = 0
    """How long after its deadline it was taken."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: progress, a transition, an incident."""

    at: str
    kind: str
    detail: dict[str, Any]


RECORDED_ELSEWHERE = frozenset({"answer", "sample", "tie"})
"""Kinds of events that have record files of their own, so events.jsonl does not hold them."""

Kind = TypeVar("Kind", Generation, HostSample, Event, Tie)


@dataclass(frozen=True, slots=True)
class StoredRecords(Generic[Kind]):
    """The content of a record file; `trouble` is what is wrong with the file, None where nothing is."""

    records: tuple[Kind, ...] = ()
    trouble: str | None = None
    whole_bytes: int = 0
    """How much of the file is whole records: a resumed run appends there."""
