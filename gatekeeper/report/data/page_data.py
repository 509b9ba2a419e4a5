"""Everything a page shows of a run: the verdict, and the figures of its charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gatekeeper.analysis.remedies import Gap, extension, gaps
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.slo import Slo
from gatekeeper.report.data.decision import Decision, decide, describe_progress
from gatekeeper.report.data.distributions import Distributions, distributions
from gatekeeper.report.data.progress import Snapshot
from gatekeeper.report.data.sweep_chart import SweepData, sweep_data
from gatekeeper.report.data.timeline import Timeline, timelines


@dataclass(frozen=True, slots=True)
class PageData:
    """Everything a page shows, computed."""

    slo: Slo
    verdict: Verdict
    manifest: Manifest
    policy: str | None
    """The content of policy.toml, None where nothing was promoted or graded back."""
    unfinished: str | None
    """Where the run was interrupted; None for a finished one."""
    sweep: SweepData
    distributions: tuple[Distributions, ...]
    timelines: tuple[Timeline, ...]
    gaps: tuple[Gap, ...]
    decision: Decision
    """The headline, the figures of each workload, and the objectives that failed or are not proven."""
    progress: Snapshot | None = None
    """How far a run is that is under way; None for any other."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """Answers of this stage by workload, of a run under way, where its plan has a number."""
    run: str = ""
    """The run directory, as it was given when the run began; empty where the event log does not tell."""


def page_data(
    case: Case, verdict: Verdict, happened: Sequence[Event], *, finished: bool, manifest: Manifest, policy: str | None
) -> PageData:
    """Compute what a page shows of a run; *finished*: its event log has a closing line."""
    unfinished = None if finished else describe_progress(happened)
    begun = (event for event in happened if event.kind == EventKind.BEGIN)
    return PageData(
        slo=case.slo,
        verdict=verdict,
        manifest=manifest,
        policy=policy,
        unfinished=unfinished,
        sweep=sweep_data(case, verdict.workloads),
        distributions=distributions(case, verdict.workloads),
        timelines=timelines(case, verdict.transitions, happened),
        gaps=gaps(case.slo, verdict, resumable=not finished),
        decision=decide(
            verdict,
            policy=policy,
            unfinished=unfinished,
            extend=extension(case, verdict),
            alone=case.plan.fixed is not None,
        ),
        run=next((str(event.detail["run"]) for event in begun if "run" in event.detail), ""),
    )
