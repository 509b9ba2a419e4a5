"""What fleet.json says of one cell: the SLO and the host, how its run ended, and what its verdict says."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.policy import Policy
from gatekeeper.core.policy import parse as parse_policy
from gatekeeper.core.system.inputs import load_manifest
from gatekeeper.core.verdict import Estimate
from gatekeeper.fleet.cell_task import Done
from gatekeeper.fleet.cells import Cell

LIMITS = ("warm_up", "warm_up_after", "longest_prompt", "tokens_per_byte", "max_concurrency")
"""What a route's policy asks of whoever serves, besides its setting."""


@dataclass(frozen=True, slots=True)
class CellWorkload:
    """One workload of a cell, as its verdict and its policy have it."""

    outcome: str
    setting: Mapping[str, Any]
    ratio: Mapping[str, Any] | None
    """Over plain decoding, as verdict.json writes it; None: not measured."""
    confidence: float
    required: bool = False
    because: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def speed_up(self) -> Estimate | None:
        """Return the ratio with its bounds; None where it was not measured, or has no log."""
        ratio = self.ratio
        if ratio is None or ratio.get("center") is None or not 0 < ratio["lo"] <= ratio["hi"]:
            return None
        return Estimate(ratio["center"], ratio["lo"], ratio["hi"], ratio["n"], confidence=self.confidence)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "outcome": self.outcome,
            "setting": self.setting,
            "required": self.required,
            "because": self.because,
            "ratio": self.ratio,
            "confidence": self.confidence,
            "limits": self.limits,
        }


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """What the verdict, the manifest and the policy of a cell's run say."""

    grade: str
    expires: str | None
    host_facts: Mapping[str, Any]
    workloads: Mapping[str, CellWorkload]

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self) | {"workloads": {name: workload.document() for name, workload in self.workloads.items()}}


class CellState(StrEnum):
    """What a cell that is run does while its fleet runs."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRY = "retry"
    """It failed for a reason that may pass, and is run again."""
    DONE = "done"

    @property
    def is_under_way(self) -> bool:
        """Return whether its host works on it, or is about to once more."""
        return self in {CellState.RUNNING, CellState.RETRY}

    def words(self, detail: Mapping[str, Any]) -> str:
        """Return it as the live table shows it, with the *detail* that was reported."""
        if self is CellState.RETRY:
            return f"retry {detail['tries']}"
        if self is CellState.DONE:
            return f"{(detail['outcome'] or 'no verdict').replace('_', ' ')} (exit code {detail['exit_code']})"
        return self


@dataclass(frozen=True, slots=True)
class FleetCell:
    """One cell of a fleet, and how it ended."""

    cell: Cell
    done: Done | None = None
    """None: it has not ended, or is not run."""
    verdict: CellVerdict | None = None

    @property
    def name(self) -> str:
        """Return the cell's name."""
        return self.cell.name

    @property
    def is_demo(self) -> bool:
        """Return whether its soak was too short for a certificate."""
        return self.verdict is not None and self.verdict.grade == "demo"

    @property
    def state(self) -> Literal["excluded", "open", "done"]:
        """Return whether it is run, and has ended."""
        return "excluded" if self.cell.excluded else "open" if self.done is None else "done"

    @property
    def workloads(self) -> Mapping[str, CellWorkload]:
        """Return its workloads; none without a verdict."""
        return {} if self.verdict is None else self.verdict.workloads

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        document = self.cell.document() | {"name": self.name, "state": self.state}
        if self.done is not None:
            document |= self.done.document()
            del document["cell"]
        return document if self.verdict is None else document | self.verdict.document()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "FleetCell":
        """Return the cell of a document."""
        cell = Cell.of(document)
        if document["state"] != "done":
            return cls(cell)
        fields = {key: document[key] for key in Done.__dataclass_fields__ if key in document}
        verdict = None
        if "workloads" in document:
            workloads = {name: CellWorkload(**workload) for name, workload in document["workloads"].items()}
            verdict = CellVerdict(document["grade"], document["expires"], document["host_facts"], workloads)
        return cls(cell, Done(**fields | {"cell": cell.name}), verdict)


def ended_cell(cell: Cell, done: Done) -> FleetCell:
    """Return a cell that ended, with what its run says; a run that cannot be read says nothing."""
    if done.run:
        with suppress(OSError, ParseError, InputError, NoProofError):
            return FleetCell(cell, done, _verdict_of(Path(done.run), cell.confidence))
    return FleetCell(cell, done)


def _verdict_of(run: Path, confidence: float) -> CellVerdict:
    verdict = json_object((run / "verdict.json").read_bytes())
    manifest = load_manifest((run / "manifest.json").read_bytes())
    policy = _policy_of(run)
    return CellVerdict(
        verdict["grade"],
        policy.expires.isoformat() if policy is not None else None,
        {key: manifest.host.get(key) for key in ("chip", "memory_bytes", "os", "os_build", "power_source")},
        {
            workload["name"]: CellWorkload(
                outcome=workload["outcome"],
                setting=workload["setting"],
                ratio=next((ratio for name in SPEED_RATIOS if (ratio := workload["measured"].get(name))), None),
                confidence=confidence,
                required=workload["speculation"] == "required",
                because=workload["because"],
                limits=_limits(policy, workload["name"]),
            )
            for workload in verdict["workloads"]
        },
    )


def _policy_of(run: Path) -> Policy | None:
    """Return the policy of a run; None where its verdict allowed none."""
    try:
        return parse_policy((run / "policy.toml").read_text("utf-8"), "policy.toml")
    except (OSError, UnicodeDecodeError, InputError):
        return None


def _limits(policy: Policy | None, workload: str) -> dict[str, Any]:
    route = policy.route_of(workload).model_dump(include=set(LIMITS)) if policy is not None else {}
    return {key: route[key] for key in LIMITS if route.get(key)}
