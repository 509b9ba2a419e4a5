"""Results of judging a run: outcomes, estimates, checks and the verdict."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal

from gatekeeper.core.errors import ExitCode

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


@dataclass(frozen=True, slots=True)
class StillChanging(Missing):
    """No estimate, because the value still changed at the end: more time shows where it settles."""

    fell: bool = False


def figures(name: str, estimate: Estimate | Missing) -> dict[str, Any]:
    """Return an estimate as verdict.json writes it, its centre under *name*; of a missing one, the reason."""
    if isinstance(estimate, Missing):
        return {name: None, "lo": None, "hi": None, "n": estimate.n, "because": estimate.because}
    near = estimate.rounded()
    return {name: near.center, "lo": near.lo, "hi": near.hi, "n": near.n}


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
    population: Mapping[str, Any] | None = None
    """Beside an interval for these canaries: the one for prompts like them, for information."""
    passed_with: str | None = None
    """What the system needs in operation for this check to pass: `warm-up`; None where it needs nothing."""
    against: str | None = None
    """`certified`: the bound is on this run over the certified run; None: on this run alone."""
    settles: bool = False
    """What was measured still changed at the end of the soak; no part of the document."""

    def document(self) -> dict[str, Any]:
        """Return the check as verdict.json writes it."""
        about = {"scope": self.scope} if self.scope is not None else {}
        beside = {"population": dict(self.population)} if self.population is not None else {}
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
class AbandonedStep:
    """A setting that was soaked, and given up for the next step of the fallback ladder."""

    soak: str
    setting: dict[str, Any]
    outcome: str
    """failed | unproven"""
    checks: tuple[Check, ...]
    because: str
    host_checks: tuple[Check, ...] = ()
    """Host checks of its soak; only where one of them failed."""
    measured: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the step as verdict.json writes it."""
        return {
            "soak": self.soak,
            "setting": self.setting,
            "outcome": self.outcome,
            "because": self.because,
            "checks": [check.document() for check in self.checks],
            "host_checks": [check.document() for check in self.host_checks],
            "measured": self.measured,
        }


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """The outcome of a workload, and the checks that prove it."""

    name: str
    outcome: str
    """promoted | graded_back | failed | unproven"""
    setting: dict[str, Any]
    """The knobs to deploy; `{"draft": null}` is plain decoding."""
    checks: tuple[Check, ...]
    required: bool
    """Whether the SLO requires speculation: required | optional"""
    because: str
    measured: dict[str, Any] = field(default_factory=dict)
    """Figures a person wants to see beside the checks, whether an objective names them or not."""
    choice: dict[str, Any] = field(default_factory=dict)
    """What the sweep saw and why it chose."""
    steps: tuple[AbandonedStep, ...] = ()
    """The settings that were soaked before this one, in their order."""
    region: dict[str, Any] = field(default_factory=dict)
    """Around the certified point: which values of each axis are inside, outside and open; only where the SLO names a
    region, and the workload is promoted."""

    def document(self) -> dict[str, Any]:
        """Return the workload as verdict.json writes it."""
        around = {"region": self.region} if self.region else {}
        return {
            "name": self.name,
            "outcome": self.outcome,
            "setting": self.setting,
            "speculation": "required" if self.required else "optional",
            "because": self.because,
            "checks": [check.document() for check in self.checks],
            "measured": self.measured,
            "choice": self.choice,
            "steps": [step.document() for step in self.steps],
            **around,
        }


@dataclass(frozen=True, slots=True)
class Transition:
    """A step down the fallback ladder, with its time and reason."""

    at: str
    workload: str
    before: dict[str, Any]
    after: dict[str, Any]
    because: str

    def document(self) -> dict[str, Any]:
        """Return the transition as verdict.json writes it."""
        return {
            "at": self.at,
            "workload": self.workload,
            "from": self.before,
            "to": self.after,
            "because": self.because,
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

    def document(self) -> dict[str, Any]:
        """Return the finding as verdict.json writes it."""
        return {"kind": self.kind, "about": self.about, "detail": self.detail, "advice": self.advice}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion of a run."""

    slo: str
    """The name in the SLO file."""
    grade: str
    """certification | demo: a soak shorter than 600 s"""
    manifest_sha256: str
    workloads: tuple[WorkloadVerdict, ...]
    """One verdict a workload."""
    host_checks: tuple[Check, ...] = ()
    """Objectives on the machine."""
    findings: tuple[Finding, ...] = ()
    transitions: tuple[Transition, ...] = ()
    """Every step down the fallback ladder."""
    incomplete: str | None = None
    """Why the records do not suffice, if they do not; then the exit code is never 0."""
    routing: dict[str, Any] = field(default_factory=dict)
    """What one route per workload gains over one setting for all."""

    @property
    def outcome(self) -> str:
        """Fold the workloads and the host into the outcome of the run: promoted, graded_back, failed or unproven."""
        outcomes = [workload.outcome for workload in self.workloads]
        host = worst(check.outcome for check in self.host_checks) if self.host_checks else Outcome.PASS
        if "failed" in outcomes or host is Outcome.FAIL:
            return "failed"
        if any(workload.required and workload.outcome == "graded_back" for workload in self.workloads):
            return "graded_back"
        if not outcomes or "unproven" in outcomes or host is Outcome.UNPROVEN or self.incomplete:
            return "unproven"
        return "promoted"

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code that belongs to the outcome."""
        match self.outcome:
            case "promoted":
                return ExitCode.OK
            case "failed" | "graded_back":
                return ExitCode.OBJECTIVE_FAILED
        return ExitCode.UNPROVEN

    def document(self) -> dict[str, Any]:
        """Return the content of verdict.json."""
        document = {
            "schema": 1,
            "slo": self.slo,
            "grade": self.grade,
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "manifest_sha256": self.manifest_sha256,
            "workloads": [workload.document() for workload in self.workloads],
            "host_checks": [check.document() for check in self.host_checks],
            "findings": [finding.document() for finding in self.findings],
            "transitions": [transition.document() for transition in self.transitions],
        } | ({"routing": self.routing} if self.routing else {})
        return document | ({"incomplete": self.incomplete} if self.incomplete else {})
