"""A complaint: what a plan cannot prove, or proves weakly, and what would help."""

from dataclasses import dataclass
from typing import Literal

from gatekeeper.core.slo import Objective, Workload

Weight = Literal["never", "not-here", "weak"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem of the plan: `never` provable with it, `not-here` on this host, or `weak`, a warning."""

    weight: Weight
    about: str
    message: str
    hint: str


def about_objective(objective: Objective, workload: Workload) -> str:
    """Name an objective of a workload, as complaints do."""
    return f"objective {objective.metric}, workload {workload.name}"
