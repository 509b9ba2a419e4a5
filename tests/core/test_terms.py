"""The smaller terms: clock, manifest, metrics, profile, errors, outcomes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.clock import VirtualClock, stamp
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError, UnprovableError, did_you_mean
from gatekeeper.core.manifest import Manifest, Model, differences, digest_of, seed_of, sha256
from gatekeeper.core.metrics import ALL, BY_NAME, PASS_DELTAS, RATIOS, Per
from gatekeeper.core.profile import Profile
from gatekeeper.core.verdict import Check, Estimate, Outcome, Verdict, WorkloadVerdict, rounded

# The clock


def test_ticks_see_their_own_instant() -> None:
    """
    A sampler on the virtual clock is called at each due time on the way, not all at once at the end.
    """
    clock, seen = VirtualClock(), []
    clock.every(10**9, lambda: seen.append(clock.now_ns()))

    clock.sleep(3.5)

    assert ([1 * 10**9, 2 * 10**9, 3 * 10**9], 3_500_000_000) == (seen, clock.now_ns())


def test_ticks_end_when_told() -> None:
    """
    A stopped tick is not called again, whatever else goes on.
    """
    clock, seen = VirtualClock(), []
    stop = clock.every(10**9, lambda: seen.append("one"))
    clock.every(2 * 10**9, lambda: seen.append("two"))

    clock.sleep(2)
    stop()
    clock.sleep(2)

    assert (2, 2) == (seen.count("one"), seen.count("two"))


@given(st.lists(st.floats(-1, 5), max_size=20))
def test_time_never_goes_back(waits: list[float]) -> None:
    """
    A negative wait waits for nothing; wall time moves with the monotonic one.
    """
    clock = VirtualClock()
    start = clock.wall()

    instants = []
    for wait in waits:
        clock.sleep(wait)
        instants.append(clock.now_ns())

    assert sorted(instants) == instants
    assert pytest.approx((clock.wall() - start).total_seconds(), abs=1e-5) == clock.now_ns() / 1e9


def test_instants_are_written_in_utc() -> None:
    """
    One format, always UTC, so that text sorts as time.
    """
    assert "2026-11-20T09:12:00.123456Z" == stamp(datetime(2026, 11, 20, 9, 12, 0, 123456, tzinfo=UTC))


# The manifest


def manifest(**changes: Any) -> Manifest:
    model = {
        "name": "t",
        "digest": "d",
        "files": {"a": "1"},
        "bytes": 1,
        "quantisation": "4-bit",
        "vocabulary": 8,
        "tokens_sha256": None,
        "template_sha256": None,
    }
    return Manifest.model_validate(
        {
            "schema": 1,
            "slo": {"name": "slo.toml", "sha256": "s"},
            "backend": "mlx",
            "shares_process": True,
            "streams": 1,
            "restart_knobs": [],
            "sight": ["text"],
            "target": model,
            "sampling": {"temperature": 0.0, "seed": 7},
            "canaries": {"easy": {"name": "e", "sha256": "c"}},
            "profile": {"name": "steady.toml", "sha256": "p"},
            "versions": {"gatekeeper": "1", "numpy": "2"},
            "host": {"chip": "Apple M4", "memory_gb": 24},
            "frozen_at": "now",
            **changes,
        }
    )


def test_the_digest_does_not_depend_on_key_order() -> None:
    """
    The same facts in another order are the same manifest.
    """
    one = manifest(host={"chip": "Apple M4", "memory_gb": 24}, versions={"numpy": "2", "gatekeeper": "1"})
    two = manifest(host={"memory_gb": 24, "chip": "Apple M4"}, versions={"gatekeeper": "1", "numpy": "2"})

    assert sha256(one.text()) == sha256(two.text())


def test_the_manifest_is_read_back() -> None:
    """
    What is written is what is read, byte for byte.
    """
    one = manifest()

    assert one.text() == Manifest.model_validate_json(one.text()).text()


def test_nan_is_never_written() -> None:
    """
    A fact of the host that is not a number is written as null: NaN is no JSON.
    """
    assert '"memory_gb": null' in manifest(host={"memory_gb": float("nan")}).text()


def test_differences_name_what_makes_two_runs_incomparable() -> None:
    """
    Another chip and another numpy are named by their part; the time of freezing and the uptime are no difference.
    """
    other = manifest(
        host={"chip": "Apple M5", "memory_gb": 24}, versions={"gatekeeper": "1", "numpy": "3"}, frozen_at="later"
    )

    assert ["versions.numpy", "host.chip"] == differences(manifest(), other)
    assert [] == differences(manifest(), manifest(frozen_at="later"))
    assert ["target"] == differences(manifest(), manifest(target=None))
    assert [] == differences(manifest(), manifest(host={"chip": "Apple M4", "memory_gb": 24, "uptime_s": 5}))


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("01", min_size=1, max_size=3), max_size=5))
def test_a_folders_digest_covers_names_and_contents(files: dict[str, str]) -> None:
    """
    Order does not matter; a renamed or changed file does.
    """
    assert digest_of(files) == digest_of(dict(reversed(files.items())))
    assert all(digest_of({**files, name: "x"}) != digest_of(files) for name in files)
    assert digest_of({**files, "z": "1"}) != digest_of({**files, "zz": "1"})


def test_the_seed_comes_from_the_manifest() -> None:
    """
    Other inputs draw other bootstraps, the same inputs the same.
    """
    assert seed_of(sha256("a")) == seed_of(sha256("a")) != seed_of(sha256("b"))


def test_a_model_keeps_the_digest_of_every_file() -> None:
    """
    The digest of the folder alone could not say which file changed.
    """
    found = manifest().target

    assert isinstance(found, Model)
    assert {"a": "1"} == found.files


# The vocabulary


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


# The profile


@pytest.mark.parametrize(
    "change",
    [
        {"arrival": "open"},
        {"rate": "1 /s"},
        {"mix": {}},
        {"mix": {"a": -1.0}},
        {"mix": {"a": 0.0}},
        {"idle": "-1 s"},
        {"background": {"memory": "-1 GB"}},
        {"rat": 1},
    ],
)
def test_an_impossible_profile_is_refused(change: dict[str, Any]) -> None:
    """
    A rate without open arrival, an empty mix, negative loads and unknown keys are mistakes.
    """
    with pytest.raises(ValueError, match="validation error"):
        Profile.model_validate({"schema": 1, "name": "p", **change})


def test_the_mix_has_a_rest() -> None:
    """
    `*` is every workload that is not named; without it, the others have no weight.
    """
    with_rest = Profile.model_validate({"schema": 1, "name": "p", "mix": {"a": 3.0, "*": 1.0}})
    without = Profile.model_validate({"schema": 1, "name": "p", "mix": {"a": 3.0}})

    assert (3.0, 1.0, 0.0) == tuple(
        mix.weight(name, "medium") for mix, name in ((with_rest, "a"), (with_rest, "b"), (without, "b"))
    )


def test_a_tier_has_a_weight_of_its_own() -> None:
    """
    A workload's own weight comes before its tier's, and that before the rest.
    """
    mixed = Profile.model_validate({"schema": 1, "name": "p", "mix": {"a": 5.0, "tier:long": 3.0, "*": 1.0}})

    assert (5.0, 3.0, 1.0) == (mixed.weight("a", "long"), mixed.weight("b", "long"), mixed.weight("b", "short"))
    assert ("long",) == mixed.tiers


# Errors and outcomes


def test_exit_codes_of_errors() -> None:
    """
    The contract's codes: input 2, unprovable 2, this host 3, ours 4.
    """
    assert [2, 2, 3, 4] == [kind.exit_code for kind in (InputError, UnprovableError, HostLacksError, GatekeeperError)]


def test_did_you_mean() -> None:
    """
    The nearest word is asked for; where none is near, all are listed.
    """
    assert "did you mean 'ttft'?" == did_you_mean("tttf", BY_NAME)
    assert "allowed: a, b" == did_you_mean("zzzzzz", ["b", "a"])


@pytest.mark.parametrize(
    ("outcomes", "required", "host", "incomplete", "word", "code"),
    [
        (["promoted"], True, None, None, "promoted", 0),
        (["promoted", "graded_back"], False, None, None, "promoted", 0),
        (["promoted", "graded_back"], True, None, None, "graded_back", 1),
        (["promoted", "unproven"], False, None, None, "unproven", 3),
        (["failed", "unproven"], False, None, None, "failed", 1),
        (["graded_back", "unproven"], True, None, None, "graded_back", 1),
        (["promoted"], True, Outcome.FAIL, None, "failed", 1),
        (["promoted"], True, Outcome.UNPROVEN, None, "unproven", 3),
        (["promoted"], True, Outcome.PASS, None, "promoted", 0),
        (["promoted"], True, None, "cut off", "unproven", 3),
        ([], True, None, None, "unproven", 3),
    ],
)
def test_the_outcome_of_a_run(
    outcomes: list[str], host: Outcome | None, incomplete: str | None, word: str, code: int, *, required: bool
) -> None:
    """
    The contract's order: failed, then graded back, then unproven, else promoted; no workload at all is unproven.
    """
    checks = () if host is None else (Check("memory_headroom", "at_least", 1.0, host, "B", "b", "w"),)
    workloads = tuple(WorkloadVerdict(str(at), one, {}, (), required, "b") for at, one in enumerate(outcomes))

    verdict = Verdict("s", "demo", "m", workloads, checks, incomplete=incomplete)

    assert (word, code) == (verdict.outcome, verdict.exit_code)


@given(st.floats(-1e12, 1e12))
def test_rounding_is_stable_and_close(value: float) -> None:
    """
    Six significant digits, once and for all.
    """
    assert rounded(value) == rounded(rounded(value))
    assert pytest.approx(value, rel=1e-5) == rounded(value)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_rounding_keeps_the_order(values: list[float]) -> None:
    """
    A rounded interval is an interval.
    """
    lo, center, hi = sorted(values)

    near = Estimate(center, lo, hi, 1).rounded()

    assert near.lo <= near.center <= near.hi
