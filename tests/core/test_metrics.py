"""The table of metrics."""

import pytest

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints, latency_complaints
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.metrics import ALL, BY_NAME, MEASURED, SPEED_RATIOS, workload_metrics
from gatekeeper.core.metrics.metric import Per, Sight
from tests.builders.golden_words import says
from tests.builders.slo import canaries, evidence, objective, slo, spread, steady


def test_the_contracts_metrics_are_all_there() -> None:
    """What the contract promises to users is in the vocabulary."""
    promised = """
        throughput_ratio answer_throughput_ratio system_throughput_ratio decode_throughput prefill_throughput ttft
        acceptance_rate acceptance_length ttft_delta itl_p50 itl_p95 itl_p99 round_gap_p95 stall_p95 tpot_p95
        answer_latency_p95
        acceptance_window_min task_pass_delta json_pass_delta tool_call_pass_delta token_agreement warm_cache_agreement
        error_rate memory_headroom memory_pressure_critical throttle_time swapin_bytes swapout_bytes swap_growth
        footprint_peak footprint_growth fan_variation power_mean energy_per_token
        system_power_mean system_energy_per_token
    """

    assert set(promised.split()) <= BY_NAME.keys() >= set(MEASURED)
    assert len(ALL) == len(BY_NAME)
    assert set(SPEED_RATIOS) == {metric.name for metric in ALL if metric.speed_ratio and not metric.measured_by}
    assert all(metric.host == (metric.per is Per.HOST) for metric in ALL)


def test_a_new_quantile_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for `itl_p99.9` is all it takes: it is planned, estimated, judged and printed as 99.9%."""
    row = workload_metrics._itl(0.999)
    monkeypatch.setitem(BY_NAME, row.name, row)
    written = slo(
        objective("itl_p99.9", at_most=0.1, scope="population"),
        subject={"backend": "mlx", "target": "t", "drafts": ["d"]},
    )
    kind = BackendTraits(
        "mlx", Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.PLAIN, 1, frozenset({"draft", "num_draft_tokens"})
    )
    promise = written.objective[0]

    few = complaints(written, {"easy": canaries(400)}, kind, {})[0]
    result = check(promise, estimate("itl_p99.9", evidence(spread(5000, lambda _: steady(0.05)))))

    assert ("itl_p99.9", "99.9 % quantile of") == (row.name, row.description[:18])
    says("core", "a new quantile is one row: message", few.message)
    says("core", "a new quantile is one row: hint", few.hint)
    assert "for 99.9 % of the tokens" in latency_complaints(written)[0].message
    says("core", "a new quantile is one row: reason", result.because)
    assert Outcome.PASS == result.outcome
