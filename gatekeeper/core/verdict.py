"""What a verdict is made of: outcomes, estimates, checks and findings."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal

AGAINST_CERTIFIED = "against the certified run: "
"""In a reason: the bound is on this run over the certified run."""
UNSEEN = "cannot be seen"
"""In a reason: the timing of bursts does not show rounds, however many answers there are."""


class Outcome(IntEnum):
    """Outcome of a check, ordered best to worst, so the worst of many is simply their maximum."""

    PASS = 0
    UNPROVEN = 1
    FAIL = 2

    @property
    def word(self) -> str:
        """Return the word written to verdict.json."""
        return self.name.lower()


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of several outcomes; unproven if there are none."""
    return max(outcomes, default=Outcome.UNPROVEN)


def rounded(value: float) -> float:
    """Round to six significant digits, so that a bound compares and prints alike on every machine."""
    return float(f"{value:.6g}") if math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with one-sided bounds; `notes` are shown with it."""

    center: float
    lo: float
    hi: float
    n: int
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    """Of each bound alone; None for a value that was counted."""
    scope: Literal["frozen", "population"] | None = None
    """What the bounds are about: these canaries, or prompts like them; None for a value that was counted."""
    population: "Estimate | None" = None
    """Beside bounds for these canaries: those for prompts like them, for information."""

    @classmethod
    def of(cls, document: Mapping[str, Any], name: str = "center") -> "Estimate":
        """Return the estimate that `figures` wrote into a document; a history's speeds have no number of samples."""
        return cls(document[name], document["lo"], document["hi"], document.get("n", 0))

    def rounded(self) -> "Estimate":
        """Return the estimate at the precision it is compared and written with."""
        population = self.population.rounded() if self.population is not None else None
        return replace(
            self, center=rounded(self.center), lo=rounded(self.lo), hi=rounded(self.hi), population=population
        )


def fact(value: float, n: int, *notes: str) -> Estimate:
    """Return a value that was counted, not estimated: lo = center = hi."""
    return Estimate(value, value, value, n, notes)


@dataclass(frozen=True, slots=True)
class Missing:
    """No estimate, and the reason."""

    because: str
    n: int = 0

    def document(self) -> dict[str, object]:
        """Return the reason, as verdict.json writes it in place of what is missing."""
        return {"because": self.because}


@dataclass(frozen=True, slots=True)
class StillChanging(Missing):
    """No estimate, because the value still changed at the end: more time shows where it settles."""

    fell: bool = False


def figures(name: str, estimate: Estimate | Missing) -> dict[str, object]:
    """Return an estimate as verdict.json writes it, its centre under *name*; of a missing one, the reason."""
    if isinstance(estimate, Missing):
        return {name: None, "lo": None, "hi": None, "n": estimate.n, "because": estimate.because}
    near = estimate.rounded()
    return {name: near.center, "lo": near.lo, "hi": near.hi, "n": near.n}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Both ends of an interval, None where one is not finite."""

    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One objective against what was measured."""

    metric: str
    bound: str
    """at_least | at_most"""
    threshold: float
    outcome: Outcome
    """pass: the whole interval keeps the bound | fail: the whole interval breaks it | unproven"""
    unit: str
    """Of threshold, center, lo and hi: always a base unit."""
    because: str
    """The reason in words; may change between versions."""
    why: str
    """As the SLO says."""
    center: float | None = None
    """The estimate, six significant digits; null: there is none."""
    lo: float | None = None
    """The lower end of its interval, one-sided at the SLO's confidence."""
    hi: float | None = None
    n: int = 0
    """Samples that the estimate rests on."""
    scope: str | None = None
    """What the interval is about: these canaries (`frozen`) or prompts like them (`population`); None if counted."""
    population: Bounds | None = None
    """Beside an interval for these canaries: the one for prompts like them, for information."""
    passed_with: str | None = None
    """What the system needs in operation for this check to pass: `warm-up`; None where it needs nothing."""
    against: str | None = None
    """`certified`: the bound is on this run over the certified run; None: on this run alone."""
    settles: bool = False
    """What was measured still changed at the end of the soak; no part of the document."""

    @property
    def bare_reason(self) -> str:
        """Return the reason for a reader who sees beside it what the bound is relative to."""
        return self.because.removeprefix(AGAINST_CERTIFIED)

    def document(self) -> dict[str, object]:
        """Return the check as verdict.json writes it."""
        about = {"scope": self.scope} if self.scope is not None else {}
        beside = {"population": asdict(self.population)} if self.population is not None else {}
        needs = {"passed_with": self.passed_with} if self.passed_with is not None else {}
        needs |= {"against": self.against} if self.against is not None else {}
        return {
            "metric": self.metric,
            "bound": self.bound,
            "threshold": self.threshold,
            "outcome": self.outcome.word,
            "center": self.center,
            "lo": self.lo,
            "hi": self.hi,
            "n": self.n,
            "unit": self.unit,
            "because": self.because,
            "why": self.why,
            **about,
            **beside,
            **needs,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem a reader must know: what was seen, where, and what to do."""

    kind: str
    about: str
    detail: str
    advice: str = ""
    voids: frozenset[str] = field(default=frozenset(), compare=False)
    """Metrics that are unproven because of it."""

    def document(self) -> dict[str, object]:
        """Return the finding as verdict.json writes it."""
        return {"kind": self.kind, "about": self.about, "detail": self.detail, "advice": self.advice}
