"""Each metric of one system over another, both answering the same canaries in turns; all of them share the error."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from statistics import fmean

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.pass_rates import pass_change, pass_marks
from gatekeeper.analysis.metrics.readers import PAIR_RATIOS
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.stats.intervals import by_canary, proportion_bounds
from gatekeeper.analysis.verdict.against_certified import values
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO, PASS_RATES, RUN_TO_RUN
from gatekeeper.versus.versus_result import MetricComparison

NOTHING: Mapping[str, str] = {}
COUNTED = tuple(metric for metric in RUN_TO_RUN if BY_NAME[metric].from_rounds)


def compare_metrics(
    answers: PairedAnswers, alone: tuple[PairedAnswers, PairedAnswers], lost: Mapping[str, str] = NOTHING
) -> tuple[MetricComparison, ...]:
    """Return each metric of B over A: better or worse where that is proven, with all metrics together.

    *answers* are B's paired with A's; *alone* those of A and of B, whose rounds are counted; *lost* says by metric why
    it cannot be compared. Of two equal systems any metric is called better or worse in 1 - `answers.level` of
    comparisons at most, half of it worse.
    """
    changes = {
        metric: Missing(lost[metric]) if metric in lost else _change(metric, answers, alone, answers.level)
        for metric in (*PAIR_RATIOS, *COUNTED, *graded_metrics(answers))
    }
    measured = {metric: change for metric, change in changes.items() if isinstance(change, Estimate)}

    def bounds(metric: str) -> run_to_run.Bounds:
        def at(level: float) -> Estimate:
            change = _change(metric, answers, alone, level)
            assert isinstance(change, Estimate), metric  # what is missing is so at every level
            return change.round_figures()

        return at

    bounded = run_to_run.together_at(
        {metric: bounds(metric) for metric in measured},
        {metric: _find_neutral_value(metric) for metric in measured},
        1 - answers.level,
    )
    return tuple(_comparison(metric, bounded.get(metric, change)) for metric, change in changes.items())


def graded_metrics(answers: PairedAnswers) -> list[str]:
    """Return the pass rates that these canaries show; that of all of them where it is not that of one kind."""
    kinds = {canary.expect.kind for canary in answers.canaries.values() if canary.expect}
    metrics = [metric for metric, rate in PASS_RATES.items() if rate.kind in kinds]
    is_of_all = len(kinds) > 1 or (kinds and not metrics)
    return [metric for metric, rate in PASS_RATES.items() if metric in metrics or (rate.kind is None and is_of_all)]


def _change(
    metric: str, answers: PairedAnswers, alone: tuple[PairedAnswers, PairedAnswers], level: float
) -> Estimate | Missing:
    answers = replace(answers, level=level)
    if metric in PASS_RATES:
        return _pass_change(PASS_RATES[metric].kind, answers, alone)
    if metric == DECODE_RATIO:
        return _decode_ratio(answers)
    if metric not in COUNTED:
        return estimate(metric, answers)
    before, after = (values(metric, side) for side in alone)
    if isinstance(before, Missing):
        return before
    if isinstance(after, Missing):
        return Missing("no answer of B has a value for it")
    return run_to_run.ratio(after, before, level, len(answers.canaries), logs=False)


def _pass_change(
    kind: str | None, answers: PairedAnswers, alone: tuple[PairedAnswers, PairedAnswers]
) -> Estimate | Missing:
    """Bound the difference of two pass rates for prompts like these: one canary more is no proof.

    Which side is better is decided by the exact sign test of lost against won canaries (McNemar 1947), at half the
    error; the bound towards zero is then its share of the fewest canaries that may differ, at the other half.
    """
    before, now = (by_canary(pass_marks(side, kind)) for side in alone)
    change = pass_change(replace(answers, frozen=False), kind, now, before, "both systems")
    if isinstance(change, Missing):
        return change
    half = 1 - (1 - answers.level) / 2
    flips = [fmean(marks) - fmean(before[name]) for name, marks in now.items() if name in before]
    won, lost = sum(flip > 0 for flip in flips), sum(flip < 0 for flip in flips)
    if not won + lost or not {abs(flip) for flip in flips} <= {0, 1}:  # some answers change by themselves
        return change
    lo, hi = (2 * bound - 1 for bound in proportion_bounds(won, won + lost, half))
    fewest, _ = proportion_bounds(won + lost, len(flips), half)
    return replace(change, lo=lo * fewest if lo > 0 else change.lo, hi=hi * fewest if hi < 0 else change.hi)


def _decode_ratio(answers: PairedAnswers) -> Estimate | Missing:
    """Compare the time per token, whatever the lengths: where greedy words part, answers end elsewhere.

    Some servers send a tool call in one piece, which has no decode speed; it is left out beside others that have one.
    """
    decode_rate = answers.table.read("decode_rate")
    in_one_piece = {
        generation.canary
        for generation in chain.from_iterable(answers.pairs)
        if generation.answer.tool_calls and decode_rate(generation.answer) is None
    }
    pairs = tuple(pair for pair in answers.pairs if pair[0].canary not in in_one_piece)
    if not in_one_piece or not pairs:
        return estimate(DECODE_RATIO, replace(answers, greedy=False))
    ratio = estimate(DECODE_RATIO, replace(answers, greedy=False, pairs=pairs))
    note = f"without {len(in_one_piece)} canaries whose tool calls come in one piece"
    return replace(ratio, notes=(*ratio.notes, note)) if isinstance(ratio, Estimate) else ratio


def _comparison(metric: str, value: Estimate | Missing) -> MetricComparison:
    """Return one metric of B over A: better or worse where its interval says so."""
    if isinstance(value, Missing):
        return MetricComparison(metric, value, "not measured")
    value, higher = value.round_figures(), BY_NAME[metric].higher_is_better
    unchanged = _find_neutral_value(metric)
    says = run_to_run.better_or_worse(value.lo, value.hi, unchanged=unchanged, higher_is_better=higher)
    return MetricComparison(metric, value, says)


def _find_neutral_value(metric: str) -> float:
    """Return the value of a metric where nothing changed: of a difference 0, of a ratio 1."""
    return 0.0 if BY_NAME[metric].relative or metric in PASS_RATES else 1.0
