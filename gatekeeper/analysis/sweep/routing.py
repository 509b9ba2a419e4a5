"""Routing: what one route per workload gains over the best single setting, under the soak profile's mix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from gatekeeper.analysis.plan.settings import chosen_of, concurrency_of, conditions_of, speculates
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, ROUTED_CANARIES, SweepPlan, Trial
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Generation, Role, Setting, setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.verdict import Estimate, Missing, figures, rounded

LEAST = 5
"""Canaries that every setting must have answered, per workload: fewer are too few to resample."""
OTHERS = 3
"""Settings that are no route and are still compared then: the best of the others, by what the sweep has of them."""

Records = Mapping[str, Sequence[Generation]]


@dataclass(frozen=True, slots=True)
class _Table:
    """Tokens and seconds of an answer, by canary (rows) and setting (columns), of one workload."""

    weight: float
    tokens: intervals.Floats
    seconds: intervals.Floats


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """One request that the comparison of routes lacks."""

    trial: Trial
    workload: str
    canary: str

    @property
    def key(self) -> str:
        """Name the request uniquely in its record file."""
        return f"routing:{self.trial.name}:{self.workload}/{self.canary}"


@dataclass(frozen=True, slots=True)
class Routing:
    """What one route per workload gains over one setting for all of them."""

    policy_throughput: float
    """Tokens per second over the mix of workloads, each on its route."""
    best: Trial
    """The best single setting."""
    best_throughput: float
    plain_throughput: float
    gain: Estimate
    """The routes over the best single setting."""
    against_plain: Estimate
    """The routes over plain decoding."""
    says: str

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "policy_throughput": rounded(self.policy_throughput),
            "best_static": {
                "trial": self.best.name,
                "setting": dict(self.best.setting),
                "throughput": rounded(self.best_throughput),
            },
            "plain_throughput": rounded(self.plain_throughput),
            "gain": figures("center", self.gain),
            "against_plain": figures("center", self.against_plain),
            "says": self.says,
        }


def routing(
    slo: Slo,
    plan: SweepPlan,
    records: Records,
    weights: Mapping[str, float],
    routes: Mapping[str, Setting],
    *,
    routing_answers: Sequence[Generation] = (),
    reasons: Mapping[str, str] | None = None,
) -> Routing | Missing:
    """Return the policy's blended speed, the best single setting's and plain decoding's.

    Blended speed is all tokens over all time of the mix, from the sweep and from the *routing_answers* of the end of
    the run. Canaries are resampled in all settings together, and every draw picks its own best single setting, so that
    the gain is not biased by one lucky pick. *reasons* say by workload why it has its route.
    """
    workloads = _routed(weights, routes)
    if len(workloads) < 2:
        return Missing("with one workload there is nothing to route")
    usual = _faultless(plan, records)
    if usual is None:
        return Missing("the sweep has no pair of plain and speculating settings whose answers are all without fault")
    trials = usual
    every = [_table(records, routing_answers, name, trials, weights[name]) for name in workloads]
    if min(len(table.tokens) for table in every) < LEAST or not all(
        _served(trials, routes[name]) for name in workloads
    ):
        trials = _contenders(plan, records, weights, routes, usual) if routing_answers else usual
        every = [_table(records, routing_answers, name, trials, weights[name]) for name in workloads]
    picked = [_served(trials, routes[name]) for name in workloads]
    if unmeasured := [name for name, route in zip(workloads, picked, strict=True) if route is None]:
        return Missing(f"the sweep did not measure the setting of the route of {unmeasured[0]}")
    few = min(len(table.tokens) for table in every)
    if few < LEAST:
        return Missing(f"only {few} canaries were answered at every setting, {LEAST} are needed")
    columns = [trials.index(route) for route in picked if route is not None]
    compared = _compared(slo, trials, every, columns, plan.seed)
    return replace(compared, says=_says(compared, routes, reasons or {}))


def routing_requests(
    slo: Slo, plan: SweepPlan, records: Records, weights: Mapping[str, float], routes: Mapping[str, Setting]
) -> list[RoutingRequest]:
    """Return what must be asked so that the routes can be compared with the best single setting; nothing if they can.

    A sweep that stops early leaves too few canaries in common, and the combined best values of two knobs were never
    swept. Each setting that can matter gets ROUTED_CANARIES canaries of every workload. Plain decoding answers them
    again, which shows by how much the machine became faster or slower since the sweep.
    """
    usual, workloads = _faultless(plan, records), _routed(weights, routes)
    if usual is None or len(workloads) < 2 or concurrency_of(slo, usual[0].setting) != 1:
        return []
    every = [_table(records, (), name, usual, weights[name]) for name in workloads]
    swept = all(_served(usual, routes[name]) for name in workloads)
    if swept and min(len(table.tokens) for table in every) >= LEAST:
        return []
    trials = _contenders(plan, records, weights, routes, usual)
    requests = []
    for name in workloads:
        have = {trial.name: _answered(records.get(trial.name, ()), name) for trial in trials}
        plain_answers = have[BASELINE]
        by_answers = sorted(plain_answers, key=lambda canary: -sum(canary in answered for answered in have.values()))
        most = by_answers[:ROUTED_CANARIES]
        lacking = [(trial, canary) for trial in trials for canary in most if canary not in have[trial.name]]
        if lacking:
            plain = next(trial for trial in trials if trial.name == BASELINE)
            requests += [RoutingRequest(plain, name, canary) for canary in most]
            requests += [RoutingRequest(trial, name, canary) for trial, canary in lacking]
    return requests


def _routed(weights: Mapping[str, float], routes: Mapping[str, Setting]) -> list[str]:
    return [name for name in routes if weights.get(name, 0.0) > 0]


def _faultless(plan: SweepPlan, records: Records) -> list[Trial] | None:
    """Return plain decoding and the candidates under the default conditions; None without a pair without faults."""
    usual = conditions_of(plan.candidates[0].setting) if plan.candidates else None
    trials = [trial for trial in plan.trials if conditions_of(trial.setting) == usual and trial.name != NULL]
    trials = [
        trial
        for trial in trials
        if (answers := records.get(trial.name)) and all(generation.answer.fault is None for generation in answers)
    ]
    return trials if len(trials) > 1 and any(trial.arm == "plain" for trial in trials) else None


def _served(trials: Sequence[Trial], route: Setting) -> Trial | None:
    """Return the trial that measured a route."""
    for trial in trials:
        if not speculates(route):
            if trial.arm == "plain":
                return trial
        elif trial.arm == "candidate" and dict(chosen_of(trial.setting)) == dict(chosen_of(route)):
            return trial
    return None


def _contenders(
    plan: SweepPlan, records: Records, weights: Mapping[str, float], routes: Mapping[str, Setting], usual: list[Trial]
) -> list[Trial]:
    """Return plain decoding, the routes, swept or not, and the best of the other settings."""
    contenders = [trial for trial in usual if trial.arm == "plain"][:1]
    conditions = dict(conditions_of(plan.candidates[0].setting))
    for number, name in enumerate(_routed(weights, routes)):
        made_up = setting(**{**conditions, **dict(chosen_of(routes[name]))})
        route = _served(usual, routes[name]) or _served(contenders, routes[name])
        route = route or Trial(f"route-{number}", "candidate", made_up)
        contenders += [route] if route not in contenders else []
    rest = [trial for trial in usual if trial not in contenders]
    speeds = {trial.name: _estimated(records, trial, contenders[0], weights, routes) for trial in rest}
    return contenders + sorted(rest, key=lambda trial: -speeds[trial.name])[:OTHERS]


def _estimated(
    records: Records, trial: Trial, plain: Trial, weights: Mapping[str, float], routes: Mapping[str, Setting]
) -> float:
    """Return a setting's blended speed over plain decoding's, each workload from the canaries that both answered."""
    before = after = 0.0
    for name in _routed(weights, routes):
        trial_answers, plain_answers = (_answered(records.get(arm.name, ()), name) for arm in (trial, plain))
        shared = trial_answers.keys() & plain_answers.keys()
        if not shared:
            return 0.0
        plain_seconds = weights[name] * fmean(seconds for _, seconds in plain_answers.values())
        before += plain_seconds
        now, then = (sum(answers[canary][1] for canary in shared) for answers in (trial_answers, plain_answers))
        after += plain_seconds * now / then
    return before / after


def _answered(records: Sequence[Generation], workload: str) -> dict[str, tuple[float, float]]:
    """Return the mean tokens and seconds of an answer, by canary."""
    by_canary: dict[str, list[tuple[int, float]]] = {}
    for generation in records:
        answer = generation.answer
        seconds = answer.seconds
        timed = generation.workload == workload and generation.role is not Role.WARMUP and answer.fault is None
        if timed and answer.output_tokens and seconds > 0:
            by_canary.setdefault(generation.canary, []).append((answer.output_tokens, seconds))
    return {
        name: (fmean(tokens for tokens, _ in answers), fmean(s for _, s in answers))
        for name, answers in by_canary.items()
    }


def _table(
    records: Records, routing_answers: Sequence[Generation], workload: str, trials: Sequence[Trial], weight: float
) -> _Table:
    again = {
        trial.name: _answered(
            [generation for generation in routing_answers if generation.trial == trial.name], workload
        )
        for trial in trials
    }
    swept = {trial.name: _answered(records.get(trial.name, ()), workload) for trial in trials}
    repeated = again.get(BASELINE, {}).keys() & swept.get(BASELINE, {}).keys()
    now, then = (
        (sum(side[BASELINE][canary][1] for canary in repeated) for side in (again, swept)) if repeated else (1.0, 1.0)
    )
    columns = [
        {canary: (tokens, seconds * then / now) for canary, (tokens, seconds) in again[trial.name].items()}
        | swept[trial.name]
        for trial in trials
    ]
    shared = sorted(set.intersection(*(set(column) for column in columns)))
    cells = np.array([[column[name] for column in columns] for name in shared], dtype=np.float64)
    cells = cells.reshape(len(shared), len(trials), 2)
    return _Table(weight, cells[:, :, 0], cells[:, :, 1])


def _compared(
    slo: Slo, trials: Sequence[Trial], tables: Sequence[_Table], columns: Sequence[int], seed: int
) -> Routing:
    random = np.random.default_rng(seed)
    all_rows = [np.arange(len(table.tokens))[None, :] for table in tables]
    drawn = [random.integers(0, len(table.tokens), size=(intervals.RESAMPLES, len(table.tokens))) for table in tables]
    (policy,), (static,) = _blended(tables, columns, all_rows)
    policies, statics = _blended(tables, columns, drawn)
    plain = next(number for number, trial in enumerate(trials) if trial.arm == "plain")
    best, streams = int(static.argmax()), concurrency_of(slo, trials[plain].setting)
    few = min(len(table.tokens) for table in tables)
    return Routing(
        policy_throughput=float(policy) * streams,
        best=trials[best],
        best_throughput=float(static[best]) * streams,
        plain_throughput=float(static[plain]) * streams,
        gain=_interval(policy / static[best], policies / statics.max(axis=1), slo.confidence, few),
        against_plain=_interval(policy / static[plain], policies / statics[:, plain], slo.confidence, few),
        says="",
    )


def _blended(
    tables: Sequence[_Table], columns: Sequence[int], rows: Sequence[Any]
) -> tuple[intervals.Floats, intervals.Floats]:
    """Return, by draw, the policy's tokens per second, and those of each setting used for all workloads."""
    tokens = [table.weight * table.tokens[drawn].mean(axis=1) for table, drawn in zip(tables, rows, strict=True)]
    seconds = [table.weight * table.seconds[drawn].mean(axis=1) for table, drawn in zip(tables, rows, strict=True)]
    statics: intervals.Floats = sum(tokens[1:], tokens[0]) / sum(seconds[1:], seconds[0])
    routed = [(t[:, column], s[:, column]) for t, s, column in zip(tokens, seconds, columns, strict=True)]
    policy: intervals.Floats = sum((t for t, _ in routed[1:]), routed[0][0]) / sum(
        (s for _, s in routed[1:]), routed[0][1]
    )
    return policy, statics


def _interval(center: Any, draws: intervals.Floats, level: float, n: int) -> Estimate:
    lo, hi = np.exp(intervals.bootstrap_bounds(np.log(draws), level, n))
    return Estimate(float(center), float(lo), float(hi), n).rounded()


def _says(compared: Routing, routes: Mapping[str, Setting], reasons: Mapping[str, str]) -> str:
    """Say whether routing wins; where one setting for all is faster, say why the routes are not that setting."""
    workloads = [name for name, route in routes.items() if not _served([compared.best], route)]
    if not workloads:
        return "the policy uses this one setting for all workloads"
    if compared.gain.lo > 1:
        return "routing is faster than the best single setting"
    if compared.gain.hi >= 1:
        return "routing is not proven faster than the best single setting"
    reason = "; ".join(f"{name}: {reasons[name]}" for name in workloads if reasons.get(name))
    return f"the best single setting is faster{f', but not chosen: {reason}' if reason else ''}"
