"""Judging a guard: one bound of a policy against recent evidence, by the statistics of the gate.

A bound is *crossed* (FAIL) when the whole interval violates it, and *kept* (PASS) when the whole interval meets it.
Anything between is undecided: the route stays as it is while evidence arrives, but does not step up.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gatekeeper.analysis.metrics.checks import check_bound
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.host import host_estimates as host
from gatekeeper.analysis.metrics.host.host_series import HostSamples
from gatekeeper.analysis.metrics.host.host_throttling import throttle_time_by_sensors
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.settings import setting_document, speculates
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Check, Estimate, Missing, Outcome, fact
from gatekeeper.core.metrics import PASS_RATE, PASS_RATES
from gatekeeper.core.metrics.metric import PassRate
from gatekeeper.core.policy import Guard, MeasuredRoute, MeasuredValue, Policy, Route
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import CONFIDENCE
from gatekeeper.core.units import show_seconds
from gatekeeper.live.guards import fall_detection, guard_values
from gatekeeper.live.guards.guard_values import GuardSeries, acceptance_spread
from gatekeeper.live.guards.recent_samples import GuardEvidence

SECOND = 1_000_000_000
STRETCHES = 6
"""Number of stretches in which a crossing is searched for, each twice as long as the one before."""
JUDGED_WHILE_PLAIN = frozenset({"error_rate", "canary_pass_rate"})
"""Metrics that are also judged for plain answers."""


@dataclass(frozen=True, slots=True)
class GuardContext:
    """How a guard is judged, in addition to its bound."""

    policy: Policy
    canaries: Mapping[str, Mapping[str, Canary]]
    """Canaries by workload and id."""
    greedy: bool
    host_interval: float
    """Seconds between two host samples."""
    confidence: float = CONFIDENCE
    """Confidence that a bound is kept, which a step up needs."""


@dataclass(frozen=True, slots=True)
class GuardResult:
    """One guard after one round."""

    guard: Guard
    workload: str
    check: Check
    """PASS: kept. FAIL: crossed. UNPROVEN: undecided, too little evidence yet, missing, or asleep."""
    fresh_ns: int | None
    """Time of the newest usable evidence; None: there is none."""
    asleep: bool = False
    """It guards speculation, which is off and not on trial, so it is not judged."""
    crossed_ns: int | None = None
    """Since when the bound is crossed, where the evidence shows it; None: since the round that first saw it."""

    @property
    def outcome(self) -> Outcome:
        """Return the check's outcome."""
        return self.check.outcome


def judge_guard(
    guard: Guard, route: Route, recent: GuardEvidence, context: GuardContext, knobs: Setting
) -> GuardResult:
    """Judge *guard* for *route* by the answers requested with *knobs*: the setting in force, or the one on trial.

    With plain *knobs* a guard of speculation is asleep; errors, the canaries' pass rate and the host are still judged.
    """
    if guard.of.host:
        return _judge_host(guard, route.workload, recent, context)
    if not speculates(knobs) and guard.metric not in JUDGED_WHILE_PLAIN:
        check = _check(guard, Missing("speculation is off"))
        return GuardResult(guard, route.workload, check, None, asleep=True)
    error = round_error(context, route.workload)
    evidence = _evidence(guard, route.workload, recent, context, knobs)
    if guard.metric in PASS_RATES and evidence.plain:
        check, newest = _judge_paired_passes(guard, evidence, error, context.confidence)
    else:
        series = _series(guard, evidence, route.measured, context.policy.watch.slack)
        check, newest = judge_series(guard, series, error, context.confidence), series.newest_ns
        newest = None if series.missing else newest
        check = _judge_whole_set(guard, route.measured, evidence, check)
    fall = _detect_fall(guard, route, recent, evidence, context) if guard.metric == "acceptance_rate" else None
    check, since = fall or (check, None)
    thin = check.center is None and recent.now_ns - recent.since_ns >= _window_s(guard, context) * SECOND
    return GuardResult(guard, route.workload, check, None if thin else newest, crossed_ns=since)


def judge_guards(
    workload: str, recent: GuardEvidence, context: GuardContext, knobs: Setting
) -> tuple[GuardResult, ...]:
    """Judge every guard of *workload*."""
    route = context.policy.route_of(workload)
    return tuple(judge_guard(guard, route, recent, context, knobs) for guard in context.policy.guards_of(workload))


def round_error(context: GuardContext, workload: str) -> float:
    """Return the error of each bound in each round, so that false alarms stay rare over a policy's whole validity.

    The error is split over all rounds, guards and stretches (Bonferroni). They overlap, so they spend less in total.
    """
    policy = context.policy
    rounds = max(1.0, policy.lifetime / policy.watch.interval)
    return policy.watch.false_alarms / (rounds * _error_shares(policy, workload) * STRETCHES)


def fall_error(policy: Policy, workload: str) -> float:
    """Return the error of one detection of a fall of acceptance over the policy's life: by canaries, or by counters."""
    return policy.watch.false_alarms / _error_shares(policy, workload) / 2


def _error_shares(policy: Policy, workload: str) -> int:
    """Return how many shares a route's error has: one a guard, and one for both detections of a fall of acceptance."""
    sampled = [guard for guard in policy.guards_of(workload) if not guard.of.host]
    return max(1, len(sampled) + any(guard.metric == "acceptance_rate" for guard in sampled))


def _evidence(
    guard: Guard, workload: str, recent: GuardEvidence, context: GuardContext, knobs: Setting
) -> PairedAnswers:
    """Collect the answers of one setting and the plain ones, both within the guard's window."""
    oldest = recent.now_ns - _window_s(guard, context) * SECOND
    of_workload = (generation for generation in recent.answers if generation.workload == workload)
    answers = [generation for generation in of_workload if generation.answer.ended_ns >= oldest]
    setting = setting_document(knobs)
    return pair_answers(
        PairedAnswers(
            workload,
            context.canaries.get(workload, {}),
            answers=tuple(answer for answer in answers if setting_document(answer.setting) == setting),
            plain=tuple(answer for answer in answers if speculates(knobs) and not speculates(answer.setting)),
            level=context.confidence,
            seed=0,
            greedy=context.greedy,
        )
    )


def _window_s(guard: Guard, context: GuardContext) -> float:
    watch = context.policy.watch
    return guard.over or (watch.interval if guard.of.host else watch.window)


def judge_series(guard: Guard, series: GuardSeries, error: float, confidence: float) -> Check:
    """Judge the latest values, then ever longer stretches, until one of them decides.

    So earlier good values do not dilute a loss, and earlier bad values do not dilute a recovery.
    """
    if series.missing:
        return _check(guard, Missing(series.missing, len(series.values)))
    count = series.least(error)
    for _ in range(STRETCHES):
        if count > len(series.values):
            break
        latest, notes = series.values[-count:], (f"last {count} values", *series.notes)
        crossed = _check(guard, _with_notes(series.bounded(latest, error), *notes), slack=series.slack)
        if crossed.outcome is Outcome.FAIL:
            return crossed
        passing = _check(guard, _with_notes(series.bounded(latest, 1 - confidence), *notes))
        if passing.outcome is Outcome.PASS:
            return passing
        count *= 2
    return _as_undecided(_check(guard, _with_notes(series.bounded(series.values, 1 - confidence), *series.notes)))


def _check(guard: Guard, measured: Estimate | Missing, *, slack: float = 0.0) -> Check:
    return check_bound(guard.of, guard.bound, guard.threshold * (1 - slack), measured, why=guard.why)


def _as_undecided(check: Check) -> Check:
    """Return a crossing at the confidence of a single round as undecided: among many rounds some show one by chance."""
    if check.outcome is not Outcome.FAIL:
        return check
    return replace(check, outcome=Outcome.UNPROVEN, because=f"{check.because}; not significant over all rounds")


def _with_notes(estimate: Estimate | Missing, *notes: str) -> Estimate | Missing:
    return replace(estimate, notes=(*estimate.notes, *notes)) if isinstance(estimate, Estimate) else estimate


def _judge_paired_passes(
    guard: Guard, evidence: PairedAnswers, error: float, confidence: float
) -> tuple[Check, int | None]:
    """Judge a difference of pass rates; as a fact, as the gate does, once both arms answered every canary twice."""
    counts = [Counter(generation.canary for generation in arm) for arm in (evidence.answers, evidence.plain)]
    canaries = {name: canary for name, canary in evidence.canaries.items() if all(count[name] for count in counts)}
    twice = len(canaries) == len(evidence.canaries) and all(count[name] > 1 for count in counts for name in canaries)
    shared = replace(
        evidence,
        canaries=canaries,
        answers=tuple(generation for generation in evidence.answers if generation.canary in canaries),
        plain=tuple(generation for generation in evidence.plain if generation.canary in canaries),
        frozen=twice,
    )
    newest = max((generation.answer.ended_ns for generation in shared.plain), default=None)
    for level in (1 - error, confidence):
        difference = estimate(guard.metric, replace(shared, level=level))
        check = _check(guard, difference)
        if check.outcome is Outcome.FAIL and level == 1 - error:
            return check, newest
    return _as_undecided(check), newest


def _detect_fall(
    guard: Guard, route: Route, recent: GuardEvidence, evidence: PairedAnswers, context: GuardContext
) -> tuple[Check, int] | None:
    """Return a fall of the acceptance and its begin, by the canaries or by the server's own counters.

    The counters see the real prompts, but of all routes together: if these are below the lowest of their bounds, at
    least one route is. They never show a bound kept.
    """
    policy, spread = context.policy, guard_values.acceptance_spread(route.measured.acceptance_rate)
    rounds = max(1.0, policy.lifetime / policy.watch.interval)
    error = fall_error(policy, route.workload)
    oldest = recent.now_ns - _window_s(guard, context) * SECOND
    lowest = min(peer.threshold for peer in policy.guard if peer.metric == guard.metric)
    gains = [gain for gain in recent.counter_gains if gain.at_ns >= oldest] if guard.threshold <= lowest else []
    answered, claimed = guard_values.acceptance_units(evidence)
    for units, looks, notes_of_units in (
        (answered, rounds * policy.watch.canaries, claimed),
        (guard_values.counter_units(gains, policy.conditions.max_tokens), rounds, ("by the server's counters",)),
    ):
        fall = fall_detection.detect(
            units, guard.threshold, spread, fall_detection.compute_needed_evidence(looks, error)
        )
        if fall is not None:
            notes = (f"last {fall.values} values", *notes_of_units)
            below = Estimate(fall.mean, 0.0, fall.highest, fall.values, notes=notes, confidence=1 - error)
            return _check(guard, below), fall.since_ns
    return None


def _judge_host(guard: Guard, workload: str, recent: GuardEvidence, context: GuardContext) -> GuardResult:
    """Judge a host metric over the guard's window: a fact, given enough samples."""
    window_s = _window_s(guard, context)
    begun = max(recent.since_ns, recent.now_ns - round(window_s * SECOND))
    samples = [sample for sample in recent.samples if sample.at_ns >= begun]
    if not samples:
        check = _check(guard, Missing("the host was not sampled"))
        return GuardResult(guard, workload, check, None)
    spans = {samples[-1].segment: (begun, recent.now_ns)}
    samples = [sample for sample in samples if sample.segment in spans]
    sampled = HostSamples(samples, context.host_interval, spans)
    by_sensors = guard.metric == "throttle_time"
    measured = throttle_time_by_sensors(sampled) if by_sensors else host.estimate(guard.metric, sampled)
    check = _check(guard, measured)
    seconds = (recent.now_ns - begun) / SECOND
    if check.outcome is Outcome.PASS and seconds < window_s:
        short = f"{check.because}, but only {show_seconds(seconds)} of {show_seconds(window_s)} were sampled"
        check = replace(check, outcome=Outcome.UNPROVEN, because=short)
    return GuardResult(guard, workload, check, None if isinstance(measured, Missing) else samples[-1].at_ns)


def _series(guard: Guard, evidence: PairedAnswers, measured: MeasuredRoute, slack: float) -> GuardSeries:
    """Return the values of a guard's metric, as its row in the table of metrics says."""
    if guard.of.speed_ratio:
        return guard_values.ratio_series(evidence, measured, slack)
    if guard.of.quantile is not None:
        return guard_values.median_series(guard.metric, evidence)
    if guard.of.pass_rate is not None:
        return _passes_against_certified(guard.of.pass_rate, evidence, measured)
    of_passes = guard.metric == PASS_RATE.name
    return guard_values.pass_series(evidence) if of_passes else guard_values.fault_series(evidence)


def _passes_against_certified(rate: PassRate, evidence: PairedAnswers, measured: MeasuredRoute) -> GuardSeries:
    """Return the pass rate minus the certified one, for servers without plain decoding."""
    certified: MeasuredValue | None = getattr(measured, rate.figure)
    series = guard_values.pass_series(evidence, rate.kind)
    if certified is None:
        reason = "plain decoding is not available, and the policy has no pass rate to compare with"
        return replace(series, missing=reason)

    def bound_difference(values: Sequence[float], error: float) -> Estimate | Missing:
        share = series.bounded(values, error)
        if isinstance(share, Missing):
            return share
        # The certified rate is an estimate too: each bound takes the opposite end of its interval.
        center, lo, hi = share.center - certified.center, share.lo - certified.hi, share.hi - certified.lo
        return replace(share, center=center, lo=lo, hi=hi)

    return replace(series, bounded=bound_difference, notes=("against the certified pass rate",))


def _judge_whole_set(guard: Guard, measured: MeasuredRoute, evidence: PairedAnswers, check: Check) -> Check:
    """Return a pass shown by the whole frozen set, for a bound so high that no interval could meet it."""
    rate = PASS_RATES.get(guard.metric)
    figure: MeasuredValue | None = getattr(measured, rate.figure) if rate else None
    if rate is None or figure is None or check.outcome is not Outcome.UNPROVEN or not evidence.greedy:
        return check
    share = guard_values.pass_rate_of_whole_set(evidence, rate.kind)
    if share is None:
        return check
    note = "over the whole set, against the certified pass rate"
    difference = fact(share - figure.center, len(evidence.canaries), note)
    counted = _check(guard, difference)
    return counted if counted.outcome is Outcome.PASS else check


def answers_until_seen(policy: Policy, route: Route, guard: Guard) -> int | None:
    """Return the answers after which *guard* sees acceptance at half of what was certified; None: it never would.

    This is the mean of the evidence of an answer (`live/guards/fall_detection.py`) against what the policy's life
    needs.
    """
    certified = route.measured.acceptance_rate
    if certified is None or guard.threshold <= (half := certified.center / 2):
        return None
    rounds = max(1.0, policy.lifetime / policy.watch.interval)
    needed = fall_detection.compute_needed_evidence(rounds * policy.watch.canaries, fall_error(policy, route.workload))
    gain = fall_detection.step(half, 1.0, guard.threshold, acceptance_spread(certified))
    answers = needed / gain if gain > 0 else math.inf
    return math.ceil(answers) if math.isfinite(answers) else None


def server_seconds(policy: Policy, *, both_arms: bool) -> dict[str, float]:
    """Return the seconds of canaries, at full length, after which each guarded route sees acceptance at half.

    With *both_arms* each canary has a plain answer beside it. A route without a measured speed is left out.
    """
    seconds_by_workload = {}
    for guard in policy.guard:
        for route in policy.route:
            speed, ratio = route.measured.decode_throughput, route.measured.throughput_ratio
            if guard.metric != "acceptance_rate" or guard not in policy.guards_of(route.workload) or speed is None:
                continue
            answers = answers_until_seen(policy, route, guard)
            if answers is not None:
                plain = ratio.center if both_arms and ratio is not None else 0.0
                seconds = (
                    answers * policy.conditions.max_tokens * (1 + plain) / speed.center
                    if speed.center > 0
                    else math.inf
                )
                if math.isfinite(seconds):
                    seconds_by_workload[route.workload] = seconds
    return seconds_by_workload
