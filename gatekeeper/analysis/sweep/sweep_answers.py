"""What a sweep recorded of one workload, trial by trial."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Literal

from gatekeeper.analysis.metrics.answer_table import AnswerTable, burst_gap, tabulate
from gatekeeper.analysis.metrics.pair_speeds import pair_logs, pair_speed
from gatekeeper.analysis.metrics.paired_answers import AnswerPowers, PairedAnswers, pair_answers
from gatekeeper.analysis.metrics.readers import PAIR_SPEEDS, answer_reader
from gatekeeper.analysis.plan.settings import concurrency_of, is_greedy
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, SweepPlan, Trial
from gatekeeper.analysis.stats.total_time import PairLogs
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import ANSWER_RATIO
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import Slo

StopKind = Literal["slower-than-plain", "slower-than-another"]
MOST_LOST = 0.25
"""With a larger share of pairs lost a setting has no ratio, and is not stopped early."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why sampling of a trial stopped early on a workload, and at which look."""

    kind: StopKind
    look: int
    """Counts from 1."""
    because: str


@dataclass(frozen=True, slots=True)
class SweepAnswers:
    """All answers of one workload, and the plan of the sweep."""

    slo: Slo
    plan: SweepPlan
    workload: str
    canaries: Mapping[str, Canary]
    """The workload's canaries by id."""
    by_trial: Mapping[str, tuple[Generation, ...]]
    parts: tuple[tuple[Sequence[Generation], float], ...]
    """The answers of each trial, with the gap that tells their bursts."""
    table: AnswerTable
    """All of these answers in columns."""
    powers: Callable[[], AnswerPowers | str] = lambda: "no power was sampled"
    """The power drawn during each answer, rest included, or why it is not known."""

    @property
    def plain_answers(self) -> tuple[Generation, ...]:
        """Return the answers of plain decoding under the usual conditions, without warm-ups."""
        answers = (*self.of(BASELINE), *self.of(NULL))
        return tuple(generation for generation in answers if generation.role is not Role.WARMUP)

    def until(self, stretch: int) -> "SweepAnswers":
        """Return what was recorded of the plan before a stretch of it."""
        planned = {
            (request.trial, request.pair, request.canary.id)
            for block in self.plan.blocks
            if block.stretch < stretch
            for request in block.requests
            if request.workload == self.workload
        }
        by_trial = {
            name: tuple(answer for answer in answers if (name, answer.pair, answer.canary) in planned)
            for name, answers in self.by_trial.items()
        }
        return replace(self, by_trial=by_trial)

    def of(self, trial: str) -> tuple[Generation, ...]:
        """Return the answers of the trial with this name."""
        return self.by_trial.get(trial, ())

    def pair_trial(self, trial: Trial) -> PairedAnswers:
        """Pair the answers of a trial with those of its baseline; a baseline's own answers stay unpaired."""
        return pair_answers(
            PairedAnswers(
                self.workload,
                self.canaries,
                self.of(trial.name),
                self.of(trial.baseline) if trial.name != trial.baseline else (),
                self.slo.confidence,
                self.plan.seed,
                greedy=is_greedy(self.slo, trial.setting),
                drift_limit=math.inf,
                lost_limit=MOST_LOST,
                interleaved=self.plan.shares_process,
                recorded=lambda: self.table,
                powers=self.powers,
            )
        )

    def compare_trial(self, trial: Trial) -> tuple[str, PairLogs, str | None]:
        """Return by which measure a trial is compared with plain decoding, the logs of its pairs, and why they are few.

        Plain decoding is the mean of the baseline and the null arm, where the null arm has an answer. Answers that
        arrive whole, such as tool calls, have no decode speed, and neither has one of many streams.
        """
        paired, null = self.pair_trial(trial), self.null_answers(trial)
        for measure in PAIR_SPEEDS if concurrency_of(self.slo, trial.setting) == 1 else (ANSWER_RATIO,):
            read = answer_reader(measure).on(paired)
            speeds = [
                pair_speed((candidate, plain), read, paired.least_length, null.get((candidate.pair, candidate.canary)))
                for candidate, plain in paired.pairs
            ]
            kept = [speed for speed in speeds if speed is not None]
            if (few := paired.too_many_lost(len(speeds) - len(kept))) is None:
                break
        return measure, pair_logs(kept, total=True), few

    def age_s(self, trial: Trial) -> float:
        """Return how old the process was on average, in seconds, when it answered for a trial."""
        answers = self.of(trial.name)
        same_process = chain.from_iterable(self.by_trial.values()) if self.plan.shares_process else answers
        begun: dict[int, int] = {}
        for generation in same_process:
            sent_ns = generation.answer.sent_ns
            begun[generation.segment] = min(sent_ns, begun.get(generation.segment, sent_ns))
        return fmean([(answered.answer.sent_ns - begun[answered.segment]) / 1e9 for answered in answers] or [0.0])

    def null_answers(self, trial: Trial) -> dict[tuple[str, str], Generation]:
        """Return the null arm's answers, by pair and canary, where a trial is compared with both plain arms."""
        if trial.baseline != BASELINE or trial.name == NULL:
            return {}
        return {
            (generation.pair, generation.canary): generation
            for generation in self.of(NULL)
            if generation.role is not Role.WARMUP
        }


def sweep_answers(
    slo: Slo,
    plan: SweepPlan,
    records: Mapping[str, Sequence[Generation]],
    workload: str,
    canaries: Sequence[Canary] = (),
) -> SweepAnswers:
    """Gather the answers of *workload* from the records of a sweep by trial; a trial's baseline tells its bursts."""
    by_trial = {
        name: tuple(generation for generation in generations if generation.workload == workload)
        for name, generations in records.items()
    }
    baselines = {trial.name: trial.baseline for trial in plan.trials}
    parts = tuple(
        (answers, burst_gap(by_trial.get(baselines.get(name, name), ()))) for name, answers in by_trial.items()
    )
    named = {canary.id: canary for canary in canaries}
    return SweepAnswers(slo, plan, workload, named, by_trial, parts, tabulate(*parts))
