"""Each metric of one system over another, both answering the same canaries in turns; all of them share the error."""

from dataclasses import replace

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.readers import PAIR_RATIOS
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.verdict.against_certified import values
from gatekeeper.core.metrics import BY_NAME, RUN_TO_RUN
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.regression.versus_result import MetricComparison

COUNTED = tuple(metric for metric in RUN_TO_RUN if BY_NAME[metric].from_rounds)


def compare_metrics(answers: PairedAnswers, alone: tuple[PairedAnswers, PairedAnswers]) -> tuple[MetricComparison, ...]:
    """Return each metric of B over A: better or worse where that is proven, with all metrics together.

    *answers* are B's paired with A's; *alone* those of A and of B, whose rounds are counted. Of two equal systems any
    metric is called better or worse in 1 - `answers.level` of comparisons at most, half of it worse.
    """
    changes = {metric: _change(metric, answers, alone, answers.level) for metric in (*PAIR_RATIOS, *COUNTED)}
    measured = {metric: change for metric, change in changes.items() if isinstance(change, Estimate)}

    def bounds(metric: str) -> run_to_run.Bounds:
        def at(level: float) -> Estimate:
            change = _change(metric, answers, alone, level)
            assert isinstance(change, Estimate), metric  # what is missing is so at every level
            return change.rounded()

        return at

    bounded = run_to_run.together_at(
        {metric: bounds(metric) for metric in measured},
        {metric: 0.0 if BY_NAME[metric].relative else 1.0 for metric in measured},
        1 - answers.level,
    )
    comparisons = [_comparison(metric, bounded.get(metric, change)) for metric, change in changes.items()]
    if answers.greedy:
        comparisons.append(replace(_comparison("token_agreement", estimate("token_agreement", answers)), says=""))
    return tuple(comparisons)


def _change(
    metric: str, answers: PairedAnswers, alone: tuple[PairedAnswers, PairedAnswers], level: float
) -> Estimate | Missing:
    if metric not in COUNTED:
        return estimate(metric, replace(answers, level=level))
    before, after = (values(metric, side) for side in alone)
    if isinstance(before, Missing):
        return before
    if isinstance(after, Missing):
        return Missing("no answer of B has a value for it")
    return run_to_run.ratio(after, before, level, len(answers.canaries), logs=False)


def _comparison(metric: str, value: Estimate | Missing) -> MetricComparison:
    """Return one metric of B over A: better or worse where its interval says so."""
    if isinstance(value, Missing):
        return MetricComparison(metric, value, "not measured")
    value, row = value.rounded(), BY_NAME[metric]
    unchanged = 0.0 if row.relative else 1.0
    says = run_to_run.better_or_worse(value.lo, value.hi, unchanged=unchanged, higher_is_better=row.higher_is_better)
    return MetricComparison(metric, value, says)
