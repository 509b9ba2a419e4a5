"""What a sweep recorded of one workload, trial by trial."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, Trial
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation
from gatekeeper.core.slo import Slo

MOST_LOST = 0.25
"""With a larger share of pairs lost a setting has no ratio, and is not stopped early."""


@dataclass(frozen=True, slots=True)
class SweepAnswers:
    """All answers of one workload, and the plan of the sweep."""

    slo: Slo
    plan: SweepPlan
    workload: str
    canaries: Mapping[str, Canary]
    """By id."""
    by_trial: Mapping[str, tuple[Generation, ...]]

    def of(self, trial: str) -> tuple[Generation, ...]:
        """Return the answers of the trial with this name."""
        return self.by_trial.get(trial, ())

    def greedy(self, trial: Trial) -> bool:
        """Return whether a trial decodes at temperature 0."""
        return bool(dict(trial.setting).get("temperature", self.slo.sampling.temperature) == 0)

    def paired(self, trial: Trial) -> PairedAnswers:
        """Pair the answers of a trial with those of its baseline; a baseline's own answers stay unpaired."""
        return pair_answers(
            PairedAnswers(
                self.workload,
                self.canaries,
                self.of(trial.name),
                self.of(trial.baseline) if trial.name != trial.baseline else (),
                self.slo.confidence,
                self.plan.seed,
                greedy=self.greedy(trial),
                drift_limit=math.inf,
                lost_limit=MOST_LOST,
                interleaved=self.plan.shares_process,
            )
        )


def sweep_answers(
    slo: Slo,
    plan: SweepPlan,
    records: Mapping[str, Sequence[Generation]],
    workload: str,
    canaries: Sequence[Canary] = (),
) -> SweepAnswers:
    """Gather the answers of *workload* from the records of a sweep by trial."""
    by_trial = {name: tuple(one for one in many if one.workload == workload) for name, many in records.items()}
    return SweepAnswers(slo, plan, workload, {one.id: one for one in canaries}, by_trial)
