"""The case: everything a verdict rests on, soak by soak, and what each soak recorded of one workload."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gatekeeper.analysis.metrics import exactness
from gatekeeper.analysis.metrics.exactness import Divergence
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.objectives import first_token_workloads, warm_cache_workloads, workloads_with
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, HostSample, Role, Setting, Tie
from gatekeeper.core.slo import Slo
from gatekeeper.core.verdict import Finding, Outcome, WorkloadVerdict

CACHE_OFF_HINTS = {
    "mlx-server": 'deploy mlx_lm.server with `--prompt-cache-size 0` (args = ["--prompt-cache-size", "0"])'
}
"""How a backend's prompt cache is switched off."""


def all_partings(seen: Mapping[str, PairedAnswers]) -> dict[str, tuple[Divergence, ...]]:
    """Return, by workload, where greedy answers part from plain decoding's."""
    found = {
        name: exactness.divergences(evidence.answers, evidence.plain)
        for name, evidence in seen.items()
        if evidence.greedy
    }
    return {name: where for name, where in found.items() if where}


def cache_findings(slo: Slo, soak: str, verdicts: Mapping[str, WorkloadVerdict]) -> list[Finding]:
    """Return a finding for each workload whose answers a warm prompt cache changes, with the way out."""
    return [
        Finding(
            "warm_cache_changes_answers",
            f"{soak}, {name}",
            f"with the prompt cache on, as deployed, greedy answers change: {one.because}",
            f"{CACHE_OFF_HINTS.get(slo.subject.backend, 'deploy it with the prompt cache off')}, or decode plainly",
        )
        for name, verdict in verdicts.items()
        for one in verdict.checks
        if one.metric == "warm_cache_agreement" and one.outcome is Outcome.FAIL
    ]


SOAK_ROLES = frozenset({Role.MEASURED, Role.SENTINEL})
"""Answers given while the soak's clock runs; blocks and the closing pass lie beside it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The content of a record file, and what is wrong with it, if anything."""

    answers: tuple[Generation, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """The near-ties that were read after a soak, and what is wrong with their file, if anything."""

    ties: tuple[Tie, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a verdict rests on."""

    slo: Slo
    canaries: Mapping[str, Sequence[Canary]]
    plan: SweepPlan
    residence: Callable[[Setting], str]
    shares_process: bool
    manifest_sha256: str
    seed: int
    sweep: Mapping[str, Recorded]
    soaks: Mapping[str, Recorded]
    ties: Mapping[str, Read] = field(default_factory=dict)
    """By the name of the soak."""
    warm: Mapping[str, Recorded] = field(default_factory=dict)
    """By the name of the soak."""
    draws: Mapping[str, Recorded] = field(default_factory=dict)
    """By the name of the soak."""
    host_samples: tuple[HostSample, ...] = ()
    host_trouble: str | None = None
    interval: float = 1.0
    conditions: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The host's facts before and after each soak."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Share of each workload in the soak profile's mix."""
    findings: tuple[Finding, ...] = ()
    """What the freeze stage found."""
    doubts: tuple[str, ...] = ()
    """Why nothing may be promoted whatever the records say: another host than the SLO's, a damaged record."""


def evidence_of(case: Case, leg: SoakPlan, workload: str) -> PairedAnswers:
    """Gather what a soak recorded of *workload*, for its metrics."""
    knobs = leg.settings[workload]
    answers = [one for one in case.soaks[leg.name].answers if one.workload == workload]
    plain = tuple(one for one in answers if one.arm == "plain")
    candidate = tuple(one for one in answers if one.arm == "candidate")
    return pair_answers(
        PairedAnswers(
            workload,
            {canary.id: canary for canary in case.canaries[workload]},
            candidate if speculates(knobs) else plain,
            plain if speculates(knobs) else (),
            bound_level(case.slo),
            case.seed,
            greedy=dict(knobs).get("temperature", case.slo.sampling.temperature) == 0,
            window_s=case.slo.soak.window_s,
            drift_limit=case.slo.soak.sentinel_drift,
            ties=tuple(tie for tie in case.ties.get(leg.name, Read()).ties if tie.workload == workload),
            warm_cache=_after(case.warm.get(leg.name), leg.warm, workload),
            first_tokens=_after(case.draws.get(leg.name), leg.draws, workload),
        )
    )


def _after(recorded: Recorded | None, file: str, workload: str) -> tuple[Generation, ...] | str:
    if recorded is None or recorded.trouble is not None:
        return f"{file}: {'missing' if recorded is None else recorded.trouble}"
    return tuple(one for one in recorded.answers if one.workload == workload)


def partings_of(case: Case, leg: SoakPlan) -> dict[str, tuple[Divergence, ...]]:
    """Return, by workload, where greedy answers of a soak parted from plain decoding's although they may not."""
    if leg.name not in case.soaks:
        return {}
    names = workloads_with(case.slo, leg.settings, "token_agreement")
    return all_partings({name: evidence_of(case, leg, name) for name in names})


def is_due(case: Case, leg: SoakPlan) -> bool:
    """Tell whether a soak, or what is recorded after it, is still to run."""
    after = ((case.warm, warm_cache_workloads), (case.draws, first_token_workloads))
    if leg.name not in case.soaks or any(
        leg.name not in seen and wanted(case.slo, leg.settings) for seen, wanted in after
    ):
        return True
    return leg.name not in case.ties and bool(partings_of(case, leg))


def damage_after_soak(case: Case, leg: SoakPlan) -> list[str]:
    """Say what is wrong with the files recorded after a soak that the verdict rests on."""
    read = case.ties.get(leg.name, Read())
    found = [f"{leg.ties}: {read.trouble}"] if read.trouble is not None and partings_of(case, leg) else []
    for file, seen, wanted in (
        (leg.warm, case.warm, warm_cache_workloads),
        (leg.draws, case.draws, first_token_workloads),
    ):
        trouble = seen.get(leg.name, Recorded()).trouble
        found += [f"{file}: {trouble}"] if trouble is not None and wanted(case.slo, leg.settings) else []
    return found


def clock_ran_backwards(answers: Iterable[Generation]) -> str | None:
    """Say that the clock ran backwards, if an answer ended before it began; every time beside it is then in doubt."""
    wrong = [one.key for one in answers if not _in_order(one.answer)]
    return f"the clock ran backwards in {len(wrong)} answers, the first is {wrong[0]}" if wrong else None


def _in_order(answer: Answer) -> bool:
    instants = (answer.sent_ns, *(one.at_ns for one in answer.arrivals), answer.ended_ns)
    return all(before <= after for before, after in pairwise(instants))


def too_short(case: Case, answers: Sequence[Generation]) -> str | None:
    """Say how much of the soak is missing, if any: its last unbroken stretch must last the whole duration."""
    measured = [one for one in answers if one.role in SOAK_ROLES]
    if not measured:
        return "no measured answer"
    last = max(one.segment for one in measured)
    stretch = [one for one in measured if one.segment == last]
    seconds = (max(one.answer.ended_ns for one in stretch) - min(one.answer.sent_ns for one in stretch)) / 1e9
    # The first answer is sent a moment after the clock starts and the last may end a moment before it stops.
    if seconds < 0.98 * case.slo.soak.duration - 1:
        return f"the soak ran {seconds:.0f} s without a break, of {case.slo.soak.duration:.0f} s"
    return None
