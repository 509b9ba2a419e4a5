"""The records of answers: what was requested in which role, at which setting, what came back, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from gatekeeper.core.records.arrivals import Arrival, Arrivals, share_equal

Setting = tuple[tuple[str, Any], ...]
"""Sorted (knob, value) pairs; `draft` is None for plain decoding."""


Knobs = Mapping[str, Any]
"""The values of knobs, by the knob's name, as documents write a setting."""


def setting(**knobs: Any) -> Setting:
    """Return the knobs as a sorted, hashable setting."""
    return tuple(sorted(knobs.items()))


@dataclass(frozen=True, slots=True)
class Rounds:
    """Counters of one speculating answer; acceptance rate is accepted / drafted."""

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
    proposals: str = ""
    """The drafted tokens by round, rejected ones included: `12 7 9;44 3` are two rounds; empty: not kept."""
    chosen: str = ""
    """What the target chose in each verify pass, in the same form."""

    def __post_init__(self) -> None:
        """Keep equal texts once."""
        object.__setattr__(self, "proposals", share_equal(self.proposals))
        object.__setattr__(self, "chosen", share_equal(self.chosen))


@dataclass(frozen=True, slots=True)
class Claims:
    """What a server reports about itself: recorded next to our own counts, never mixed with them."""

    drafted: int | None = None
    """Tokens the draft proposed."""
    accepted: int | None = None
    """Proposed tokens that were kept."""
    rounds: int | None = None
    """Verify passes of the target."""
    drafting: bool | None = None
    """Whether it decoded with a draft, where its server says so without counts."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, those from the cache included."""
    cached_tokens: int | None = None
    """Tokens of the prompt that the prompt cache had."""
    completion_tokens: int | None = None
    """Tokens of the answer by its usage, reasoning that it does not show included."""
    prompt_seconds: float | None = None
    """How long it read the prompt."""
    decode_seconds: float | None = None
    """How long it decoded."""
    decode_tokens: int | None = None
    """Tokens of the answer by its own timings, beside those of the usage."""
    tried_by_position: tuple[int, ...] = ()
    """How often position i of a round was reached and verified."""
    accepted_by_position: tuple[int, ...] = ()
    """How often position i of a round was accepted."""
    model: str | None = None
    """The model that answers, by the server's name for it."""


_NO_CLAIMS = Claims()


EMPTY = "empty answer"
"""The kind of fault of an answer without content."""
TIMEOUT, NO_CONNECTION = "timeout", "no connection"
"""The kinds of fault after which the system is started again: it may hang, or is not there any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request. All times are monotonic nanoseconds of this machine."""

    sent_ns: int
    """When the request was sent."""
    ended_ns: int
    """When the answer had ended."""
    arrivals: Annotated[Sequence[Arrival], Arrivals] = ()
    """When each piece came, in columns: see *Arrivals*."""
    text: str = ""
    """What is graded."""
    reasoning: str = ""
    """Reasoning, where a server separates it; its arrivals count, and it is not graded."""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """As the OpenAI API writes them."""
    finish: str | None = None
    """stop | length | tool_calls; None: it never finished."""
    prompt_tokens: int | None = None
    """Tokens of the prompt."""
    output_tokens: int | None = None
    """Tokens of the answer, reasoning included, but for reasoning that the server counts and does not show."""
    rounds: Rounds | None = None
    """Counted by us; None: only the server could, or nothing was drafted."""
    claims: Claims = _NO_CLAIMS
    """What the server reports about itself."""
    memory_active: int | None = None
    """What the allocator held at the end of the answer."""
    memory_peak: int | None = None
    """The most that it held until then."""
    fault: str | None = None
    """What failed: a kind (`timeout`, `cut off`, `worker died` ...), a colon and the details."""
    read_delay_ns: int | None = None
    """Longest time from a piece's arrival in the kernel until it was read. None: times are not the kernel's."""

    def __post_init__(self) -> None:
        """Keep the arrivals in columns, and equal texts once."""
        object.__setattr__(self, "text", share_equal(self.text))
        if self.claims == _NO_CLAIMS:
            object.__setattr__(self, "claims", _NO_CLAIMS)
        if not isinstance(self.arrivals, Arrivals):
            object.__setattr__(self, "arrivals", Arrivals(self.arrivals))

    @property
    def columns(self) -> Arrivals:
        """Return the arrivals, typed as what they are."""
        return self.arrivals  # type: ignore[return-value]  # see __post_init__

    @property
    def generated_tokens(self) -> int | None:
        """Return the tokens that were decoded for it: those of reasoning that it does not show as well."""
        return self.output_tokens if self.claims.completion_tokens is None else self.claims.completion_tokens

    @property
    def seconds(self) -> float:
        """Return the time from the request to the end of the answer."""
        return (self.ended_ns - self.sent_ns) / 1e9


class Role(StrEnum):
    """Why an answer was requested."""

    WARMUP = "warmup"
    """Not measured: before a block, or after an interrupt."""
    MEASURED = "measured"
    """Counts for the metrics of its arm."""
    BASELINE = "baseline"
    """A baseline request: plain decoding during a soak, paired with a speculative one."""
    BLOCK = "block"
    """A plain answer before, midway or after a soak, where the arms cannot share a process."""
    CLOSING = "closing"
    """A quality canary, requested again after the soak."""
    WARM = "warm"
    """Follow-up `warm_cache`: a turn of a conversation, with the prompt cache on."""
    COLD = "cold"
    """Follow-up `warm_cache`: the same turn, for plain decoding without a cache."""
    LOADED = "loaded"
    """Follow-up `pauses`: the first request after a start."""
    IDLE = "idle"
    """Follow-up `pauses`: the first request after a pause."""
    FOLLOWING = "following"
    """Follow-up `pauses`: a request right after another one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One request and its answer."""

    trial: str
    """`baseline`, `num_draft_tokens-4`, `soak-1` ..."""
    key: str
    """Unique in its record file."""
    workload: str
    """As the SLO file names it."""
    canary: str
    """The id of its prompt."""
    arm: str
    """`plain` or `candidate`."""
    setting: Setting
    """Sorted [knob, value]; `["draft", null]` is plain decoding."""
    role: Role
    """Why it was requested: see *Roles*."""
    repeat: int
    """Repeat in the sweep; in a soak, the unbroken stretch of its segment; of a turn, its place in the conversation."""
    pair: str
    """Answers of both arms with the same pair are compared."""
    concurrency: int
    """Requests in flight at once."""
    answer: Answer
    """See *An answer*."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    at: str = ""
    """Wall time when it ended."""

    def __post_init__(self) -> None:
        """Keep equal settings once: a day has thirty thousand answers at two of them."""
        try:
            object.__setattr__(self, "setting", _first_setting(self.setting, repr(self.setting)))
        except TypeError:  # a list as a knob's value, which no run writes
            return

    @property
    def moment(self) -> tuple[int, int, str, str]:
        """Return what sorts answers by when they were sent: each uninterrupted part of a run has a clock of its own."""
        return self.segment, self.answer.sent_ns, self.canary, self.key


@lru_cache(maxsize=256)
def _first_setting(setting: Setting, _written: str) -> Setting:
    """Return the first of equal settings; what is written tells 1 from 1.0 and True, which are equal."""
    return setting
