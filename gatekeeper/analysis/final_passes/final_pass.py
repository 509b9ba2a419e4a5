"""What a pass at the end of a run is: once, of all workloads, when no soak is due any more."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.analysis.passes.soak_pass import RunAhead
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadVerdict
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo

Routes = Mapping[str, Setting]
"""The setting of each workload; none is left out: the verdict on all of them is known."""


Judge = Callable[[Case, Verdict, Routes], Verdict]
"""Returns the verdict with what the records of a pass add; the passes before it are judged by then."""


def each_workload(judge: Callable[[Case, WorkloadVerdict, Setting], WorkloadVerdict]) -> Judge:
    """Return what judges a verdict workload by workload, each with its route."""

    def judged(case: Case, verdict: Verdict, routes: Routes) -> Verdict:
        workloads = (judge(case, workload, routes[workload.name]) for workload in verdict.workloads)
        return replace(verdict, workloads=tuple(workloads))

    return judged


@dataclass(frozen=True, slots=True)
class FinalPass:
    """One pass at the end of a run. Its requests are sent by `send` of `gatekeeper.run.stages.final_passes.NAME`.

    It is no `Pass`: what it needs follows from the routes of all workloads, and its records belong to no soak.
    """

    name: str
    """As `plan --json` names it, and progress while it runs."""
    title: str
    """What `plan` shows."""
    about: str
    """What a warning names that it ended early."""
    files: Mapping[str, type]
    """The names of its record files, each with the kind of its records; the first is closed last."""
    forecast: Callable[[RunAhead], Iterable[float]]
    """Return the seconds of each request."""
    lacks: Callable[[Case, Verdict, Routes], Sequence[Any]]
    """Return what its stage must measure, of a verdict without final passes; nothing where the run has no need."""
    judge: Judge
    is_planned: Callable[[Slo, Mapping[str, Sequence[Canary]]], bool] = lambda *_: True
    """Tell whether a run of the SLO may have it."""
