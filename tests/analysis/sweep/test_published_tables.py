"""Published results, replayed as decisions: the table is the true mean, 5 % noise, 24 canaries a workload."""

from collections.abc import Mapping
from typing import Any

import pytest

from bench.rehearsal import Rehearsed, canaries, rehearse, slo

PLAIN_A = {"short": 35.5, "reasoning": 38.7, "prose": 37.5, "tool": 30.5}
"""Source A (M3 Ultra 512 GB, 397B target, 4B draft; EVIDENCE.md), tok/s."""
DRAFTED_A = {
    "short": {"3": 35.8, "4": 29.0, "5": 30.7, "6": 8.5},
    "reasoning": {"3": 43.2, "4": 49.1, "5": 55.8, "6": 61.1},
    "prose": {"3": 25.9, "4": 25.1, "5": 24.2, "6": 26.9},
    "tool": {"3": 3.6, "4": 3.7, "5": 3.6, "6": 3.7},
}
BLOCKS_B = {"8": 1.7, "16": 2.0, "24": 1.3, "32": 1.28, "64": 1.27}
"""Like source B (M5 Pro 48 GB, block-diffusion draft): best near 16, a sharp drop at 24, flat to 64."""
SPEEDS_C = {"4": 0.84, "8": 0.78}
"""Source C (M2 Ultra 64 GB, 0.6B draft on a GGUF server), against plain; its MLX runs read -0.1 % and +0.8 %."""

SEEDS = (1, 2)


def replay(
    workloads: Mapping[str, Mapping[str, Any]], knob: str, values: list[int], seed: int, **script: Any
) -> Rehearsed:
    promised = slo(
        workload=[{"name": name, "canaries": "x", "speculation": "optional"} for name in workloads],
        sweep={"repeats": 2, knob: values},
        soak={"duration": 120.0, "baseline_share": 0.5},
        objective=[{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must not be slower"}],
    )
    truth = {"seed": seed, "tokens": 40, "noise": {"answer": 0.05}, "acceptance": 0.5, **script}
    truth["canaries"] = {f"{name}-": manner for name, manner in workloads.items()}
    return rehearse(promised, {name: canaries(name, 24) for name in workloads}, truth, seed)


def outcomes(ran: Rehearsed) -> dict[str, str]:
    return {workload.name: workload.outcome for workload in ran.verdict.workloads}


def source_a(seed: int, **script: Any) -> Rehearsed:
    workloads = {
        name: {"token": 1 / plain, "ratio": {n: speed / plain for n, speed in DRAFTED_A[name].items()}}
        for name, plain in PLAIN_A.items()
    }
    return replay(workloads, "num_draft_tokens", [3, 4, 5, 6], seed, **script)


@pytest.mark.whole
@pytest.mark.parametrize("seed", SEEDS)
def test_source_a_promotes_reasoning_only(seed: int) -> None:
    """One workload gains, one breaks even and two lose: the gate routes, where any static choice is a compromise."""
    ran = source_a(seed)

    assert {"short": "graded_back", "reasoning": "promoted", "prose": "graded_back", "tool": "graded_back"} == outcomes(
        ran
    )
    assert 6 == ran.verdict.workloads[1].setting["num_draft_tokens"]


@pytest.mark.whole
@pytest.mark.parametrize("seed", SEEDS)
def test_a_baseline_of_two_minds_is_unproven(seed: int) -> None:
    """A plain arm that reads 4.44 and then 30.5 tok/s decides nothing."""
    tool = {"token": 1 / 30.5, "ratio": DRAFTED_A["tool"]["3"] / 30.5}
    modes = [{"share": 0.5, "slower": 30.5 / 4.44, "arm": "plain"}]

    ran = replay({"tool": tool}, "num_draft_tokens", [3], seed, modes=modes)

    assert {"tool": "unproven"} == outcomes(ran)
    assert "unstable_arm" in {finding.kind for finding in ran.verdict.findings}


@pytest.mark.whole
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speeds", [{"4": 0.999, "8": 1.008}, SPEEDS_C])
def test_source_c_promotes_nothing(seed: int, speeds: Mapping[str, float]) -> None:
    """A draft that gives -0.1 % and +0.8 %, or -16 % and -22 %, is not worth its memory."""
    ran = replay({"chat": {"ratio": speeds}}, "num_draft_tokens", [4, 8], seed)

    assert {"chat": "graded_back"} == outcomes(ran)


@pytest.mark.whole
@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_sweep_like_source_b_picks_16(seed: int) -> None:
    """The peak of the block sweep is found, not its edge."""
    ran = replay({"code": {"ratio": BLOCKS_B}}, "block_size", [8, 16, 24, 32, 64], seed, tokens=130)

    assert {"code": "promoted"} == outcomes(ran)
    assert 16 == ran.verdict.workloads[0].setting["block_size"]


def test_truncated_answers_are_no_speed() -> None:
    """Answers that end at half their length look three times as fast, and are found out."""
    cut = [{"fault": "short", "arm": "candidate"}]

    ran = replay({"short": {"ratio": 3.0}}, "num_draft_tokens", [6], 1, faults=cut)

    assert {"short": "graded_back"} == outcomes(ran)
    assert "length_mismatch" in {finding.kind for finding in ran.verdict.findings}
