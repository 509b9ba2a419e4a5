"""What a bisection found out: each tested version, and the first bad one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.verdict import Estimate, Missing, figures
from gatekeeper.regression.symptom import Symptom
from gatekeeper.regression.version_comparison import Word


@dataclass(frozen=True, slots=True)
class Step:
    """One tested version."""

    name: str
    value: Estimate | Missing
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what answered, as the manifest names it."""
    remark: str = ""
    """Of a version that was measured: what to know of its value."""
    seconds: float | None = None
    """None: it could not be started."""
    values: Values = ()
    """Of its answers, each with its canary, where versions are compared."""
    rounds: int = 1
    """How often each canary was answered."""
    word: Word | None = None
    """What the comparison with both ends says."""
    change: Estimate | Missing | None = None
    """Of this version over the first one."""

    @property
    def because(self) -> str:
        """Return why there is no value, or the remark on it."""
        return self.value.because if isinstance(self.value, Missing) else self.remark

    def after(self, before: "Step") -> "Step":
        """Return the step with what its earlier rounds showed; one that failed meanwhile shows nothing."""
        if isinstance(self.value, Missing):
            return replace(self, versions=before.versions)
        values = (*before.values, *self.values)
        seconds = round((before.seconds or 0.0) + (self.seconds or 0.0), 1)
        return replace(before, values=values, rounds=self.rounds, seconds=seconds)

    def answer(self, symptom: Symptom) -> Word | None:
        """Return good, bad or unclear; None of a version that was compared with nothing."""
        return self.word if self.word is not None else symptom.judge(self.value)

    def state(self, symptom: Symptom) -> dict[str, Any]:
        """Return it as an interrupted search keeps it: with its values."""
        return self.document(symptom) | {"values": list(self.values), "rounds": self.rounds}

    def document(self, symptom: Symptom) -> dict[str, Any]:
        """Return it for JSON, with its answer."""
        return {
            "name": self.name,
            "answer": self.answer(symptom),
            **figures("center", self.value),
            **({} if self.change is None else {"change": figures("center", self.change), "rounds": self.rounds}),
            **({} if self.seconds is None else {"seconds": self.seconds}),
            "because": self.because,
            "versions": dict(self.versions),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Step":
        """Return the step of an interrupted search."""
        value: Estimate | Missing = Missing(document["because"], document["n"])
        if document["center"] is not None:
            value = Estimate.of(document)
        values = [(canary, number) for canary, number in document["values"]]
        return cls(
            document["name"], value, document["versions"], document["because"], document.get("seconds"),
            values=values, rounds=document["rounds"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptEnvironments:
    """The folder of all environments, and what it takes."""

    folder: str
    bytes: int


@dataclass(frozen=True, slots=True)
class BisectResult:
    """What `gatekeeper bisect` found out."""

    slo: str
    workload: str
    symptom: Symptom
    versions: int
    steps: tuple[Step, ...]
    run: str
    last_good: str | None = None
    first_bad: str | None = None
    """None: not known."""
    unclear: tuple[str, ...] = ()
    also_differs: tuple[str, ...] = ()
    """What changed between the last good and the first bad version beside what was searched."""
    because: str = ""
    """Why the first bad version is not known."""
    hint: str = ""
    reproduce: str | None = None
    """The command that tests the two versions on both sides of the change again."""
    environments: KeptEnvironments | None = None

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of the command."""
        return ExitCode.UNPROVEN if self.first_bad is None else ExitCode.OK

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "schema": 1,
            "slo": self.slo,
            "workload": self.workload,
            "metric": self.symptom.metric,
            "bound": self.symptom.bound,
            "threshold": self.symptom.threshold,
            "versions": self.versions,
            "steps": [step.document(self.symptom) for step in self.steps],
            "last_good": self.last_good,
            "first_bad": self.first_bad,
            "unclear": list(self.unclear),
            "also_differs": list(self.also_differs),
            "because": self.because,
            "hint": self.hint,
            "reproduce": self.reproduce,
            "environments": None if self.environments is None else asdict(self.environments),
            "run": self.run,
            "exit_code": int(self.exit_code),
        }
