"""What routing wins over one setting for all workloads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.plan.settings import PLAIN, chosen_of
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, Trial
from gatekeeper.analysis.verdict.routing_gain import Routing, routing
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Answer, Generation, Role, setting
from gatekeeper.core.slo import Slo
from tests.builders.golden_words import says

HEAVY = setting(draft="heavy", num_draft_tokens=4)
LIGHT = setting(draft="heavy", num_draft_tokens=2)


def slo() -> Slo:
    return Slo.model_validate(
        {
            "schema": 1,
            "name": "s",
            "subject": {"backend": "scripted", "target": "t", "drafts": ["heavy"], "script": "x.json"},
            "workload": [{"name": "good", "canaries": "a"}, {"name": "bad", "canaries": "b"}],
            "objective": [{"metric": "throughput_ratio", "at_least": 1, "why": "w"}],
        }
    )


TRIALS = (
    Trial("baseline", "plain", PLAIN),
    Trial("default", "candidate", HEAVY),
    Trial("num_draft_tokens-2", "candidate", LIGHT, "num_draft_tokens"),
)


def answers(seconds: Mapping[tuple[str, str], float], fault: str | None = None) -> dict[str, Sequence[Generation]]:
    """Ten canaries a workload, each of 100 tokens in the given seconds, by trial and workload."""
    records: dict[str, list[Generation]] = {trial.name: [] for trial in TRIALS}
    for trial in TRIALS:
        for workload in ("good", "bad"):
            for number in range(10):
                took = seconds[trial.name, workload] * (1 + 0.01 * math.sin(number))
                broken = fault if trial.name == fault and number == 3 else None
                answer = Answer(0, round(took * 1e9), output_tokens=100, fault=broken)
                canary = f"{workload}-{number}"
                generation = Generation(
                    trial.name, canary, workload, canary, trial.arm, trial.setting, Role.MEASURED, 0, "", 1, answer
                )
                records[trial.name].append(generation)
    return {name: tuple(generations) for name, generations in records.items()}


SECONDS = {
    ("baseline", "good"): 4.0,
    ("baseline", "bad"): 4.0,
    ("default", "good"): 2.0,
    ("default", "bad"): 6.0,
    ("num_draft_tokens-2", "good"): 3.0,
    ("num_draft_tokens-2", "bad"): 5.0,
}
ROUTES = {"good": HEAVY, "bad": PLAIN}
EVEN = {"good": 1.0, "bad": 1.0}


def gained(routes: Routing | Missing) -> Routing:
    assert isinstance(routes, Routing)
    return routes


def test_routing_wins_over_every_static_setting() -> None:
    """The routes take 6 s of what every single setting takes 8 s for."""
    compared = gained(routing(slo(), SweepPlan(TRIALS, (), 1), answers(SECONDS), EVEN, ROUTES))

    assert math.isclose(8 / 6, compared.gain.center, rel_tol=0.01)
    assert compared.gain.lo > 1.25
    # Where nearly all requests are of the kind that gains, the draft for everything is nearly as good.
    mixed = gained(routing(slo(), SweepPlan(TRIALS, (), 1), answers(SECONDS), {"good": 99.0, "bad": 1.0}, ROUTES))
    assert ("default", True) == (mixed.best.trial, 1 < mixed.gain.center < 1.02)
    says("sweeps", "routing wins over every static setting", compared.says)


def test_a_route_that_was_not_swept_has_no_number() -> None:
    """Unswept settings, faulty baselines and single workloads give a reason instead of a gain."""
    plan, records = SweepPlan(TRIALS, (), 1), answers(SECONDS)
    unswept = routing(slo(), plan, records, EVEN, {"good": setting(draft="heavy", num_draft_tokens=9), "bad": PLAIN})
    broken = routing(slo(), plan, answers(SECONDS, "baseline"), EVEN, ROUTES)
    single = routing(slo(), plan, records, {"good": 1.0}, ROUTES)

    assert all(isinstance(outcome, Missing) for outcome in (unswept, broken, single))


def only(records: Mapping[str, Sequence[Generation]], numbers: Mapping[str, range]) -> dict[str, Sequence[Generation]]:
    """Keep the answers to some canaries of each trial, as a sweep that stopped early does."""
    return {
        trial: tuple(record for record in generations if int(record.canary.rpartition("-")[2]) in numbers[trial])
        for trial, generations in records.items()
    }


def on_routes(seconds: Mapping[tuple[str, str], float]) -> list[Generation]:
    """Return a soak: plain answers of each workload, and those on its route, in as many *seconds*."""
    return [
        replace(generation, trial="soak-1")
        for generations in answers(seconds).values()
        for generation in generations
        if generation.arm == "plain" or chosen_of(generation.setting) == chosen_of(ROUTES[generation.workload])
    ]


def test_a_sweep_that_stopped_early_is_enough_with_canaries_in_common() -> None:
    """Where settings were stopped after eight and six canaries, the six in common compare them; a machine that became
    twice as slow since the sweep changes no gain, and with fewer in common there is no figure.
    """
    plan, records = SweepPlan(TRIALS, (), 1), answers(SECONDS)
    swept = only(records, {"baseline": range(10), "default": range(8), "num_draft_tokens-2": range(6)})
    few = only(records, {"baseline": range(10), "default": range(6), "num_draft_tokens-2": range(5, 10)})
    soaked = on_routes({key: 2 * seconds for key, seconds in SECONDS.items()})

    gain = gained(routing(slo(), plan, swept, EVEN, ROUTES, soaked=soaked))
    unknown = routing(slo(), plan, few, EVEN, ROUTES, soaked=soaked)

    assert math.isclose(8 / 6, gain.gain.center, rel_tol=0.02)
    assert 6 == gain.gain.n
    says("sweeps", "a route is compared by its soak", gain.rests_on)
    assert isinstance(unknown, Missing)
    assert "canaries were answered at every setting" in unknown.because
