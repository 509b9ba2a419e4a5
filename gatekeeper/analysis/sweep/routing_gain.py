"""Routing: what one route per workload gains over the best single setting, under the soak profile's mix."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

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
Answered = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]
"""By workload and trial, and by canary: the mean tokens and seconds of an answer."""


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


@dataclass(frozen=True, slots=True)
class _Mix:
    """The workloads that a soak mixes, each with its weight and route, and what the sweep shows of each setting."""

    plan: SweepPlan
    weights: Mapping[str, float]
    routes: Mapping[str, Setting]
    swept: Answered
    usual: list[Trial]
    """Plain decoding and the candidates under the default conditions whose answers are all without fault."""

    @classmethod
    def of(
        cls, plan: SweepPlan, records: Records, weights: Mapping[str, float], routes: Mapping[str, Setting]
    ) -> "_Mix | Missing":
        """Return the mix; Missing where there is nothing to route, or the sweep has nothing to compare."""
        routed = {name: route for name, route in routes.items() if weights.get(name, 0.0) > 0}
        if len(routed) < 2:
            return Missing("with one workload there is nothing to route")
        conditions = conditions_of(plan.candidates[0].setting) if plan.candidates else None
        usual = [
            trial
            for trial in plan.trials
            if conditions_of(trial.setting) == conditions and trial.name != NULL
            if (answers := records.get(trial.name)) and all(generation.answer.fault is None for generation in answers)
        ]
        if len(usual) < 2 or all(trial.arm != "plain" for trial in usual):
            return Missing(
                "the sweep has no pair of plain and speculating settings whose answers are all without fault"
            )
        swept = _answered(chain.from_iterable(records.values()))
        return cls(plan, {name: weights[name] for name in routed}, routed, swept, usual)

    def tables(self, trials: Sequence[Trial], again: Answered) -> list[intervals.Floats]:
        """Return, by workload, the tokens and seconds of an answer by canary and trial, of canaries that all answered.

        What was answered *again* is taken as fast as in the sweep: plain decoding shows how the machine changed.
        """
        return [self._table(name, trials, again) for name in self.routes]

    def _table(self, workload: str, trials: Sequence[Trial], again: Answered) -> intervals.Floats:
        plain_again, plain = (side.get((workload, BASELINE), {}) for side in (again, self.swept))
        repeated = sorted(plain_again.keys() & plain.keys())
        now, then = (sum(side[canary][1] for canary in repeated) or 1.0 for side in (plain_again, plain))
        columns = []
        for trial in trials:
            answered_again = again.get((workload, trial.name), {})
            as_then = {canary: (tokens, seconds * then / now) for canary, (tokens, seconds) in answered_again.items()}
            columns.append({**as_then, **self.swept.get((workload, trial.name), {})})
        shared = sorted(set.intersection(*map(set, columns)))
        cells = np.array([[column[canary] for column in columns] for canary in shared], dtype=np.float64)
        return cells.reshape(len(shared), len(trials), 2)

    def is_complete(self, tables: Sequence[intervals.Floats]) -> bool:
        """Return whether the *tables* of the usual settings hold every route, with canaries enough."""
        return min(map(len, tables)) >= LEAST and all(_served(self.usual, route) for route in self.routes.values())

    def contenders(self) -> list[Trial]:
        """Return plain decoding, the routes, swept or not, and the best of the other settings."""
        contenders = [trial for trial in self.usual if trial.arm == "plain"][:1]
        conditions = dict(conditions_of(self.plan.candidates[0].setting))
        for number, route in enumerate(self.routes.values()):
            made_up = Trial(f"route-{number}", "candidate", setting(**{**conditions, **dict(chosen_of(route))}))
            trial = _served(self.usual, route) or _served(contenders, route) or made_up
            contenders += [trial] if trial not in contenders else []
        rest = [trial for trial in self.usual if trial not in contenders]
        return contenders + sorted(rest, key=self._slowness)[:OTHERS]

    def _slowness(self, trial: Trial) -> float:
        """Return a setting's seconds over plain decoding's, each workload by the canaries that both answered."""
        spent = 0.0
        for name, weight in self.weights.items():
            answers, plain = (self.swept.get((name, arm), {}) for arm in (trial.name, BASELINE))
            shared = answers.keys() & plain.keys()
            if not shared:
                return math.inf
            now, then = (sum(side[canary][1] for canary in sorted(shared)) for side in (answers, plain))
            spent += weight * fmean(seconds for _, seconds in plain.values()) * now / then
        return spent


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
    mix = _Mix.of(plan, records, weights, routes)
    if isinstance(mix, Missing):
        return mix
    again = _answered(routing_answers)
    trials, tables = mix.usual, mix.tables(mix.usual, again)
    if again and not mix.is_complete(tables):
        trials = mix.contenders()
        tables = mix.tables(trials, again)
    columns = []
    for name, route in mix.routes.items():
        trial = _served(trials, route)
        if trial is None:
            return Missing(f"the sweep did not measure the setting of the route of {name}")
        columns.append(trials.index(trial))
    few = min(map(len, tables))
    if few < LEAST:
        return Missing(f"only {few} canaries were answered at every setting, {LEAST} are needed")

    random, weighed = np.random.default_rng(plan.seed), [*mix.weights.values()]
    (policy,), (static,) = _blended([table[None] for table in tables], weighed, columns)
    drawn = [table[random.integers(0, len(table), size=(intervals.RESAMPLES, len(table)))] for table in tables]
    policies, statics = _blended(drawn, weighed, columns)
    plain = next(number for number, trial in enumerate(trials) if trial.arm == "plain")
    best, streams = int(static.argmax()), concurrency_of(slo, trials[plain].setting)
    compared = Routing(
        policy_throughput=float(policy) * streams,
        best=trials[best],
        best_throughput=float(static[best]) * streams,
        plain_throughput=float(static[plain]) * streams,
        gain=_interval(policy / static[best], policies / statics.max(axis=1), slo.confidence, few),
        against_plain=_interval(policy / static[plain], policies / statics[:, plain], slo.confidence, few),
        says="",
    )
    return replace(compared, says=_says(compared, routes, reasons or {}))


def routing_requests(
    slo: Slo, plan: SweepPlan, records: Records, weights: Mapping[str, float], routes: Mapping[str, Setting]
) -> list[RoutingRequest]:
    """Return what must be asked so that the routes can be compared with the best single setting; nothing if they can.

    A sweep that stops early leaves too few canaries in common, and the combined best values of two knobs were never
    swept. Each setting that can matter gets ROUTED_CANARIES canaries of every workload. Plain decoding answers them
    again, which shows by how much the machine became faster or slower since the sweep.
    """
    mix = _Mix.of(plan, records, weights, routes)
    if isinstance(mix, Missing) or concurrency_of(slo, mix.usual[0].setting) != 1:
        return []
    if mix.is_complete(mix.tables(mix.usual, {})):
        return []
    trials, requests = mix.contenders(), []
    for name in mix.routes:
        have = {trial.name: mix.swept.get((name, trial.name), {}) for trial in trials}
        by_answers = sorted(have[BASELINE], key=lambda canary: -sum(canary in answered for answered in have.values()))
        most = by_answers[:ROUTED_CANARIES]
        lacking = [(trial, canary) for trial in trials for canary in most if canary not in have[trial.name]]
        if lacking:
            requests += [RoutingRequest(trials[0], name, canary) for canary in most]
            requests += [RoutingRequest(trial, name, canary) for trial, canary in lacking]
    return requests


def _served(trials: Sequence[Trial], route: Setting) -> Trial | None:
    """Return the trial that measured a route."""
    for trial in trials:
        if not speculates(route):
            if trial.arm == "plain":
                return trial
        elif trial.arm == "candidate" and dict(chosen_of(trial.setting)) == dict(chosen_of(route)):
            return trial
    return None


def _answered(records: Iterable[Generation]) -> Answered:
    timed: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for generation in records:
        answer = generation.answer
        seconds = answer.seconds
        if generation.role is not Role.WARMUP and answer.fault is None and answer.output_tokens and seconds > 0:
            timed[generation.workload, generation.trial][generation.canary].append((answer.output_tokens, seconds))
    return {
        key: {
            canary: (fmean(tokens for tokens, _ in answers), fmean(seconds for _, seconds in answers))
            for canary, answers in by_canary.items()
        }
        for key, by_canary in timed.items()
    }


def _blended(
    drawn: Sequence[intervals.Floats], weights: Sequence[float], columns: Sequence[int]
) -> tuple[intervals.Floats, intervals.Floats]:
    """Return, by draw, the policy's tokens per second, and those of each setting used for all workloads."""
    means = np.stack([weight * cells.mean(axis=1) for cells, weight in zip(drawn, weights, strict=True)])
    static = means.sum(axis=0)
    policy = means[np.arange(len(columns)), :, columns].sum(axis=0)
    return policy[:, 0] / policy[:, 1], static[..., 0] / static[..., 1]


def _interval(center: float, draws: intervals.Floats, level: float, n: int) -> Estimate:
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
