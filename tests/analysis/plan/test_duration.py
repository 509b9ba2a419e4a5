"""The duration of a run: each stage counted on paper."""

from typing import Any

import pytest

from gatekeeper.analysis.plan.duration import PREFILL, Assumptions, StageForecast, forecast_stages
from gatekeeper.analysis.plan.memory_fit import prompt_tokens
from gatekeeper.analysis.plan.sweep_plan import sweep_plan
from gatekeeper.core.slo import Slo
from tests.builders.slo import canaries, objective, slo

RATIO = objective("throughput_ratio", at_least=1.1)
SPEED = 50.0
PROMPT = prompt_tokens(canaries(1)[0], None) / PREFILL / SPEED
"""Seconds that a prompt of `made` takes."""


def forecast(
    written: Slo, *, expect: bool = False, shares_process: bool = True, **assumed: Any
) -> dict[str, StageForecast]:
    """Return the stages of *written* on ten canaries whose answers are 100 tokens long at most."""
    marked: dict[str, Any] = {"expect": {"equals": "x"}} if expect else {}
    mine = {"easy": canaries(10, max_tokens=100, **marked)}
    plan = sweep_plan(written, mine, shares_process=shares_process, restart_knobs=("draft",), seed=1)
    given = {"vocabulary": None, "logits": True, **assumed}
    return {one.name: one for one in forecast_stages(written, plan, mine, Assumptions(SPEED, **given))}


def test_the_sweep_and_the_soak_are_always_there() -> None:
    """
    Four arms of the sweep and their warm-ups are answered whole; the soak lasts its duration; nothing follows it.
    """
    found = forecast(slo(RATIO))

    assert {"sweep", "soak"} == found.keys()
    assert found["sweep"].answers * (PROMPT + 100 / SPEED) == pytest.approx(found["sweep"].seconds)
    assert StageForecast("soak", 0, 600.0) == found["soak"]


@pytest.mark.parametrize("change", [{"shares_process": False}, {"concurrency": 4}])
def test_plain_blocks_lie_beside_a_soak_that_weaves_none_in(change: dict[str, Any]) -> None:
    """
    Where the arms cannot share a process, or several streams run at once, three blocks of ten and two warm-ups each.
    """
    streams = {"soak": {"duration": "600 s", "concurrency": change.pop("concurrency", 1)}}
    found = forecast(slo(RATIO, **streams), **change)["plain_blocks"]

    assert found.answers == 36
    assert found.seconds == pytest.approx(36 * (PROMPT + 2))


def test_quality_canaries_come_once_more() -> None:
    """
    The closing pass asks the canaries that expect something.
    """
    assert forecast(slo(RATIO), expect=True)["closing"].answers == 10


def test_near_ties_are_read_where_tokens_must_agree_and_logits_are_told() -> None:
    """
    A reading takes the prompt and the answer at the speed of prompts; without logits, or above temperature 0, none is.
    """
    promised = (RATIO, objective("token_agreement", at_least=1.0))
    found = forecast(slo(*promised))["near_ties"]

    assert found.answers == 10
    assert found.seconds == pytest.approx(10 * (PROMPT + 100 / PREFILL / SPEED))
    assert "near_ties" not in forecast(slo(*promised), logits=False)
    assert "near_ties" not in forecast(slo(*promised, sampling={"temperature": 0.7}))


def test_a_warm_cache_is_asked_six_times_a_canary() -> None:
    """
    Once plainly, three times drafting, and a second turn in each arm, which reads two prompts and an answer.
    """
    subject = {**slo().subject.model_dump(exclude_unset=True), "prompt_cache": "as-deployed"}
    found = forecast(slo(RATIO, subject=subject))["warm_cache"]

    turn = 2 * PROMPT + 100 / PREFILL / SPEED + 2
    assert found.answers == 60
    assert found.seconds == pytest.approx(10 * (4 * (PROMPT + 2) + 2 * turn))


def test_first_tokens_are_drawn_from_three_prompts() -> None:
    """
    Three prompts, two arms, 120 draws of three tokens, and the whole prompt every time.
    """
    found = forecast(slo(RATIO, sampling={"temperature": 0.7, "distribution_check": True}))["first_tokens"]

    assert found.answers == 720
    assert found.seconds == pytest.approx(720 * (PROMPT + 3 / SPEED))
