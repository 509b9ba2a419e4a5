"""The distributions of time to first token and of token gaps, by workload and arm."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.timing import ttft
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats.intervals import Floats, samples_needed
from gatekeeper.analysis.verdict.case import Case, soak_answers
from gatekeeper.analysis.verdict.run_verdict import WorkloadVerdict
from gatekeeper.core.judgement import round_figure

QUANTILES = (0.5, 0.95, 0.99)
"""The ones that objectives are set for."""
STEPS = 100
"""Steps of a curve: enough to look smooth on any screen."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One distribution: values at equal steps of the share of answers, or tokens, that lie at or below them."""

    values: tuple[float, ...]
    """At shares 0, 1/STEPS, … 1, in seconds."""
    quantiles: tuple[float | None, ...]
    """At QUANTILES; None where a check would refuse it because too few canaries answered."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """A workload's distributions by metric (`ttft`, `itl`), then by arm (`plain`, `candidate`)."""

    workload: str
    source: str
    """The soak that was measured, or `sweep`."""
    setting: Mapping[str, object]
    """The setting of the speculative arm."""
    curves: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)


def curve(values: Floats, weights: Floats, enough: Callable[[float], bool]) -> Curve | None:
    """Return the distribution of weighted *values*, with the quantiles that there are *enough* answers for.

    It writes into both, of which a day has millions. None without a finite value of positive weight.
    """
    usable = np.isfinite(values) & (weights > 0)
    if not usable.any():
        return None
    if not usable.all():
        values, weights = values[usable], weights[usable]
    if (weights == weights[0]).all():  # of plain decoding
        values.sort()
    else:
        order = np.argsort(values)
        values, weights = values[order], weights[order]
        del order
    reached = np.cumsum(weights, out=weights)

    def at(share: float) -> float:
        return round_figure(float(values[np.searchsorted(reached, (share - 1e-9) * reached[-1])]))

    steps = tuple(at(step / STEPS) for step in range(STEPS + 1))
    return Curve(steps, tuple(at(q) if enough(q) else None for q in QUANTILES))


def distributions(case: Case, workloads: Sequence[WorkloadVerdict]) -> tuple[Distributions, ...]:
    """Return each workload's distributions: of the last soak it speculated in, else of its best trial, else plain."""
    entries = (_of_workload(case, workload) for workload in workloads)
    return tuple(entry for entry in entries if entry.curves)


def _of_workload(case: Case, workload: WorkloadVerdict) -> Distributions:
    measurement: tuple[str, Mapping[str, object], PairedAnswers] | None = None
    for name, recorded in sorted(case.soaks.items()):
        settings = {
            generation.setting
            for generation in recorded.records
            if generation.workload == workload.name and generation.arm == "candidate"
        }
        for knobs in sorted(settings, key=repr)[:1]:
            answers = soak_answers(case, SoakPlan(name, {workload.name: knobs}, knobs), workload.name)
            measurement = name, dict(knobs), answers
    measurement = measurement or _of_the_sweep(case, workload)
    if measurement is None:
        return Distributions(workload.name, "", {})
    source, setting, evidence = measurement
    arms = {"candidate": evidence, "plain": evidence.plain_alone}
    if not any(speculates(generation.setting) for generation in evidence.answers):
        arms = {"plain": evidence}
    curves: dict[str, dict[str, Curve]] = {}
    for arm, arm_evidence in arms.items():
        enough = partial(_enough, len(successful(arm_evidence.answers)), evidence.level)
        for metric, arm_curve in (
            ("ttft", _ttft(arm_evidence, enough)),
            ("itl", _itl(arm_evidence, enough)),
        ):
            if arm_curve is not None:
                curves.setdefault(metric, {})[arm] = arm_curve
    return Distributions(workload.name, source, setting, curves)


def _of_the_sweep(case: Case, workload: WorkloadVerdict) -> tuple[str, Mapping[str, object], PairedAnswers] | None:
    results = workload.choice.results if workload.choice is not None else ()
    ratios = {result.trial.name: result.shown.center if result.shown is not None else 0.0 for result in results}
    trials = sorted(case.plan.trials, key=lambda trial: (trial.arm == "candidate", ratios.get(trial.name, -1.0)))
    sweep = case.sweep_answers(workload.name)
    for trial in reversed(trials):
        evidence = sweep.pair_trial(trial)
        if evidence.answers:
            return "sweep", dict(trial.setting), evidence
    return None


def _enough(answers: int, level: float, quantile: float) -> bool:
    """Return whether so many *answers* show this quantile of these canaries; the median is always shown."""
    return quantile <= 0.5 or answers >= samples_needed(quantile, level)


def _ttft(evidence: PairedAnswers, enough: Callable[[float], bool]) -> Curve | None:
    values = [value for generation in successful(evidence.answers) if (value := ttft(generation.answer)) is not None]
    return curve(np.array(values), np.ones(len(values)), enough)


def _itl(evidence: PairedAnswers, enough: Callable[[float], bool]) -> Curve | None:
    """Return the token-normalised gaps: a burst of m tokens after a gap g counts m times g/m."""
    gaps = evidence.table.pool_gaps(successful(evidence.answers), per_token=True)
    return None if gaps is None else curve(gaps.values, gaps.weights.copy(), enough)
