"""A guard's judgement: one bound of a policy against what was lately seen, by the statistics of the gate.

A bound is *crossed* (FAIL) when the whole interval lies beyond it, *kept* (PASS) when the whole interval keeps it. What
lies between is undecided: the certificate stands while evidence flows, and it is not enough to come back on.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gatekeeper.analysis.metrics import host_memory, host_throttling
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.plan.settings import setting_document, speculates
from gatekeeper.analysis.verdict.checks import check_bound
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import PASS_RATES, PassRate
from gatekeeper.core.policy import Figure, Guard, Measured, Policy, Route
from gatekeeper.core.records import Generation, HostSample, Setting
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Check, Estimate, Missing, Outcome, fact
from gatekeeper.deploy.watch.guard_samples import Trace, acceptances, census, faults, passes, ratios, speeds, tallied

SECOND = 1_000_000_000
STRETCHES = 6
"""How many stretches a crossing is looked for in, each twice as long as the last."""
AWAKE = frozenset({"error_rate", "canary_pass_rate"})
"""What is judged of plain answers as well."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How a server's own counters moved between two looks, over all that it answered."""

    at_ns: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was lately seen of one workload: no more than what may still be judged, the oldest first."""

    now_ns: int
    """Monotonic, as every instant here."""
    since_ns: int
    """When the collecting began: the last change of the setting, the start, or the end of a sleep."""
    answers: tuple[Generation, ...] = ()
    """Of both arms, in the order of `verdict.rotation`, with the setting each was asked with; twins share a pair."""
    samples: tuple[HostSample, ...] = ()
    tallies: tuple[Tally, ...] = ()
    """Of the whole server: they speak for the route only through the lowest acceptance floor of all routes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a guard is judged, beside its bound."""

    policy: Policy
    canaries: Mapping[str, Mapping[str, Canary]]
    """By workload and id."""
    greedy: bool
    host_interval: float
    """Seconds between two host samples."""
    confidence: float = 0.95
    """Of a bound that is kept: what takes a route up again."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One guard at one look."""

    guard: Guard
    workload: str
    check: Check
    """PASS: kept. FAIL: crossed. UNPROVEN: undecided, too little yet, missing, or asleep."""
    fresh_ns: int | None
    """When the newest evidence came that it may rest on; None: there is none to rest on."""
    asleep: bool = False
    """Of speculation, which is off and not tried: it says nothing either way."""

    @property
    def outcome(self) -> Outcome:
        """Return the check's outcome."""
        return self.check.outcome


def judge(guard: Guard, route: Route, seen: Seen, terms: Terms, knobs: Setting) -> Judgement:
    """Judge *guard* for *route* by the answers that were asked with *knobs*: those in force, or those on trial.

    With plain *knobs* a guard of speculation is asleep; errors, the canaries' pass rate and the host are judged.
    """
    if guard.of.host:
        return _of_host(guard, route.workload, seen, terms)
    if not speculates(knobs) and guard.metric not in AWAKE:
        check = check_bound(guard.of, guard.bound, guard.threshold, Missing("speculation is off"), why=guard.why)
        return Judgement(guard, route.workload, check, None, asleep=True)
    error = look_error(terms, route.workload)
    evidence = _evidence(guard, route.workload, seen, terms, knobs)
    if guard.metric in PASS_RATES and evidence.plain:
        check, newest = _paired_passes(guard, evidence, error, terms.confidence)
    else:
        trace = _TRACES[guard.metric](evidence, route.measured, terms.policy.watch.slack)
        check, newest = crossed_or_kept(guard, trace, error, terms.confidence), trace.newest_ns
        newest = None if trace.missing else newest
        check = _by_census(guard, route.measured, evidence, check)
    if guard.metric == "acceptance_rate" and check.outcome is not Outcome.FAIL:
        check = _by_counters(guard, seen, terms, error) or check
    thin = check.center is None and seen.now_ns - seen.since_ns >= _over(guard, terms) * SECOND
    return Judgement(guard, route.workload, check, None if thin else newest)


def judgements(workload: str, seen: Seen, terms: Terms, knobs: Setting) -> tuple[Judgement, ...]:
    """Judge every guard of *workload*."""
    route = terms.policy.route_of(workload)
    return tuple(judge(guard, route, seen, terms, knobs) for guard in terms.policy.guards_of(workload))


def look_error(terms: Terms, workload: str) -> float:
    """Return the error each bound at each look may spend, so that a whole life of looks wrongly steps down seldom.

    It is split over all looks, guards and stretches (Bonferroni). They overlap, so together they spend less.
    """
    policy = terms.policy
    sampled = [guard for guard in policy.guards_of(workload) if not guard.of.host]
    sharing = len(sampled) + any(guard.metric == "acceptance_rate" for guard in sampled)
    looks = max(1.0, policy.life / policy.watch.interval)
    return policy.watch.false_alarms / (looks * max(1, sharing) * STRETCHES)


def _evidence(guard: Guard, workload: str, seen: Seen, terms: Terms, knobs: Setting) -> PairedAnswers:
    """Gather the answers of one setting, and the plain ones beside them, no older than the guard looks back."""
    oldest = seen.now_ns - _over(guard, terms) * SECOND
    recent = [one for one in seen.answers if one.workload == workload and one.answer.ended_ns >= oldest]
    wanted = setting_document(knobs)
    return pair_answers(
        PairedAnswers(
            workload,
            terms.canaries.get(workload, {}),
            answers=tuple(one for one in recent if setting_document(one.setting) == wanted),
            plain=tuple(one for one in recent if speculates(knobs) and not speculates(one.setting)),
            level=terms.confidence,
            seed=0,
            greedy=terms.greedy,
        )
    )


def _over(guard: Guard, terms: Terms) -> float:
    """Return the seconds a guard looks back."""
    watch = terms.policy.watch
    return guard.over or (watch.interval if guard.of.host else watch.window)


def crossed_or_kept(guard: Guard, trace: Trace, error: float, confidence: float) -> Check:
    """Look at the latest values, then at ever longer stretches: the latest that decides, decides.

    So a loss is not diluted by the good time before it, nor a recovery by the bad one.
    """
    metric, bound, limit = guard.of, guard.bound, guard.threshold
    if trace.missing:
        return check_bound(metric, bound, limit, Missing(trace.missing, len(trace.values)), why=guard.why)
    count = trace.least(error)
    for _ in range(STRETCHES):
        if count > len(trace.values):
            break
        latest, notes = trace.values[-count:], (f"the last {count}", *trace.notes)
        seen = _noted(trace.bounded(latest, error), *notes)
        check = check_bound(metric, bound, limit * (1 - trace.slack), seen, why=guard.why)
        if check.outcome is Outcome.FAIL:
            return check
        kept = check_bound(metric, bound, limit, _noted(trace.bounded(latest, 1 - confidence), *notes), why=guard.why)
        if kept.outcome is Outcome.PASS:
            return kept
        count *= 2
    seen = _noted(trace.bounded(trace.values, 1 - confidence), *trace.notes)
    return _not_yet(check_bound(metric, bound, limit, seen, why=guard.why))


def _not_yet(check: Check) -> Check:
    """Leave undecided what is crossed at a single look's confidence only: of so many looks some will show that."""
    if check.outcome is not Outcome.FAIL:
        return check
    return replace(check, outcome=Outcome.UNPROVEN, because=f"{check.because}; among so many looks that is no proof")


def _noted(estimate: Estimate | Missing, *notes: str) -> Estimate | Missing:
    return replace(estimate, notes=(*estimate.notes, *notes)) if isinstance(estimate, Estimate) else estimate


def _paired_passes(guard: Guard, evidence: PairedAnswers, error: float, confidence: float) -> tuple[Check, int | None]:
    """Judge a difference of pass rates: as a fact once both arms gave every canary's answer twice, as the gate does."""
    asked = [Counter(one.canary for one in arm) for arm in (evidence.answers, evidence.plain)]
    both = {name: canary for name, canary in evidence.canaries.items() if all(count[name] for count in asked)}
    twice = len(both) == len(evidence.canaries) and all(count[name] > 1 for count in asked for name in both)
    known = replace(
        evidence,
        canaries=both,
        answers=tuple(one for one in evidence.answers if one.canary in both),
        plain=tuple(one for one in evidence.plain if one.canary in both),
        frozen=twice,
    )
    newest = max((one.answer.ended_ns for one in known.plain), default=None)
    for level in (1 - error, confidence):
        seen = estimate(guard.metric, replace(known, level=level))
        check = check_bound(guard.of, guard.bound, guard.threshold, seen, why=guard.why)
        if check.outcome is Outcome.FAIL and level == 1 - error:
            return check, newest
    return _not_yet(check), newest


def _by_counters(guard: Guard, seen: Seen, terms: Terms, error: float) -> Check | None:
    """Return a crossing by the server's own counters; they see the real prompts, but of all routes together.

    Where all routes together lie below the lowest of their floors, so does one of them. They never speak for a route.
    """
    floors = [one.threshold for one in terms.policy.guard if one.metric == guard.metric]
    oldest = seen.now_ns - _over(guard, terms) * SECOND
    moved = [one for one in seen.tallies if one.drafted > 0 and one.at_ns >= oldest]
    if guard.threshold > min(floors) or not moved:
        return None
    trace = tallied((one.at_ns, one.accepted / one.drafted) for one in moved)
    check = crossed_or_kept(guard, trace, error, terms.confidence)
    return check if check.outcome is Outcome.FAIL else None


def _of_host(guard: Guard, workload: str, seen: Seen, terms: Terms) -> Judgement:
    """Judge a metric of the host over its latest stretch: a fact, given enough samples."""
    begun = max(seen.since_ns, seen.now_ns - round(_over(guard, terms) * SECOND))
    recent = [one for one in seen.samples if one.at_ns >= begun]
    if not recent:
        check = check_bound(guard.of, guard.bound, guard.threshold, Missing("the host was not sampled"), why=guard.why)
        return Judgement(guard, workload, check, None)
    spans = {recent[-1].segment: (begun, seen.now_ns)}
    recent = [one for one in recent if one.segment in spans]
    read = (
        host_throttling.throttle_time_by_sensors
        if guard.metric == "throttle_time"
        else partial(host_memory.estimate, guard.metric)
    )
    found = read(recent, interval=terms.host_interval, spans=spans)
    check = check_bound(guard.of, guard.bound, guard.threshold, found, why=guard.why)
    seconds = (seen.now_ns - begun) / SECOND
    if check.outcome is Outcome.PASS and seconds < _over(guard, terms):
        short = f"{check.because}, but only {show_seconds(seconds)} were seen"
        check = replace(check, outcome=Outcome.UNPROVEN, because=short)
    return Judgement(guard, workload, check, None if isinstance(found, Missing) else recent[-1].at_ns)


def _passes_against_certified(rate: PassRate) -> Callable[[PairedAnswers, Measured, float], Trace]:
    """Return what reads a pass rate less the certified one, for where no plain decoding is at hand."""

    def read(evidence: PairedAnswers, measured: Measured, _: float) -> Trace:
        certified: Figure | None = getattr(measured, rate.figure)
        trace = passes(evidence, rate.kind)
        if certified is None:
            return replace(
                trace, missing="no plain decoding is at hand, and the policy has no pass rate to compare with"
            )

        def bounded(values: Sequence[float], error: float) -> Estimate | Missing:
            seen = trace.bounded(values, error)
            if isinstance(seen, Missing):
                return seen
            # The reference was a sample too: a bound takes the certified rate's far side.
            center, lo, hi = seen.center - certified.center, seen.lo - certified.hi, seen.hi - certified.lo
            return replace(seen, center=center, lo=lo, hi=hi)

        return replace(trace, bounded=bounded, notes=("against the certified pass rate",))

    return read


def _by_census(guard: Guard, measured: Measured, evidence: PairedAnswers, check: Check) -> Check:
    """Return a pass that the whole frozen set shows, where no interval of a bound at the very top could."""
    rate = PASS_RATES.get(guard.metric)
    figure: Figure | None = getattr(measured, rate.figure) if rate else None
    if rate is None or figure is None or check.outcome is not Outcome.UNPROVEN or not evidence.greedy:
        return check
    share = census(evidence, rate.kind)
    if share is None:
        return check
    whole = fact(share - figure.center, len(evidence.canaries), "on the whole set, against the certified pass rate")
    counted = check_bound(guard.of, guard.bound, guard.threshold, whole, why=guard.why)
    return counted if counted.outcome is Outcome.PASS else check


_TRACES: dict[str, Callable[[PairedAnswers, Measured, float], Trace]] = {
    "throughput_ratio": ratios,
    "decode_throughput": lambda evidence, _measured, _slack: speeds(evidence),
    "acceptance_rate": lambda evidence, _measured, _slack: acceptances(evidence),
    "error_rate": lambda evidence, _measured, _slack: faults(evidence),
    "canary_pass_rate": lambda evidence, _measured, _slack: passes(evidence),
} | {name: _passes_against_certified(rate) for name, rate in PASS_RATES.items()}
