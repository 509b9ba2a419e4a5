"""The sweep, answer by answer, for a chart that is filtered by workload, knob and metric."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gatekeeper.analysis.metrics.answer_table import Read
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.pair_speeds import pair_speed
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.readers import PAIR_RATIOS, PAIR_SPEEDS, answer_reader
from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.analysis.plan.sweep_plan import Trial
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import WorkloadVerdict
from gatekeeper.core.judgement import Estimate, round_figure
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import Generation, Knobs

Thinned = TypeVar("Thinned")
METRICS = (*PAIR_SPEEDS, "decode_throughput", "ttft", "stall_p95", "acceptance_rate")
"""The metrics to choose from; for `stall_p95` the figure of an answer is its longest gap."""
EXCERPT = 120
"""Characters of an answer that are shown with its figures."""
MOST_ROWS = 12_000
"""A page with more answers than this opens slowly; then every n-th is kept, and the page says so."""


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """One answer of the sweep and its figures, None where it has none."""

    workload: str
    trial: str
    canary: str
    repeat: int
    tokens: int | None
    excerpt: str
    fault: str | None
    figures: tuple[float | None, ...]
    """The values in the order of METRICS; a ratio belongs to the speculative answer of its pair."""


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """One trial of the sweep, as it is shown."""

    name: str
    arm: str
    knobs: Knobs
    moved: tuple[str, ...] = ()
    """The knobs whose value differs from the default."""


@dataclass(frozen=True, slots=True)
class SweepData:
    """The whole sweep: its trials, its answers, and the estimate of each metric by (workload, trial, metric)."""

    settings: tuple[SweepSetting, ...] = ()
    rows: tuple[SweepAnswer, ...] = ()
    estimates: Mapping[tuple[str, str, str], tuple[float, float, float, int]] = field(default_factory=dict)
    """Centre, lower and upper bound, and the number of canaries."""
    left_out: int = 0


def sweep_data(case: Case, workloads: Sequence[WorkloadVerdict]) -> SweepData:
    """Return the sweep's answers; the intervals of the ratios are those of the choice."""
    rows: list[SweepAnswer] = []
    estimates: dict[tuple[str, str, str], tuple[float, float, float, int]] = {}
    for workload in workloads:
        sweep = case.sweep_answers(workload.name)
        results = workload.choice.results if workload.choice is not None else ()
        of_choice = {
            (result.trial.name, result.measure): (ratio.center, ratio.lo, ratio.hi, ratio.n)
            for result in results
            if (ratio := result.shown) is not None
        }
        for trial in case.plan.trials:
            evidence = sweep.pair_trial(trial)
            rows += _answers(trial, evidence)
            for metric in METRICS:
                interval = of_choice.get((trial.name, metric)) or estimate_of(metric, evidence)
                if interval is not None:
                    estimates[workload.name, trial.name, metric] = interval
    thinned = every_nth(rows, MOST_ROWS, lambda row: row.fault)
    return SweepData(tuple(_settings(case.plan.trials)), tuple(thinned), estimates, len(rows) - len(thinned))


def every_nth(answers: Sequence[Thinned], most: int, fault: Callable[[Thinned], str | None]) -> list[Thinned]:
    """Keep every n-th answer so that at most *most* are left, and every one with a fault."""
    step = -(-len(answers) // most) if answers else 1
    return [answer for number, answer in enumerate(answers) if number % step == 0 or fault(answer) is not None]


def _settings(trials: Sequence[Trial]) -> Iterator[SweepSetting]:
    default = next((dict(trial.setting) for trial in trials if trial.arm == "candidate"), {})
    for trial in trials:
        knobs = dict(trial.setting)
        conditions = {knob: value for knob, value in trial.setting if knob != "draft" and value is not None}
        changed = tuple(knob for knob in {**default, **knobs} if knobs.get(knob) != default.get(knob))
        document = setting_document(trial.setting) | conditions
        yield SweepSetting(trial.name, trial.arm, document, changed if trial.arm == "candidate" else ())


def estimate_of(metric: str, evidence: PairedAnswers) -> tuple[float, float, float, int] | None:
    """Return centre, lower and upper bound, and the number of canaries; None where nothing can be estimated."""
    if not evidence.answers or (BY_NAME[metric].against_plain and not evidence.pairs):
        return None
    metric_estimate = estimate(metric, evidence)
    if not isinstance(metric_estimate, Estimate):
        return None
    near = metric_estimate.round_figures()
    return near.center, near.lo, near.hi, near.n


def _answers(trial: Trial, evidence: PairedAnswers) -> Iterator[SweepAnswer]:
    readers = [answer_reader(metric) for metric in METRICS]
    reads = [(reader.on(evidence), metric in PAIR_RATIOS) for metric, reader in zip(METRICS, readers, strict=True)]
    pairs = {id(pair[0]): pair for pair in evidence.pairs}

    def ratio(generation: Generation, read: Read) -> float | None:
        if id(generation) not in pairs:
            return None
        speed = pair_speed(pairs[id(generation)], read, evidence.least_length)
        return math.exp(speed.log_ratio) if speed is not None else None

    for generation in evidence.answers:
        answer = generation.answer
        figures = [ratio(generation, read) if paired else read(answer) for read, paired in reads]
        yield SweepAnswer(
            generation.workload,
            trial.name,
            canary=generation.canary,
            repeat=generation.repeat,
            tokens=answer.output_tokens,
            excerpt=answer.text[:EXCERPT],
            fault=answer.fault,
            figures=tuple(round_figure(figure) if figure is not None else None for figure in figures),
        )
