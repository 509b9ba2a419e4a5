"""The duration of a run: each stage counted on paper."""

from typing import Any

import pytest

from gatekeeper.analysis.forecast import Forecast, StageForecast
from gatekeeper.analysis.plan.request_costs import PREFILL, Assumptions, prompt_tokens
from gatekeeper.analysis.plan.sizes_by_name import bytes_read
from gatekeeper.analysis.plan.sweep_plan import sweep_plan
from gatekeeper.core.slo import Profile, Slo
from tests.builders.slo import canaries, objective, slo

RATIO = objective("throughput_ratio", at_least=1.1)
SPEED = 50.0
PROMPT = prompt_tokens(canaries(1)[0], None) / PREFILL / SPEED
"""Seconds that a prompt of `made` takes."""


def forecast(
    written: Slo, *, expect: bool = False, shares_process: bool = True, **assumed: Any
) -> dict[str, StageForecast]:
    """Return the stages of *written* on ten canaries whose answers are 100 tokens long at most."""
    return {
        stage.name: stage for stage in ahead(written, expect=expect, shares_process=shares_process, **assumed).stages()
    }


def ahead(written: Slo, *, expect: bool = False, shares_process: bool = True, **assumed: Any) -> Forecast:
    marked: dict[str, Any] = {"expect": {"equals": "x"}} if expect else {}
    canary_sets = {"easy": canaries(10, max_tokens=100, **marked)}
    plan = sweep_plan(written, canary_sets, shares_process=shares_process, restart_knobs=("draft",), seed=1)
    figures = {"vocabulary": None, "logits": True, **assumed}
    profile = Profile(schema_=1, name="steady")
    return Forecast(written, plan, canary_sets, profile, Assumptions(SPEED, **figures))


@pytest.mark.parametrize("change", [{"shares_process": False}, {"concurrency": 4}])
def test_plain_blocks_lie_beside_a_soak_that_weaves_none_in(change: dict[str, Any]) -> None:
    """Six blocks of five and two warm-ups each, where arms or streams run apart."""
    streams: dict[str, Any] = {"soak": {"duration": "600 s", "concurrency": change.pop("concurrency", 1)}}
    plain_blocks = forecast(slo(RATIO, **streams), **change)["plain_blocks"]

    assert plain_blocks.answers == 42
    assert plain_blocks.seconds == pytest.approx(42 * (PROMPT + 2) / streams["soak"]["concurrency"])


def test_answers_are_forced_where_tokens_must_agree() -> None:
    """A pass takes the prompt and the answer at the speed of prompts, ten more are cross-checks and three are controls;
    near-ties are not counted beside them. Above temperature 0 there is none.
    """
    promised = (RATIO, objective("token_agreement", at_least=1.0))
    forced_check = forecast(slo(*promised))["forced_check"]

    assert forced_check.answers == 10
    assert forced_check.seconds == pytest.approx(23 * (PROMPT + 100 / PREFILL / SPEED))
    assert "near_ties" not in forecast(slo(*promised))
    assert "forced_check" not in forecast(slo(*promised, sampling={"temperature": 0.7}))
    assert "near_ties" not in forecast(slo(*promised, sampling={"temperature": 0.7}))


def test_a_warm_cache_takes_ten_answers_a_canary() -> None:
    """Once plainly, three times in each arm with a cache, and a second turn of two prompts."""
    subject = {**slo().subject.model_dump(exclude_unset=True), "prompt_cache": "as-deployed"}
    warm_cache = forecast(slo(RATIO, subject=subject))["warm_cache"]

    turn = 2 * PROMPT + 100 / PREFILL / SPEED + 2
    assert warm_cache.answers == 100
    assert warm_cache.seconds == pytest.approx(10 * (7 * (PROMPT + 2) + 3 * turn))


def test_a_soak_lasts_until_every_canary_is_answered_in_both_arms() -> None:
    """Ten canaries in both arms at 2 s an answer need 40 s and more where a fifth of the answers is plain, 100 s."""
    agreement = objective("token_agreement", at_least=1.0)
    soak = forecast(slo(agreement, soak={"duration": "20 s", "baseline_share": 0.2}))["soak"]

    assert 90 <= soak.seconds <= 110
    short = slo(agreement, soak={"duration": "20 s", "max_duration": "30 s", "baseline_share": 0.2})
    assert forecast(short)["soak"].seconds == 30.0


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("mlx-community/Qwen3-8B-4bit", None, 8e9 * 4.5 / 8),
        ("Qwen/Qwen3-0.6B", None, 1.2e9),
        ("ggml-org/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf", None, 4e9 * 4.5 / 8),
        ("mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit", None, 3e9 * 4.5 / 8),
        ("mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit", 17e9, 1.7e9),
        ("a/little-model", None, None),
        ("a/little-model", 5e6, 5e6),
    ],
)
def test_bytes_that_a_token_reads(name: str, size: float | None, expected: float | None) -> None:
    """The file's size where it is known, else what the name tells; of a mixture of experts only the active part."""
    assert bytes_read(name, size) == (None if expected is None else pytest.approx(expected))
