"""An adaptive draft length against the best fixed one and plain decoding."""

from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.plan.sweep_plan import sweep_plan
from gatekeeper.analysis.sweep.choice import Choice, choose
from gatekeeper.analysis.sweep.setting_result import setting_results
from gatekeeper.analysis.sweep.sweep_answers import sweep_answers
from tests.analysis.sweep.test_choice import FROZEN, swept
from tests.builders.slo import slo

LOADS = {
    "design": "grid",
    "repeats": 1,
    "num_draft_tokens": ["adaptive", 2, 4],
    "concurrency": [1, 8],
    "default": {"num_draft_tokens": 4},
}
ONE, EIGHT = "_concurrency-1", "_concurrency-8"


def chosen(ratios: dict[str, float], *, one_load: bool = False) -> Choice:
    sweep = LOADS | ({"concurrency": [], "design": "one-at-a-time"} if one_load else {})
    written = slo(sweep=sweep)
    plan = sweep_plan(written, {"easy": FROZEN}, shares_process=True, restart_knobs=(), seed=7)
    ratio_by_trial = {name: ratio for name, ratio in ratios.items() if not one_load or not name.endswith(EIGHT)}
    if one_load:
        ratio_by_trial = {name.removesuffix(ONE): ratio for name, ratio in ratio_by_trial.items()}
    for name in {"num_draft_tokens-4", f"num_draft_tokens-4{ONE}"} & ratio_by_trial.keys():
        ratio_by_trial["default"] = ratio_by_trial[name]
    return choose(
        written, setting_results(sweep_answers(written, plan, swept(plan, ratio_by_trial), "easy", FROZEN)), "easy"
    )


def loads(four: tuple[float, float], two: tuple[float, float], adaptive: tuple[float, float]) -> dict[str, float]:
    """Return the speeds of three draft lengths, each at concurrency 1 and 8."""
    rows = {"4": four, "2": two, "adaptive": adaptive}
    return {
        f"num_draft_tokens-{name}{load}": speed
        for name, row in rows.items()
        for load, speed in zip((ONE, EIGHT), row, strict=True)
    }


@pytest.mark.parametrize(
    ("speeds", "length", "reason"),
    [
        (loads((1.4, 1.1), (1.2, 1.2), (1.7, 1.2)), "adaptive", "proven faster"),
        (loads((1.4, 1.1), (1.2, 1.2), (1.4, 1.2)), 4, "smaller risk"),
        (loads((1.4, 0.7), (1.2, 1.1), (1.4, 1.1)), "adaptive", "only the fixed length is slower than plain decoding"),
        (loads((1.4, 1.1), (1.2, 1.2), (1.7, 0.4)), 4, "at concurrency 8 it is 0.4"),
        (loads((1.4, 1.6), (1.2, 1.2), (1.7, 1.2)), 4, "at concurrency 8 it is 0.7"),
    ],
    ids=["faster", "alike", "safer", "collapses", "slower under load"],
)
def test_an_adaptive_length_has_to_earn_its_place(speeds: dict[str, float], length: object, reason: str) -> None:
    """
    It is taken where it is proven faster than the best fixed length, or as fast where that one falls below plain
    decoding under a load; a collapse at any measured load rules it out, and the interval is in the document.
    """
    choice = chosen(speeds)

    document: Any = choice.document()
    (compared,) = document["adaptive"]
    assert length == dict(choice.setting)["num_draft_tokens"]
    assert reason in choice.because
    assert reason in compared["because"]
    assert compared["chosen"] == (length == "adaptive")
    assert compared["lo"] <= compared["ratio" if "ratio" in compared else "center"] <= compared["hi"]


def test_at_one_load_only_speed_counts() -> None:
    """
    Where no other load was measured, an adaptive length as fast as the best fixed one is not taken.
    """
    choice = chosen(loads((1.4, 0.5), (1.2, 1.2), (1.39, 1.2)), one_load=True)

    assert 4 == dict(choice.setting)["num_draft_tokens"]


@pytest.mark.parametrize(
    ("unsure", "chosen_p_min", "reason"), [(1.7, 0.6, "proven faster"), (1.4, 0.0, "smaller risk")]
)
def test_a_draft_that_ends_where_it_is_unsure_is_adaptive(unsure: float, chosen_p_min: float, reason: str) -> None:
    """
    llama-server's draft_p_min gives each draft its own length: it is compared with the best of the drafts of full
    length, and has to be faster.
    """
    sweep = {"design": "grid", "repeats": 1, "num_draft_tokens": [4, 12], "draft_p_min": [0.0, 0.6]}
    written = slo(sweep=sweep | {"default": {"num_draft_tokens": 4}})
    plan = sweep_plan(written, {"easy": FROZEN}, shares_process=True, restart_knobs=(), seed=7)
    speeds = {"default": 1.4, "num_draft_tokens-12_draft_p_min-0.0": 0.8, "num_draft_tokens-12_draft_p_min-0.6": unsure}

    choice = choose(written, setting_results(sweep_answers(written, plan, swept(plan, speeds), "easy", FROZEN)), "easy")

    document: Any = choice.document()
    compared = {
        comparison["trial"]: (comparison["against"], comparison["chosen"]) for comparison in document["adaptive"]
    }
    assert {"num_draft_tokens-4_draft_p_min-0.6", "num_draft_tokens-12_draft_p_min-0.6"} == compared.keys()
    assert ("default", chosen_p_min > 0) == compared["num_draft_tokens-12_draft_p_min-0.6"]
    assert chosen_p_min == dict(choice.setting)["draft_p_min"]
    assert reason in choice.because


def test_without_an_adaptive_length_nothing_changes() -> None:
    """
    A sweep of fixed lengths has no such comparison.
    """
    written = slo(sweep={"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}})
    plan = sweep_plan(written, {"easy": FROZEN}, shares_process=True, restart_knobs=(), seed=7)
    results = setting_results(sweep_answers(written, plan, swept(plan, {"default": 1.5}), "easy", FROZEN))

    assert "adaptive" not in choose(written, results, "easy").document()
    assert choose(written, results, "easy") == replace(choose(written, results, "easy"), adaptive=())
