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
    named = {name: ratio for name, ratio in ratios.items() if not one_load or not name.endswith(EIGHT)}
    if one_load:
        named = {name.removesuffix(ONE): ratio for name, ratio in named.items()}
    for name in {"num_draft_tokens-4", f"num_draft_tokens-4{ONE}"} & named.keys():
        named["default"] = named[name]
    return choose(written, setting_results(sweep_answers(written, plan, swept(plan, named), "easy", FROZEN)))


def loads(four: tuple[float, float], two: tuple[float, float], adaptive: tuple[float, float]) -> dict[str, float]:
    """Return the speeds of three draft lengths, each at concurrency 1 and 8."""
    rows = {"4": four, "2": two, "adaptive": adaptive}
    return {
        f"num_draft_tokens-{name}{load}": speed
        for name, row in rows.items()
        for load, speed in zip((ONE, EIGHT), row, strict=True)
    }


@pytest.mark.parametrize(
    ("speeds", "length", "said"),
    [
        (loads((1.4, 1.1), (1.2, 1.2), (1.7, 1.2)), "adaptive", "proven faster"),
        (loads((1.4, 1.1), (1.2, 1.2), (1.4, 1.2)), 4, "smaller risk"),
        (loads((1.4, 0.7), (1.2, 1.1), (1.4, 1.1)), "adaptive", "only the fixed length is slower than plain decoding"),
        (loads((1.4, 1.1), (1.2, 1.2), (1.7, 0.4)), 4, "at concurrency 8 it is 0.4"),
        (loads((1.4, 1.6), (1.2, 1.2), (1.7, 1.2)), 4, "at concurrency 8 it is 0.7"),
    ],
    ids=["faster", "alike", "safer", "collapses", "slower under load"],
)
def test_an_adaptive_length_has_to_earn_its_place(speeds: dict[str, float], length: object, said: str) -> None:
    """
    It is taken where it is proven faster than the best fixed length, or as fast where that one falls below plain
    decoding under a load; a collapse at any measured load rules it out, and the interval is in the document.
    """
    found = chosen(speeds)

    document: Any = found.document()
    (compared,) = document["adaptive"]
    assert length == dict(found.setting)["num_draft_tokens"]
    assert said in found.because
    assert said in compared["because"]
    assert compared["chosen"] == (length == "adaptive")
    assert compared["lo"] <= compared["ratio" if "ratio" in compared else "center"] <= compared["hi"]


def test_at_one_load_only_speed_counts() -> None:
    """
    Where no other load was measured, an adaptive length as fast as the best fixed one is not taken.
    """
    found = chosen(loads((1.4, 0.5), (1.2, 1.2), (1.39, 1.2)), one_load=True)

    assert 4 == dict(found.setting)["num_draft_tokens"]


@pytest.mark.parametrize(("unsure", "chosen_p_min", "said"), [(1.7, 0.6, "proven faster"), (1.4, 0.0, "smaller risk")])
def test_a_draft_that_ends_where_it_is_unsure_is_adaptive(unsure: float, chosen_p_min: float, said: str) -> None:
    """
    llama-server's draft_p_min gives each draft its own length: it is compared with the best of the drafts of full
    length, and has to be faster.
    """
    sweep = {"design": "grid", "repeats": 1, "num_draft_tokens": [4, 12], "draft_p_min": [0.0, 0.6]}
    written = slo(sweep=sweep | {"default": {"num_draft_tokens": 4}})
    plan = sweep_plan(written, {"easy": FROZEN}, shares_process=True, restart_knobs=(), seed=7)
    speeds = {"default": 1.4, "num_draft_tokens-12_draft_p_min-0.0": 0.8, "num_draft_tokens-12_draft_p_min-0.6": unsure}

    found = choose(written, setting_results(sweep_answers(written, plan, swept(plan, speeds), "easy", FROZEN)))

    document: Any = found.document()
    compared = {one["trial"]: (one["against"], one["chosen"]) for one in document["adaptive"]}
    assert {"num_draft_tokens-4_draft_p_min-0.6", "num_draft_tokens-12_draft_p_min-0.6"} == compared.keys()
    assert ("default", chosen_p_min > 0) == compared["num_draft_tokens-12_draft_p_min-0.6"]
    assert chosen_p_min == dict(found.setting)["draft_p_min"]
    assert said in found.because


def test_without_an_adaptive_length_nothing_changes() -> None:
    """
    A sweep of fixed lengths has no such comparison.
    """
    written = slo(sweep={"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}})
    plan = sweep_plan(written, {"easy": FROZEN}, shares_process=True, restart_knobs=(), seed=7)
    seen = setting_results(sweep_answers(written, plan, swept(plan, {"default": 1.5}), "easy", FROZEN))

    assert "adaptive" not in choose(written, seen).document()
    assert choose(written, seen) == replace(choose(written, seen), adaptive=())
