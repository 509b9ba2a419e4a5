"""One arm with some number of streams, judged by its answers: whether its latency objectives are kept, and why."""

import math
from collections.abc import Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.estimate import estimate, pool_gaps
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers, successful, values_of
from gatekeeper.analysis.metrics.readers import OfAnswer, OfGaps, reader_of
from gatekeeper.analysis.metrics.timing import output_tokens
from gatekeeper.analysis.plan.capacity_levels import StreamLevel
from gatekeeper.analysis.plan.settings import is_greedy
from gatekeeper.analysis.stats.bound_tests import is_broken, is_kept, measured_quantile, quantile_bounds
from gatekeeper.analysis.stats.intervals import WeightedValues, binomial_cdf, proportion_bounds
from gatekeeper.analysis.stats.stream_search import StreamProbe, StreamReading
from gatekeeper.analysis.verdict.stream_capacity import GainReading, LevelReading, MeasuredLatency
from gatekeeper.core.metrics import SYSTEM_RATIO
from gatekeeper.core.records import Generation
from gatekeeper.core.slo import Objective
from gatekeeper.core.text import counted
from gatekeeper.core.verdict import Estimate, Missing, Outcome, worst

ERRORS = "error_rate"


def level_evidence(level: StreamLevel, answers: Sequence[Generation], plain: Sequence[Generation]) -> PairedAnswers:
    """Return the answers of an arm, with *plain* ones to compare with, or to tell its bursts by."""
    return pair_answers(
        PairedAnswers(
            level.workload,
            {canary.id: canary for canary in level.canaries},
            tuple(answers),
            tuple(plain),
            level.slo.confidence,
            level.seed,
            greedy=is_greedy(level.slo, level.knobs),
            window_s=level.slo.soak.window_s,
            drift_limit=level.slo.soak.sentinel_drift,
            interleaved=False,  # the arms were probed one after the other
        )
    )


def read_level(level: StreamLevel, probe: StreamProbe, evidence: PairedAnswers) -> LevelReading:
    """Judge one probe of an arm by its answers; any of its objectives could be broken by chance, so each has a share.

    A failed answer has no latency. It breaks the objective on errors, which is none at all unless the SLO allows some.
    """
    failed = len(evidence.answers) - len(successful(evidence.answers))
    share = probe.error_broken / (len(level.objectives) + 1)
    outcomes = [_errors(level, failed, len(evidence.answers), probe, share)]
    reasons = [f"{counted(failed, 'answer')} of {len(evidence.answers)} failed" if failed else ""]
    latencies = []
    for objective in level.objectives:
        outcome, reason, latency = _latency(objective, probe, evidence, share)
        outcomes.append(outcome)
        reasons.append(f"{objective.metric}: {reason}")
        latencies += [latency] if latency is not None else []
    outcome = worst(outcomes)
    shares = [latency.center / latency.bound for latency in latencies]
    tightest = math.inf if outcomes[0] is Outcome.FAIL else max(shares, default=None)
    seconds = sum(generation.answer.seconds for generation in evidence.answers) / level.streams
    reading = StreamReading(outcome, tightest, seconds)
    whole = [reason for reason, each in zip(reasons, outcomes, strict=True) if each is outcome and reason]
    because = "every objective is proven" if outcome is Outcome.PASS else "; ".join(whole)
    measured = len(evidence.answers)
    return LevelReading(level.streams, reading, because, measured, failed, tuple(latencies), _speed(level, evidence))


def _errors(level: StreamLevel, failed: int, answers: int, probe: StreamProbe, error: float) -> Outcome:
    """Judge how many answers failed: none may, unless the SLO allows a share."""
    speculating = level.arm == "candidate"
    objectives = level.slo.objectives_for(level.workload, speculating=speculating)
    allowed = next((objective.threshold for objective in objectives if objective.metric == ERRORS), 0.0)
    if allowed == 0 or failed == 0:
        return Outcome.FAIL if failed else Outcome.PASS
    if 1 - binomial_cdf(failed - 1, answers, allowed) <= error:
        return Outcome.FAIL
    kept = probe.full and proportion_bounds(failed, answers, 1 - probe.error)[1] <= allowed
    return Outcome.PASS if kept else Outcome.UNPROVEN


def _latency(
    objective: Objective, probe: StreamProbe, evidence: PairedAnswers, error: float
) -> tuple[Outcome, str, MeasuredLatency | None]:
    """Return the outcome of one objective, the reason, and what was measured of it."""
    q, bound, show = objective.of.quantile or 0.5, objective.threshold, objective.of.show
    values = _values(objective, evidence)
    if isinstance(values, Missing) or not len(values.values):
        because = values.because if isinstance(values, Missing) else "no answer has a value for it"
        return Outcome.UNPROVEN, because, None
    center = measured_quantile(values, q)
    latency = MeasuredLatency(objective.metric, bound, center, *quantile_bounds(values, q, evidence.level))
    limit = f"{show(center)} measured, {show(bound)} allowed"
    if is_broken(values, bound, q, error):
        return Outcome.FAIL, f"{limit}: proven broken", latency
    if not probe.full:
        return Outcome.UNPROVEN, f"{limit}: too few answers to decide", latency
    if objective.scope == "population":
        at_error = replace(evidence, level=1 - probe.error, frozen=False, interleaved=True)
        checked = check(objective, estimate(objective.metric, at_error))
        return min(checked.outcome, Outcome.UNPROVEN), checked.because, latency
    kept = is_kept(values, bound, q, probe.error)
    return (Outcome.PASS, limit, latency) if kept else (Outcome.UNPROVEN, f"{limit}: not decided", latency)


def _values(objective: Objective, evidence: PairedAnswers) -> WeightedValues | Missing:
    """Return the values whose quantile an objective bounds: one an answer, or its gaps."""
    match reader_of(objective.metric):
        case OfAnswer() as reader:
            values = values_of(successful(evidence.answers), reader.on(evidence))
            return WeightedValues.of((canary, [(value, 1.0)]) for canary, value in values)
        case OfGaps(per_token=per_token):
            pooled = pool_gaps(evidence, per_token=per_token)
            return pooled if isinstance(pooled, Missing) else pooled.gaps
        case _:
            return Missing("it is no latency")


def _speed(level: StreamLevel, evidence: PairedAnswers) -> float | None:
    """Return the tokens per second of all streams, each of which is busy all the time."""
    sound = successful(evidence.answers)
    seconds = sum(generation.answer.seconds for generation in sound)
    tokens = sum(output_tokens(generation.answer) for generation in sound)
    return level.streams * tokens / seconds if seconds > 0 and tokens else None


def read_gain(level: StreamLevel, probe: StreamProbe, evidence: PairedAnswers) -> GainReading:
    """Judge whether drafting is faster than plain decoding for all streams together."""

    def ratio(error: float) -> Estimate | Missing:
        return estimate(SYSTEM_RATIO, replace(evidence, level=1 - error))

    low, high = ratio(probe.error or probe.error_broken), ratio(probe.error_broken)
    if isinstance(low, Missing) or isinstance(high, Missing):
        return GainReading(level.streams, StreamReading(Outcome.UNPROVEN, None), low)
    outcome = Outcome.FAIL if high.hi < 1 else Outcome.PASS if probe.full and low.lo > 1 else Outcome.UNPROVEN
    return GainReading(level.streams, StreamReading(outcome, 1 / low.center), replace(low, hi=high.hi))
