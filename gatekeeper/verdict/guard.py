"""A guard's judgement: one bound of a policy against what was lately seen, by the statistics of the gate.

A bound is *crossed* (FAIL) when the whole interval lies beyond it, *kept* (PASS) when the whole interval keeps it. What
lies between is undecided: the certificate stands while evidence flows, and it is not enough to come back on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gatekeeper.terms.canary import Canary
from gatekeeper.terms.outcome import Check, Outcome
from gatekeeper.terms.policy import Guard, Policy, Route
from gatekeeper.terms.records import Generation, HostSample, Setting


@dataclass(frozen=True, slots=True)
class Tally:
    """How a server's own counters moved between two looks, over all that it answered."""

    at_ns: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was lately seen of one workload: no more than what may still be judged, the oldest first."""

    now_ns: int
    """Monotonic, as every instant here."""
    since_ns: int
    """When the collecting began: the last change of the setting, the start, or the end of a sleep."""
    answers: tuple[Generation, ...] = ()
    """Of both arms; arm `candidate` with the setting they were asked with, a plain twin with the pair of its mate."""
    samples: tuple[HostSample, ...] = ()
    tallies: tuple[Tally, ...] = ()
    """Of the whole server: they speak for the route only through the lowest acceptance floor of all routes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a guard is judged, beside its bound."""

    policy: Policy
    canaries: Mapping[str, Mapping[str, Canary]]
    """By workload and id."""
    greedy: bool
    host_interval: float
    """Seconds between two host samples."""
    confidence: float = 0.95
    """Of a bound that is kept: what takes a route up again."""
    interval: float | None = None
    """Seconds from look to look where it is not the policy's."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One guard at one look."""

    guard: Guard
    workload: str
    check: Check
    """PASS: kept. FAIL: crossed. UNPROVEN: undecided, too little yet, missing, or asleep."""
    fresh_ns: int | None
    """When the newest evidence came that it may rest on; None: there is none to rest on."""
    asleep: bool = False
    """Of speculation, which is off and not tried: it says nothing either way."""

    @property
    def outcome(self) -> Outcome:
        """Return the check's outcome."""
        return self.check.outcome


def judge(guard: Guard, route: Route, seen: Seen, terms: Terms, knobs: Setting) -> Judgement:
    """Judge *guard* for *route* by the answers that were asked with *knobs*: those in force, or those on trial.

    With plain *knobs* a guard of speculation is asleep; errors, the canaries' pass rate and the host are judged.
    """
    raise NotImplementedError


def judgements(workload: str, seen: Seen, terms: Terms, knobs: Setting) -> tuple[Judgement, ...]:
    """Judge every guard of *workload*."""
    route = terms.policy.route_of(workload)
    return tuple(judge(guard, route, seen, terms, knobs) for guard in terms.policy.guards_of(workload))


def look_error(terms: Terms, workload: str) -> float:
    """Return the error each look of each guard may spend, so that a whole life of looks wrongly steps down seldom."""
    raise NotImplementedError
