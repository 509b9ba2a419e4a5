"""The table of metrics."""

from typing import Any

import pytest

from gatekeeper.core.metrics import ALL, BY_NAME, PASS_DELTAS, RATIOS, Per


@pytest.mark.parametrize("metric", ALL, ids=lambda one: one.name)
def test_every_metric_is_documented(metric: Any) -> None:
    """
    Name, unit, direction, unit of analysis, and a sentence on what it is.
    """
    assert len(metric.says) > 20
    assert metric.unit
    assert metric.default_when in {"speculating", "always"}
    assert metric.host == (metric.per is Per.HOST)
    assert metric.name == metric.name.lower()


def test_names_are_unique() -> None:
    """
    One name, one metric; the special groups name metrics that exist.
    """
    assert len(ALL) == len(BY_NAME)
    assert BY_NAME.keys() >= RATIOS | PASS_DELTAS.keys()


def test_the_contracts_metrics_are_all_there() -> None:
    """
    What the contract promises to users is in the vocabulary.
    """
    promised = """
        throughput_ratio answer_throughput_ratio system_throughput_ratio decode_throughput prefill_throughput ttft
        acceptance_rate acceptance_length ttft_delta itl_p50 itl_p95 itl_p99 round_gap_p95 stall_p95 tpot_p95
        acceptance_window_min task_pass_delta json_pass_delta tool_call_pass_delta token_agreement warm_cache_agreement
        error_rate memory_headroom memory_pressure_critical throttle_time swapin_bytes swapout_bytes swap_growth
        footprint_peak footprint_growth fan_variation power_mean energy_per_token
    """

    assert set(promised.split()) <= BY_NAME.keys()
