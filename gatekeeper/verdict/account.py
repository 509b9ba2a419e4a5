"""The account of a choice: each setting's cost model, what each knob does, and where concurrency turns it round."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gatekeeper.terms.canary import Canary
from gatekeeper.terms.outcome import Estimate, Missing
from gatekeeper.terms.records import Generation
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict import explain
from gatekeeper.verdict.choice import Choice, Seen
from gatekeeper.verdict.derive import estimate
from gatekeeper.verdict.effects import Arm, main_effects
from gatekeeper.verdict.evidence import BURST, Evidence, gather, plain_gap
from gatekeeper.verdict.plan import Plan, Trial, concurrency_of, defaults
from gatekeeper.verdict.turning import turning

Records = Mapping[str, Sequence[Generation]]


def accounted(
    slo: Slo, plan: Plan, records: Records, workload: str, canaries: Mapping[str, Canary], choice: Choice
) -> Choice:
    """Return the choice with what the sweep's records say beyond it."""
    if not choice.seen:
        return choice
    told = [one for one in choice.seen if not isinstance(one.ratio, Missing)]
    arms = [Arm(one.trial.setting, one.measure, one.logs) for one in told]
    seen = choice.seen[0].trial.setting
    return replace(
        choice,
        models=_models(slo, records, workload, choice.seen),
        effects=tuple(main_effects(arms, seen, slo.confidence, plan.seed)),
        concurrency=_concurrency(slo, plan, records, workload, canaries),
    )


def _models(slo: Slo, records: Records, workload: str, seen: Sequence[Seen]) -> dict[str, dict[str, Any]]:
    """Explain each setting; those under other conditions are explained apart, by their own plain decoding."""
    out: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[Seen]] = {}
    for one in seen:
        groups.setdefault(one.trial.twin, []).append(one)
    for twin, group in groups.items():
        plain = _of(records, twin, workload)
        if concurrency_of(slo, group[0].trial) > 1:
            why = "answers under way together share the machine: the time of a round is not its cost"
            out |= {one.trial.name: {"because": why} for one in group}
            continue
        together = BURST * _gap(plain)
        settings = {
            one.trial.name: explain.see(one.trial.setting, _of(records, one.trial.name, workload), together)
            for one in group
        }
        ratios = {
            one.trial.name: one.ratio.center
            for one in group
            if isinstance(one.ratio, Estimate) and one.measure == "throughput_ratio"
        }
        out |= explain.explanations(settings, explain.plain_seconds(plain), ratios)
    return out


def _of(records: Records, trial: str, workload: str) -> tuple[Generation, ...]:
    return tuple(one for one in records.get(trial, ()) if one.workload == workload)


def _gap(plain: tuple[Generation, ...]) -> float:
    return plain_gap(Evidence("", {}, (), plain, 0.95, 0, greedy=False))


def _concurrency(
    slo: Slo, plan: Plan, records: Records, workload: str, canaries: Mapping[str, Canary]
) -> dict[str, Any]:
    """Compare the system's speed at every concurrency that was swept, at the default of every other knob."""
    if len(slo.sweep.concurrency) < 2:
        return {}
    base = defaults(slo)
    ratios: dict[int, Estimate | Missing] = {}
    for trial in plan.trials:
        if trial.arm == "candidate" and _only_concurrency(trial, base):
            evidence = gather(
                Evidence(
                    workload,
                    canaries,
                    _of(records, trial.name, workload),
                    _of(records, trial.twin, workload),
                    slo.confidence,
                    plan.seed,
                    greedy=False,
                    drift_limit=float("inf"),
                )
            )
            ratios[concurrency_of(slo, trial)] = estimate("system_throughput_ratio", evidence)
    return turning(ratios)


def _only_concurrency(trial: Trial, base: Mapping[str, Any]) -> bool:
    turned = dict(trial.setting)
    return all(turned.get(knob) == value for knob, value in base.items() if knob != "concurrency")
