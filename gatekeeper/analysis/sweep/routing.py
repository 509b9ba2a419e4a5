"""Routing: what one route per workload gains over the best single setting, under the soak profile's mix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from gatekeeper.analysis.plan.settings import chosen_of, concurrency_of, conditions_of, speculates
from gatekeeper.analysis.plan.sweep_plan import NULL, SweepPlan, Trial
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.verdict import Estimate, figures, rounded

LEAST = 5
"""Canaries that every setting must have answered, per workload: fewer are too few to resample."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Tokens and seconds of an answer, by canary (rows) and setting (columns), of one workload."""

    weight: float
    tokens: intervals.Floats
    seconds: intervals.Floats


def routing(
    slo: Slo,
    plan: SweepPlan,
    records: Mapping[str, Sequence[Generation]],
    weights: Mapping[str, float],
    routes: Mapping[str, Setting],
) -> dict[str, Any]:
    """Return the policy's blended speed, the best single setting's and plain decoding's, from the sweep alone.

    Blended speed is all tokens over all time of the mix. Canaries are resampled in all settings together, and every
    draw picks its own best single setting, so that the gain is not biased by one lucky pick.
    """
    workloads = [name for name in routes if weights.get(name, 0.0) > 0]
    if len(workloads) < 2:
        return {"because": "with one workload there is nothing to route"}
    trials = [trial for trial in _usual(plan) if not _faulty(records, trial)]
    plain = next((trial for trial in trials if trial.arm == "plain"), None)
    if plain is None or len(trials) < 2:
        return {
            "because": "the sweep has no pair of plain and speculating settings whose answers are all without fault"
        }
    picked: list[Trial] = []
    for name in workloads:
        route = next((trial for trial in trials if _serves(trial, routes[name])), None)
        if route is None:
            return {"because": f"the sweep did not measure the setting of the route of {name}"}
        picked.append(route)
    tables = [_table(records, name, trials, weights[name]) for name in workloads]
    few = min(len(table.tokens) for table in tables)
    if few < LEAST:
        return {"because": f"only {few} canaries were answered at every setting, {LEAST} are needed"}
    columns = [trials.index(trial) for trial in picked]
    return _document(slo, trials, plain, tables, columns, plan.seed)


def _usual(plan: SweepPlan) -> list[Trial]:
    """Return the trials under the default conditions, without the null arm: plain decoding and the candidates."""
    usual = conditions_of(plan.candidates[0].setting) if plan.candidates else None
    return [trial for trial in plan.trials if conditions_of(trial.setting) == usual and trial.name != NULL]


def _faulty(records: Mapping[str, Sequence[Generation]], trial: Trial) -> bool:
    answers = records.get(trial.name, ())
    return not answers or any(one.answer.fault is not None for one in answers)


def _serves(trial: Trial, route: Setting) -> bool:
    if not speculates(route):
        return trial.arm == "plain"
    return trial.arm == "candidate" and dict(chosen_of(trial.setting)) == dict(chosen_of(route))


def _table(
    records: Mapping[str, Sequence[Generation]], workload: str, trials: Sequence[Trial], weight: float
) -> _Table:
    columns = []
    for trial in trials:
        seen: dict[str, list[tuple[int, float]]] = {}
        for one in records[trial.name]:
            answer = one.answer
            seconds = (answer.ended_ns - answer.sent_ns) / 1e9
            if one.workload == workload and one.role is not Role.WARMUP and answer.output_tokens and seconds > 0:
                seen.setdefault(one.canary, []).append((answer.output_tokens, seconds))
        columns.append({name: (fmean(t for t, _ in both), fmean(s for _, s in both)) for name, both in seen.items()})
    shared = sorted(set.intersection(*(set(column) for column in columns)))
    cells = np.array([[column[name] for column in columns] for name in shared], dtype=np.float64)
    cells = cells.reshape(len(shared), len(trials), 2)
    return _Table(weight, cells[:, :, 0], cells[:, :, 1])


def _document(
    slo: Slo, trials: Sequence[Trial], plain: Trial, tables: Sequence[_Table], columns: Sequence[int], seed: int
) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    whole = [np.arange(len(table.tokens))[None, :] for table in tables]
    drawn = [random.integers(0, len(table.tokens), size=(intervals.RESAMPLES, len(table.tokens))) for table in tables]
    (policy,), (static,) = _blended(tables, columns, whole)
    policies, statics = _blended(tables, columns, drawn)
    at, best = trials.index(plain), int(static.argmax())
    few = min(len(table.tokens) for table in tables)
    streams = concurrency_of(slo, plain.setting)
    gain = _interval(policy / static[best], policies / statics.max(axis=1), slo.confidence, few)
    alone = best in columns and len(set(columns)) == 1
    return {
        "policy_throughput": rounded(float(policy) * streams),
        "best_static": {
            "trial": trials[best].name,
            "setting": dict(trials[best].setting),
            "throughput": rounded(float(static[best]) * streams),
        },
        "plain_throughput": rounded(float(static[at]) * streams),
        "gain": gain,
        "against_plain": _interval(policy / static[at], policies / statics[:, at], slo.confidence, few),
        "says": "the policy uses this one setting for all workloads" if alone else _says(gain),
    }


def _blended(
    tables: Sequence[_Table], columns: Sequence[int], rows: Sequence[Any]
) -> tuple[intervals.Floats, intervals.Floats]:
    """Return, by draw, the policy's tokens per second, and those of each setting used for all workloads."""
    tokens = [table.weight * table.tokens[at].mean(axis=1) for table, at in zip(tables, rows, strict=True)]
    seconds = [table.weight * table.seconds[at].mean(axis=1) for table, at in zip(tables, rows, strict=True)]
    statics: intervals.Floats = sum(tokens[1:], tokens[0]) / sum(seconds[1:], seconds[0])
    mine = [(t[:, column], s[:, column]) for t, s, column in zip(tokens, seconds, columns, strict=True)]
    policy: intervals.Floats = sum((t for t, _ in mine[1:]), mine[0][0]) / sum((s for _, s in mine[1:]), mine[0][1])
    return policy, statics


def _interval(center: Any, draws: intervals.Floats, level: float, n: int) -> dict[str, Any]:
    lo, hi = np.exp(intervals.bootstrap_bounds(np.log(draws), level, n))
    return figures("center", Estimate(float(center), float(lo), float(hi), n))


def _says(gain: Mapping[str, Any]) -> str:
    if gain["lo"] > 1:
        return "routing is faster than the best single setting"
    if gain["hi"] < 1:
        return "the best single setting is faster: an objective other than speed decided a route"
    return "routing is not proven faster than the best single setting"
