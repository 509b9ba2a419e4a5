"""The raw records of a run: answers, forced passes, near-ties, host samples and events, one JSON line each."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, overload

Setting = tuple[tuple[str, Any], ...]
"""Sorted (knob, value) pairs; `draft` is None for plain decoding."""
Knobs = Mapping[str, Any]
"""The values of knobs, by the knob's name, as documents write a setting."""


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


UNKNOWN = -(2**63)
"""In a column of whole numbers: None."""
_FLAGS = (False, True, None)


SHARED_BYTES = 8192
"""Longer texts and columns are not compared with those before; two thousand of this size are remembered at most."""
Shared = TypeVar("Shared", str, bytes)


def _shared(value: Shared) -> Shared:
    """Return the first of equal ones: greedy answers to one canary have the same tokens and text, again and again."""
    return _first(value) if len(value) <= SHARED_BYTES else value


@lru_cache(maxsize=2048)
def _first(value: Any) -> Any:
    return value


class Arrivals(Sequence[Arrival]):
    """The arrivals of one answer, in columns: ten to twenty bytes a token, of which tuples need two hundred.

    A column holds native 64-bit whole numbers, UNKNOWN for None, or one byte a flag; it is empty where no arrival has
    a value. Equal to a tuple of the same arrivals. ValueError for numbers of more than 64 bits and for other types.
    """

    __slots__ = ("at_ns", "drafted", "token_ids", "tokens")

    def __init__(self, rows: Iterable[Sequence[Any]] = ()) -> None:
        try:
            columns = list(zip(*rows, strict=True))
            at, tokens, drafted, ids = columns + [()] * (4 - len(columns))
            self.at_ns = array("q", at).tobytes()
            self.tokens = _shared(_whole(tokens))
            self.drafted = _flags(drafted)
            self.token_ids = _shared(_whole(ids))
        except (TypeError, OverflowError) as error:
            raise ValueError(f"not arrivals: {error}") from error

    def times(self) -> "memoryview[int]":
        """Return when the pieces arrived, in monotonic nanoseconds."""
        return memoryview(self.at_ns).cast("q")

    def __len__(self) -> int:
        """Return the number of arrivals."""
        return len(self.at_ns) // 8

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the arrivals one by one; columns are faster."""
        nothing = [None] * len(self)
        tokens, ids = _known(self.tokens) or nothing, _known(self.token_ids) or nothing
        drafted = [_FLAGS[flag] for flag in self.drafted] or nothing
        return map(Arrival, _numbers(self.at_ns), tokens, drafted, ids)

    @overload
    def __getitem__(self, at: int) -> Arrival: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Arrival, ...]: ...
    def __getitem__(self, at: int | slice) -> Arrival | tuple[Arrival, ...]:
        """Return one arrival, or a tuple of some."""
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        """Compare with another sequence of arrivals."""
        if isinstance(other, Arrivals):
            return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        """Return the hash of the tuple of the same arrivals."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show them as a tuple."""
        return repr(tuple(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """Read and write them as JSON lists."""
        from pydantic_core import core_schema  # noqa: PLC0415  programs of other environments import this module

        as_lists = core_schema.plain_serializer_function_ser_schema(tuple)
        return core_schema.no_info_plain_validator_function(_arrivals, serialization=as_lists)


def _arrivals(value: object) -> Arrivals:
    if isinstance(value, Arrivals):
        return value
    if not isinstance(value, list | tuple):
        raise ValueError("arrivals are not a list")
    return Arrivals(value)


def _is_known(value: object) -> bool:
    return value is not None


def _flags(values: Sequence[bool | None]) -> bytes:
    """Return a column of flags, by their place in _FLAGS; empty where all are None."""
    if None not in values:
        column = bytes(values)  # type: ignore[arg-type]  # mypy does not see that None is not in it
        if column.strip(b"\0\1"):
            raise ValueError("a flag is neither true nor false")
        return column
    return bytes([_FLAGS.index(value) for value in values]) if any(map(_is_known, values)) else b""


def _whole(values: Sequence[int | None]) -> bytes:
    """Return a column of whole numbers; empty where all are None."""
    try:
        return array("q", values).tobytes()  # type: ignore[type-var]  # None raises TypeError
    except TypeError:
        if not any(map(_is_known, values)):
            return b""
        return array("q", [UNKNOWN if value is None else value for value in values]).tobytes()


def _numbers(column: bytes) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(column)
    return numbers


def _known(column: bytes) -> list[int | None]:
    return [None if number == UNKNOWN else number for number in _numbers(column)]


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


_NO_CLAIMS = Claims()

TIMEOUT, NO_CONNECTION = "timeout", "no connection"
"""The kinds of fault after which the system is started again: it may hang, or is not there any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request. All times are monotonic nanoseconds of this machine."""

    sent_ns: int
    ended_ns: int
    arrivals: Annotated[Sequence[Arrival], Arrivals] = ()
    """Kept as Arrivals, whatever sequence they are given as."""
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
    claims: Claims = _NO_CLAIMS
    memory_active: int | None = None
    """Bytes the allocator held at the end of the answer; None where it does not report them."""
    memory_peak: int | None = None
    fault: str | None = None
    """An error of the system, as data: its kind (`timeout`, `cut off`, `worker died` ...), a colon and the details."""

    def __post_init__(self) -> None:
        """Keep the arrivals in columns, and equal texts once."""
        object.__setattr__(self, "text", _shared(self.text))
        if self.claims == _NO_CLAIMS:
            object.__setattr__(self, "claims", _NO_CLAIMS)
        if not isinstance(self.arrivals, Arrivals):
            object.__setattr__(self, "arrivals", Arrivals(self.arrivals))

    @property
    def columns(self) -> Arrivals:
        """Return the arrivals, typed as what they are."""
        return self.arrivals  # type: ignore[return-value]  # see __post_init__


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
    SHARED = "shared"
    """In that pass: requested before and after another user's conversation that begins with the same prompt."""
    SWITCHED = "switched"
    """In that pass: requested before and after a request to another model of the same server."""
    OTHER_USER = "other_user"
    """In that pass: that conversation of another user."""
    OTHER_MODEL = "other_model"
    """In that pass: that request to another model."""
    LOADED = "loaded"
    """The first request after a start, in the warm-up pass after the soak."""
    IDLE = "idle"
    """The first request after a pause, in that pass."""
    FOLLOWING = "following"
    """A request right after another one, in that pass: what a warmed request is."""
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


class Parting(NamedTuple):
    """Where the target's greedy token is another than the one it was forced to read."""

    position: int
    target_id: int
    gap: float | None
    """The target's best logit less that of the forced token; None: unknown."""


@dataclass(frozen=True, slots=True)
class Forced:
    """One pass of the target over given tokens (teacher forcing): where plain decoding would write another one."""

    workload: str
    canary: str
    tokens: tuple[int, ...]
    parted: tuple[Parting, ...] = ()
    ended: bool = False
    """Plain decoding that wrote these tokens would end after the last one, and not before."""
    altered: int | None = None
    """Of a control: the position of a token that was replaced, so that the target has to part from it."""
    fault: str | None = None
    """Why nothing is known."""
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


RECORDED_ELSEWHERE = frozenset({"answer", "sample", "tie", "forced"})
"""Kinds of events that have record files of their own, so events.jsonl does not hold them."""

Kind = TypeVar("Kind", Generation, HostSample, Event, Tie, Forced)


MISSING = "missing"
"""The trouble of a record file that is not there."""


@dataclass(frozen=True, slots=True)
class StoredRecords(Generic[Kind]):
    """The content of a record file; `trouble` is what is wrong with the file, None where nothing is."""

    records: Sequence[Kind] = ()
    trouble: str | None = None
    whole_bytes: int = 0
    """How much of the file is whole records: a resumed run appends there."""
    damaged: bool = False
    """The trouble is not what a killed run leaves, which is a file that ends early."""
