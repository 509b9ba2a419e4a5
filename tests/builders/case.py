"""A whole run made by hand: the sweep's and the soak's answers of workloads that win, lose or violate an objective."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.analysis.conclude import Conclusion, conclude
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.plan.sweep_plan import sweep_plan
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Generation, HostSample, Reading, Role, Setting, StoredRecords
from tests.builders.slo import SECOND, canaries, counted, generation, objective, slo, steady

COUNT = 8
SOAK_S = 600


@dataclass(frozen=True)
class Made:
    """How a workload does: the candidate's speed over plain decoding, with noise per answer."""

    ratio: float
    noise: float = 0.01
    short: float = 0.9
    """The speed of draft length 2 in the sweep over that of the default one, where the default one wins."""


SHOWN = Terms(sight=~(Sight.REPLAY | Sight.WIDTHS | Sight.LOGPROBS | Sight.VERIFIED))
"""These answers are made without a target that could read them again."""
WINNING, LOSING, FAILING = Made(1.5), Made(0.6), Made(0.9)


def bare(
    workloads: Mapping[str, Made],
    *,
    shares: bool = True,
    optional: tuple[str, ...] = (),
    objectives: tuple[dict[str, Any], ...] = (),
    **changes: Any,
) -> Case:
    """Return a case whose sweep is recorded and whose soaks are not."""
    written = slo(
        *(objectives or (objective("throughput_ratio", at_least=1.1),)),
        workload=[
            {
                "name": name,
                "canaries": f"{name}.jsonl",
                "speculation": "optional" if name in optional else "required",
            }
            for name in workloads
        ],
        **changes,
    )
    frozen = {name: canaries(COUNT, name) for name in workloads}
    restart_knobs = () if shares else ("draft", "num_draft_tokens")
    plan = sweep_plan(written, frozen, shares_process=shares, restart_knobs=restart_knobs, seed=7, terms=SHOWN)
    return Case(
        slo=written,
        canaries=frozen,
        plan=plan,
        manifest_sha256="abc",
        sweep={
            trial.name: StoredRecords(
                tuple(
                    _answered(step.workload, step.canary.id, trial.setting, workloads[step.workload], number, step.pair)
                    for number, step in enumerate(request for block in plan.blocks for request in block.requests)
                    if step.trial == trial.name
                )
            )
            for trial in plan.trials
        },
        soaks={},
    )


def _answered(
    workload: str, canary: str, knobs: Setting, script: Made, at_s: float, pair: str, role: Role = Role.MEASURED
) -> Generation:
    spoken = speculates(knobs)
    shuffle = random.Random(f"{workload} {canary} {at_s} {spoken}")
    # A loser loses at every length.
    short = (
        script.short if script.ratio > 1 and role is Role.MEASURED and dict(knobs).get("num_draft_tokens") == 2 else 1.0
    )
    gap = 0.05 / (script.ratio * short if spoken and not pair.startswith("soak") else script.ratio if spoken else 1.0)
    gap *= 1 + shuffle.gauss(0, script.noise)
    length = int(dict(knobs).get("num_draft_tokens") or 4)
    rounds = counted(4, 4 * length, 6) if spoken else None
    answer = steady(gap, 10, sent_s=at_s, rounds=rounds, text="ten words, each of which is about one token long")
    return generation(
        answer,
        canary,
        arm="candidate" if spoken else "plain",
        workload=workload,
        setting=knobs,
        role=role,
        pair=pair,
        key=f"{workload}/{canary}/{at_s}/{spoken}",
        at=f"2026-01-01T00:{int(at_s) // 60:02}:{int(at_s) % 60:02}.000000Z",
    )


def soaked(case: Case, leg: SoakPlan, workloads: Mapping[str, Made]) -> tuple[Generation, ...]:
    """Return ten minutes of answers in turn, or a further part of a soak; each speculating one has a plain twin."""
    generations: list[Generation] = []
    begun = 10_000.0 * (leg.part - 1)
    at, number, ends = begun, 0, begun + (leg.seconds or SOAK_S)
    names = list(leg.settings)
    while at < ends:
        name = names[number % len(names)]
        knobs = leg.settings[name]
        canary = case.canaries[name][number // len(names) % COUNT].id
        pair = f"soak-{leg.part}-{number}"
        generations.append(_answered(name, canary, knobs, workloads[name], at, pair))
        if speculates(knobs):
            generations.append(_answered(name, canary, plain_of(knobs), workloads[name], at + 2, pair, Role.BASELINE))
        at, number = at + 6, number + 1
    return (*generations[:-1], _ending_at(generations[-1], round(ends * SECOND)))


def _ending_at(last: Generation, ended_ns: int) -> Generation:
    """Return the last answer as late as the soak ends, at its own speed."""
    answer, late_ns = last.answer, ended_ns - last.answer.ended_ns
    arrivals = tuple(arrival._replace(at_ns=arrival.at_ns + late_ns) for arrival in answer.arrivals)
    return replace(last, answer=replace(answer, sent_ns=answer.sent_ns + late_ns, ended_ns=ended_ns, arrivals=arrivals))


def with_soak(case: Case, leg: SoakPlan, script: Made | Mapping[str, Made]) -> Case:
    """Return the case with *leg* recorded, after its earlier parts."""
    workloads = dict.fromkeys(leg.settings, script) if isinstance(script, Made) else script
    before = case.soaks[leg.name].records if leg.part > 1 else ()
    now = tuple(replace(record, segment=leg.part - 1) for record in soaked(case, leg, workloads))
    ends = case.looks.get(leg.name, (len(before),) if before else ())
    return replace(
        case,
        soaks={**case.soaks, leg.name: StoredRecords((*before, *now))},
        looks={**case.looks, leg.name: (*ends, len(before) + len(now))},
    )


def concluded(case: Case, script: Made = WINNING) -> Conclusion:
    """Run every soak that is asked for, and conclude."""
    while needs := conclude(case).needs:
        for leg in needs:
            case = with_soak(case, leg, script)
    return conclude(case)


def sample(second: int, footprint: float, *, phase: str) -> HostSample:
    """Return what the host says at *second* of a soak."""
    reading = Reading(footprint, "B", "made", "ok", 0.0)
    at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z"
    return HostSample(at, second * SECOND, {"subject_footprint": reading}, phase=phase)
