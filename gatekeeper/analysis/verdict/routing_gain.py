"""Routing: what one route per workload gains over the best single setting, under the soak profile's mix.

The soak measured each workload on its own route, the sweep on every setting; plain decoding, which both measured, shows
by how much the machine became faster or slower in between.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Annotated

import numpy as np
from pydantic import Field

from gatekeeper.analysis.plan.settings import chosen_of, concurrency_of, conditions_of, speculates
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, SweepPlan, Trial
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing, Rounded
from gatekeeper.core.records import Generation, Knobs, Role, Setting
from gatekeeper.core.slo import Slo

LEAST = 5
"""Canaries that every setting must have answered, per workload: fewer are too few to resample."""

Records = Mapping[str, Sequence[Generation]]
Answered = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]
"""The mean tokens and seconds of an answer, by workload and trial, and by canary."""


@dataclass(frozen=True, slots=True)
class SingleSetting:
    """The best setting for all workloads alike."""

    trial: str
    setting: Knobs
    throughput: Rounded


@dataclass(frozen=True, slots=True)
class Routing:
    """What one route per workload gains over one setting for all of them."""

    policy_throughput: Rounded
    """Tokens per second over the mix of workloads, each on its route."""
    best: Annotated[SingleSetting, Field(alias="best_static")]
    plain_throughput: Rounded
    gain: Estimate
    """The routes over the best single setting."""
    against_plain: Estimate
    """The routes over plain decoding."""
    rests_on: str
    """Which answers it rests on."""
    says: str


@dataclass(frozen=True, slots=True)
class _Mix:
    """The workloads that a soak mixes, each with its weight and route, and what sweep and soak show of each setting."""

    plan: SweepPlan
    weights: Mapping[str, float]
    routes: Mapping[str, Setting]
    swept: Answered
    soaked: Answered
    """Plain decoding and the route of each workload, by the names that they have in the sweep."""
    usual: list[Trial]
    """Plain decoding and the candidates under the default conditions whose answers are all without fault."""

    @classmethod
    def of(
        cls,
        plan: SweepPlan,
        records: Records,
        soaked: Iterable[Generation],
        weights: Mapping[str, float],
        routes: Mapping[str, Setting],
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
        swept = _average_answers(chain.from_iterable(records.values()))
        on_routes = _average_answers(_named_as_swept(soaked, routed, usual))
        return cls(plan, {name: weights[name] for name in routed}, routed, swept, on_routes, usual)

    def tables(self, trials: Sequence[Trial]) -> list[intervals.Floats]:
        """Return, by workload, the tokens and seconds of an answer by canary and trial, of canaries that all answered.

        A workload on its own route is as fast as in the soak, which did not choose the route, at the machine's speed
        during the sweep: without a plain answer in both to tell it by, the sweep alone counts.
        """
        return [self._table(name, trials) for name in self.routes]

    def _table(self, workload: str, trials: Sequence[Trial]) -> intervals.Floats:
        plain_soaked, plain_swept = (side.get((workload, BASELINE), {}) for side in (self.soaked, self.swept))
        repeated = self._answered_plainly_twice(workload)
        change = 1.0
        if repeated:
            during_soak = sum(plain_soaked[canary][1] for canary in repeated)
            change = sum(plain_swept[canary][1] for canary in repeated) / during_soak
        columns = []
        for trial in trials:
            column = dict(self.swept.get((workload, trial.name), {}))
            if repeated:
                soaked = self.soaked.get((workload, trial.name), {})
                column |= {canary: (tokens, seconds * change) for canary, (tokens, seconds) in soaked.items()}
            columns.append(column)
        shared = sorted(set.intersection(*map(set, columns)))
        cells = np.array([[column[canary] for column in columns] for canary in shared], dtype=np.float64)
        return cells.reshape(len(shared), len(trials), 2)

    def _answered_plainly_twice(self, workload: str) -> list[str]:
        """Return the canaries that plain decoding answered in the sweep and in the soak."""
        soaked, swept = (side.get((workload, BASELINE), {}) for side in (self.soaked, self.swept))
        return sorted(soaked.keys() & swept.keys())

    @property
    def rests_on(self) -> str:
        """Return which answers the comparison rests on."""
        if all(map(self._answered_plainly_twice, self.routes)):
            return "each route by its soak, other settings by the sweep"
        return "by the sweep"


def routing(
    slo: Slo,
    plan: SweepPlan,
    records: Records,
    weights: Mapping[str, float],
    routes: Mapping[str, Setting],
    *,
    soaked: Iterable[Generation] = (),
) -> Routing | Missing:
    """Return the policy's blended speed, the best single setting's and plain decoding's.

    Blended speed is all tokens over all time of the mix, from the sweep's *records* and from what was *soaked*.
    Canaries are resampled in all settings together, and every draw picks its own best single setting, so that the gain
    is not biased by one lucky pick.
    """
    mix = _Mix.of(plan, records, soaked, weights, routes)
    if isinstance(mix, Missing):
        return mix
    trials, tables = mix.usual, mix.tables(mix.usual)
    columns = []
    for name, route in mix.routes.items():
        trial = _find_trial(trials, route)
        if trial is None:
            return Missing(f"the sweep did not measure the setting of the route of {name}")
        columns.append(trials.index(trial))
    few = min(map(len, tables))
    if few < LEAST:
        return Missing(f"only {few} canaries were answered at every setting, {LEAST} are needed")

    random, weighed = np.random.default_rng(plan.seed), [*mix.weights.values()]
    (policy,), (static,) = _blend_routes([table[None] for table in tables], weighed, columns)
    drawn = [table[random.integers(0, len(table), size=(intervals.RESAMPLES, len(table)))] for table in tables]
    policies, statics = _blend_routes(drawn, weighed, columns)
    plain = next(number for number, trial in enumerate(trials) if trial.arm == "plain")
    best, streams = int(static.argmax()), concurrency_of(slo, trials[plain].setting)
    gain = _interval(policy / static[best], policies / statics.max(axis=1), slo.confidence, few)
    one_for_all = all(_find_trial([trials[best]], route) for route in routes.values())
    return Routing(
        policy_throughput=float(policy) * streams,
        best=SingleSetting(trials[best].name, dict(trials[best].setting), float(static[best]) * streams),
        plain_throughput=float(static[plain]) * streams,
        gain=gain,
        against_plain=_interval(policy / static[plain], policies / statics[:, plain], slo.confidence, few),
        rests_on=mix.rests_on,
        says=_describe_gain(gain, one_for_all=one_for_all),
    )


def _find_trial(trials: Sequence[Trial], route: Setting) -> Trial | None:
    """Return the trial that measured a route."""
    for trial in trials:
        if not speculates(route):
            if trial.arm == "plain":
                return trial
        elif trial.arm == "candidate" and dict(chosen_of(trial.setting)) == dict(chosen_of(route)):
            return trial
    return None


def _named_as_swept(
    soaked: Iterable[Generation], routes: Mapping[str, Setting], trials: Sequence[Trial]
) -> Iterator[Generation]:
    """Yield the soak's answers of each workload, plainly and on its route, by the sweep's names of these settings."""
    names = {name: trial.name for name, route in routes.items() if (trial := _find_trial(trials, route)) is not None}
    for generation in soaked:
        workload = generation.workload
        if generation.arm == "plain":
            yield replace(generation, trial=BASELINE)
        elif workload in names and chosen_of(generation.setting) == chosen_of(routes[workload]):
            yield replace(generation, trial=names[workload])


def _average_answers(records: Iterable[Generation]) -> Answered:
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


def _blend_routes(
    drawn: Sequence[intervals.Floats], weights: Sequence[float], columns: Sequence[int]
) -> tuple[intervals.Floats, intervals.Floats]:
    """Return, by draw, the policy's tokens per second, and those of each setting used for all workloads."""
    means = np.stack([weight * cells.mean(axis=1) for cells, weight in zip(drawn, weights, strict=True)])
    static = means.sum(axis=0)
    policy = means[np.arange(len(columns)), :, columns].sum(axis=0)
    return policy[:, 0] / policy[:, 1], static[..., 0] / static[..., 1]


def _interval(center: float, draws: intervals.Floats, level: float, n: int) -> Estimate:
    lo, hi = np.exp(intervals.bootstrap_bounds(np.log(draws), level, n))
    return Estimate(float(center), float(lo), float(hi), n).round_figures()


def _describe_gain(gain: Estimate, *, one_for_all: bool) -> str:
    """Say whether routing wins."""
    if one_for_all:
        return "the policy uses this one setting for all workloads"
    if gain.lo > 1:
        return "routing is faster than the best single setting"
    if gain.hi >= 1:
        return "routing is not proven faster than the best single setting"
    return "the best single setting is faster"
