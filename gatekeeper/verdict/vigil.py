"""The vigil over one route: a state, folded over its changes, that goes down on evidence and up on more of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gatekeeper.terms.policy import Route, Watch
from gatekeeper.terms.records import Setting
from gatekeeper.verdict.guard import Judgement

Kind = Literal["down", "off", "try", "settled", "barred"]
"""down: a guard was crossed, one rung. off: evidence went missing, plain decoding. try: a rung up, on probation.
settled: the probation is over; the rung is the same. barred: plain decoding until another certificate."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed for one route: what `watch.jsonl` keeps, and all that its state is made of."""

    at: str
    """Wall time."""
    workload: str
    kind: Kind
    before: int
    """The rung before; 0 is the certified setting, the last rung is plain decoding."""
    after: int
    because: str
    evidence: tuple[dict[str, Any], ...] = ()
    """The checks it rests on, as verdict.json writes checks."""

    def document(self) -> dict[str, Any]:
        """Return the change as watch.jsonl writes it."""
        raise NotImplementedError


def change_of(document: Mapping[str, Any]) -> Change:
    """Read a change back; raise ValueError where it is none."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a route stands: all that outlives a restart."""

    workload: str
    rung: int = 0
    relapses: int = 0
    """How often in a row a rung up did not hold: each doubles the quiet time."""
    trying: bool = False
    """On probation: the rung was gone up to and has not held for its quiet time."""
    barred: str = ""
    """Why nothing but another certificate turns it on again."""
    because: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A standing and the timers that run on it, in monotonic nanoseconds of this process."""

    standing: Standing
    since_ns: int
    """When this rung was entered, or the evidence thrown away."""
    quiet_ns: int
    """Since when no guard was crossed and none lacked evidence."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """By guard: since when each look saw it crossed."""
    fresh: Mapping[str, int] = field(default_factory=dict)
    """By guard: the newest evidence."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a route's vigil goes by."""

    rungs: tuple[Setting, ...]
    """As Route.rungs gives them."""
    watch: Watch
    switched: bool
    """The server takes the setting with each request, so that a rung up can be tried by a few answers."""

    @property
    def plain(self) -> int:
        """Return the rung of plain decoding, the last."""
        return len(self.rungs) - 1


def rules(route: Route, watch: Watch, *, switched: bool) -> Rules:
    """Return the rules of *route*."""
    return Rules(route.rungs, watch, switched)


def fold(workload: str, changes: Iterable[Change], rules: Rules) -> Standing:
    """Return where a route stands after *changes*, oldest first; those of other workloads are passed over."""
    raise NotImplementedError


def begin(standing: Standing, now_ns: int) -> State:
    """Return the state at the start of a watch: every timer begins now, nothing was seen."""
    raise NotImplementedError


def woken(state: State, now_ns: int) -> State:
    """Return the state after a sleep or a clock that jumped: what was seen before counts no more."""
    raise NotImplementedError


def step(
    state: State, seen: Sequence[Judgement], rules: Rules, *, now_ns: int, at: str
) -> tuple[State, tuple[Change, ...]]:
    """Return the state after one look, and what changed; at most one change of the rung.

    After a change of the rung the caller throws the route's answers away: they are of another setting.
    """
    raise NotImplementedError


def bar(state: State, rules: Rules, why: str, *, now_ns: int, at: str) -> tuple[State, tuple[Change, ...]]:
    """Turn a route off until another certificate: the policy is over, or another model answers."""
    raise NotImplementedError


def in_force(state: State, rules: Rules) -> Setting:
    """Return the setting in force."""
    raise NotImplementedError


def to_judge(state: State, rules: Rules) -> Setting:
    """Return the setting whose answers tell: the one in force, or while plain the one that a way up would try.

    Where the server can not be switched per request, or the route is barred, it is the one in force.
    """
    raise NotImplementedError
