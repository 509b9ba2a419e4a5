"""The verdict of a run: the outcome of each workload, the checks that prove it, and the exit code."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, SupportsIndex, overload

from pydantic import Field, PlainSerializer, PlainValidator, model_serializer, model_validator

from gatekeeper.analysis.metrics.host.energy import EnergyUse
from gatekeeper.analysis.metrics.prompt_speeds import PromptSpeeds
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.cached_contexts import CachedContext
from gatekeeper.analysis.verdict.routing_gain import Routing
from gatekeeper.core.canary import Canary
from gatekeeper.core.document import IF_ANY, UNWRITTEN, WriteFields, document_of
from gatekeeper.core.errors import did_you_mean
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import Check, Doubt, Estimate, Finding, Missing, Outcome, figures, omit_none, worst
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import Knobs

_COUNTS = ("soak_seconds", "answers", "plain_answers", "longest_prompt", "longest_answer")
"""What stands before the metrics in a document."""


def _is_required(speculation: object) -> bool:
    if speculation not in {"required", "optional"}:
        raise ValueError("must be required or optional")
    return speculation == "required"


_REQUIRED = (
    Field(alias="speculation"),
    PlainSerializer(lambda required: "required" if required else "optional"),
    PlainValidator(_is_required),
)
_CHOICE = (PlainSerializer(lambda choice: document_of(choice) if choice else {}), PlainValidator(lambda _: None))
"""A stored verdict is read without the sweep's choice, which rests on more than is written of it."""

GAP_TAILS = ("itl_p95", "itl_p99")
"""Metrics that are shown of both arms: those of the plain arm as `plain_itl_p95` and `plain_itl_p99`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a soak that a person wants to see beside the checks; an empty one where nothing was soaked."""

    figures: Annotated[Mapping[str, Estimate], UNWRITTEN] = field(default_factory=dict)
    """Estimates by metric, as they are shown: six significant digits."""
    soak_seconds: Annotated[float | None, IF_ANY] = None
    answers: Annotated[int | None, IF_ANY] = None
    plain_answers: Annotated[int | None, IF_ANY] = None
    longest_prompt: Annotated[int | None, IF_ANY] = None
    """The prompt's tokens; None where they are not counted."""
    canaries: Annotated[tuple[Canary, ...], UNWRITTEN] = ()
    """Those with an answer that did not fail: what they asked for is certified. Only policy.toml tells of it."""
    models: Annotated[tuple[str, ...], UNWRITTEN] = ()
    """The names by which the server called its model. Only policy.toml has them."""
    longest_answer: Annotated[int | None, IF_ANY] = None
    acceptance_by_position: Annotated[tuple[float, ...], IF_ANY] = ()
    prompts: Annotated[PromptSpeeds | None, IF_ANY] = None
    """How the speed against plain decoding is spread over prompts."""
    energy: Annotated[EnergyUse | None, IF_ANY] = None
    """What a token of each arm took, where an objective compares them."""
    contexts: Annotated[tuple[CachedContext, ...], IF_ANY] = ()
    """Turns on a warm cache, by the length of their prompts."""
    claimed: Annotated[bool, UNWRITTEN] = False
    """The counts of rounds are the server's claims."""

    def claims(self, metric: str) -> bool:
        """Return whether a metric rests on what the server claims."""
        row = BY_NAME.get(metric)
        return self.claimed and row is not None and row.from_rounds

    def center(self, metric: str) -> float | None:
        """Return the estimate of a metric; None where it was not measured."""
        figure = self.figures.get(metric)
        return figure.center if figure is not None else None

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        written = write(self)
        counts = {name: written.pop(name) for name in _COUNTS if name in written}
        metrics = {
            metric: figures("center", figure)
            | omit_none(**{"scope": figure.scope, "from": "claims" if self.claims(metric) else None})
            for metric, figure in self.figures.items()
        }
        return counts | metrics | written

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        # Beside the fields, each key is a metric.
        if not isinstance(written, dict):
            return written
        names = {part.name for part in fields(cls)}
        metrics = {key: figure for key, figure in written.items() if key not in names}
        claimed = any(isinstance(figure, dict) and figure.get("from") == "claims" for figure in metrics.values())
        return {key: part for key, part in written.items() if key in names} | {"figures": metrics, "claimed": claimed}


NOTHING_MEASURED = Measured()


class WorkloadOutcome(StrEnum):
    """What becomes of a workload, and of a run; verdict.json has the same words."""

    PROMOTED = "promoted"
    """Every check passes with a draft: the policy turns it on."""
    GRADED_BACK = "graded_back"
    """Plain decoding, which meets its objectives."""
    FAILED = "failed"
    """Even the last setting misses an objective."""
    UNPROVEN = "unproven"
    """The evidence does not decide it."""


SETTLED = frozenset({WorkloadOutcome.PROMOTED, WorkloadOutcome.GRADED_BACK})
"""Outcomes for which every objective was proven."""


def outcome_words(outcome: str, workloads: Iterable[str]) -> str:
    """Write the *outcome* of a run for a reader: one that is promoted may keep plain decoding for all *workloads*."""
    words = outcome.replace("_", " ")
    return words if outcome != WorkloadOutcome.PROMOTED or outcome in workloads else f"{words}, keep plain"


@dataclass(frozen=True, slots=True)
class AbandonedStep:
    """A setting that was soaked, and given up for the next step of the fallback ladder."""

    soak: str
    setting: Knobs
    outcome: WorkloadOutcome
    """failed | unproven"""
    because: str
    checks: tuple[Check, ...]
    host_checks: tuple[Check, ...] = ()
    """Host checks of its soak; only where one of them failed."""
    measured: Measured = NOTHING_MEASURED


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """The outcome of a workload, and the checks that prove it."""

    name: str
    outcome: WorkloadOutcome
    setting: Knobs
    """The knobs to deploy; `{"draft": null}` is plain decoding."""
    required: Annotated[bool, *_REQUIRED]
    """Whether the SLO requires speculation: required | optional"""
    because: str
    checks: tuple[Check, ...]
    measured: Measured = NOTHING_MEASURED
    """Figures a person wants to see beside the checks, whether an objective names them or not."""
    choice: Annotated[Choice | None, *_CHOICE] = None
    """What the sweep saw and why it chose."""
    steps: tuple[AbandonedStep, ...] = ()
    """The settings that were soaked before this one, in their order."""


class WorkloadVerdicts(tuple[WorkloadVerdict, ...]):
    """One verdict a workload, in the order of the SLO file; each also by its name."""

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> WorkloadVerdict: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[WorkloadVerdict, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice | str, /) -> WorkloadVerdict | tuple[WorkloadVerdict, ...]:
        """Return the verdict of a workload, by its place or its name; a KeyError says which names there are."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        by_name = {workload.name: workload for workload in self}
        if key not in by_name:
            raise KeyError(f"no workload {key!r}: {did_you_mean(key, by_name)}")
        return by_name[key]


@dataclass(frozen=True, slots=True)
class Transition:
    """A step down the fallback ladder, with its time and reason."""

    at: str
    workload: str
    before: Annotated[Knobs, Field(alias="from")]
    after: Annotated[Knobs, Field(alias="to")]
    because: str


def no_soak_decides(choices: Mapping[str, Choice | None], required: Collection[str]) -> bool:
    """Return whether a soak leaves a run unproven: no workload that must speculate, or none at all, can be compared."""
    doubted = {name for name, choice in choices.items() if choice is not None and choice.doubt is not None}
    return bool(doubted) and set(required or choices) <= doubted


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion of a run."""

    slo: str
    """The name in the SLO file."""
    grade: str
    """certification | demo: a soak shorter than 600 s"""
    manifest_sha256: str
    workloads: tuple[WorkloadVerdict, ...]
    """One verdict a workload, in the order of the SLO file; each also by its name: `workloads["json"]`."""
    host_checks: tuple[Check, ...] = ()
    """Objectives on the machine."""
    findings: tuple[Finding, ...] = ()
    transitions: tuple[Transition, ...] = ()
    """Every step down the fallback ladder."""
    routing: Annotated[Routing | Missing | None, IF_ANY] = None
    """What one route per workload gains over one setting for all."""
    incomplete: Annotated[str | None, IF_ANY] = None
    """Why the records do not suffice, if they do not; then the exit code is never 0."""
    doubts: Annotated[tuple[Doubt, ...], UNWRITTEN] = ()
    """The same, each with what to do about it."""

    def __post_init__(self) -> None:
        """Give the workloads their names."""
        object.__setattr__(self, "workloads", WorkloadVerdicts(self.workloads))

    @property
    def outcome(self) -> WorkloadOutcome:
        """Fold the workloads and the host into the outcome of the run: promoted, graded_back, failed or unproven."""
        outcomes = [workload.outcome for workload in self.workloads]
        host = worst(check.outcome for check in self.host_checks) if self.host_checks else Outcome.PASS
        if WorkloadOutcome.FAILED in outcomes or host is Outcome.FAIL:
            return WorkloadOutcome.FAILED
        if any(workload.required and workload.outcome is WorkloadOutcome.GRADED_BACK for workload in self.workloads):
            return WorkloadOutcome.GRADED_BACK
        if not outcomes or WorkloadOutcome.UNPROVEN in outcomes or host is Outcome.UNPROVEN or self.incomplete:
            return WorkloadOutcome.UNPROVEN
        return WorkloadOutcome.PROMOTED

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code that belongs to the outcome."""
        match self.outcome:
            case WorkloadOutcome.PROMOTED:
                return ExitCode.OK
            case WorkloadOutcome.FAILED | WorkloadOutcome.GRADED_BACK:
                return ExitCode.OBJECTIVE_FAILED
        return ExitCode.UNPROVEN

    @property
    def ended_with_sweep(self) -> bool:
        """Return whether no soak followed, because plain decoding had no one speed where the sweep needed it."""
        choices = {workload.name: workload.choice for workload in self.workloads}
        required = {workload.name for workload in self.workloads if workload.required}
        unmeasured = all(workload.measured == NOTHING_MEASURED for workload in self.workloads)
        return self.incomplete is None and unmeasured and no_soak_decides(choices, required)

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        head = {"schema": 1, "slo": self.slo, "grade": self.grade}
        return head | {"outcome": self.outcome, "exit_code": self.exit_code} | write(self)
