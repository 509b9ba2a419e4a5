"""What a pass after a soak is: its records add to the answers of the soak."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.core.records import Generation, Kind, Setting
from gatekeeper.core.slo import Slo

Needs = Mapping[str, Sequence[Any]]
"""By workload, what a pass still has to find out there; workloads without need of it are left out."""


@dataclass(frozen=True, slots=True)
class Soaked:
    """A soak that was recorded, as its passes read it."""

    slo: Slo
    settings: Mapping[str, Setting]
    """By workload."""
    terms: Terms
    answers: Callable[[str], PairedAnswers]
    """The answers of a workload, with what the passes recorded so far."""
    looks: Callable[[str], Sequence[PairedAnswers]]
    """The answers of a workload at each look at the soak."""


@dataclass(frozen=True, slots=True)
class Recorded(Generic[Kind]):
    """What a pass recorded of one workload."""

    records: tuple[Kind, ...] = ()
    trouble: str | None = None
    """The file and what is wrong with it."""

    @property
    def sound(self) -> "tuple[Kind, ...] | str":
        """Return the records, or why they cannot be trusted."""
        return self.records if self.trouble is None else self.trouble


def add_untimed(answers: PairedAnswers, recorded: Recorded[Generation]) -> PairedAnswers:
    """Return the answers with further ones whose words count, and whose times do not."""
    return replace(answers, untimed=(*answers.untimed, *recorded.records))


@dataclass(frozen=True, slots=True)
class Pass(Generic[Kind]):
    """One pass after a soak. Its requests are sent by `send` of `gatekeeper.run.stages.NAME`."""

    name: str
    stem: str
    """Of its record files: `ties` of `ties-1.jsonl`."""
    kind: type[Kind]
    """Of its records."""
    stage: str
    """What progress shows while it runs."""
    title: str
    """What `plan` shows."""
    needs: Callable[[Soaked], Needs]
    add: Callable[[PairedAnswers, Recorded[Kind]], PairedAnswers]
    """Return the answers of a workload with what the pass recorded of it."""
    forecast: Callable[[RequestCosts, Mapping[str, Setting]], Iterable[float]] = lambda *_: ()
    """Return the seconds of each request, by the settings of the workloads; none where nothing can be foreseen."""
    each_part: bool = True
    """It runs after each part of a soak; otherwise once, after the first part."""
    of_all_workloads: bool = False
    """What it recorded of the other workloads is added to a workload's answers as well."""
    conditional: bool = False
    """Its requests are sent only if a check would not pass without them, as its title says."""
    of_plain: bool = False
    """It runs for workloads that decode plainly as well."""
    fresh: bool = False
    """Its requests need a process that has just started."""
    key: str = ""
    """As `plan --json` names it; empty: by its name."""

    def __post_init__(self) -> None:
        """Name it in `plan --json` as it is named here, unless that has another name."""
        object.__setattr__(self, "key", self.key or self.name)

    def file(self, soak: SoakPlan) -> str:
        """Return the name of its record file."""
        return self.file_of(soak.file.removesuffix(".jsonl") if self.each_part else soak.name)

    def file_of(self, soak_file: str) -> str:
        """Return the name of its record file beside a soak's: `soak-1` has `ties-1.jsonl`."""
        return f"{self.stem}-{soak_file.removeprefix('soak-')}.jsonl"
