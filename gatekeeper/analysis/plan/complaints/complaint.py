"""A complaint: what a plan cannot prove, or proves weakly, and what would help."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gatekeeper.core.slo import Objective, Workload
from gatekeeper.core.text import join_names

Weight = Literal["never", "not-here", "weak"]
_OF_WORKLOAD = ", workload "


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem of the plan: `never` provable with it, `not-here` on this host, or `weak`, a warning."""

    weight: Weight
    about: str
    message: str
    hint: str


def merge_complaints(complaints: Iterable[Complaint]) -> list[Complaint]:
    """Return the complaints, one for all workloads that have the same."""
    alike: dict[Complaint, list[str]] = {}
    for complaint in complaints:
        subject, _, workload = complaint.about.partition(_OF_WORKLOAD)
        alike.setdefault(replace(complaint, about=subject), []).extend([workload] if workload else [])
    return [
        replace(complaint, about=f"{complaint.about}, workload{'s' if len(names) > 1 else ''} {join_names(names)}")
        if names
        else complaint
        for complaint, names in alike.items()
    ]


def about_objective(objective: Objective, workload: Workload) -> str:
    """Name an objective of a workload, as complaints do."""
    return f"objective {objective.metric}{_OF_WORKLOAD}{workload.name}"
