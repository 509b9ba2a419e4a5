"""The SLO files for the Mac mini M4: the brief's figures, the hour, and a verdict for the reason meant.

Nothing here ran on a Mac: a rehearsal makes the whole run on a simulated one (`bench/machines/m4.toml`).
"""

from pathlib import Path
from typing import Any

import pytest

from bench.rehearsal import Rehearsed, rehearse
from bench.simulated_mac import host_of, script_of
from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints
from gatekeeper.backends import open_backend
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.slo import Objective
from gatekeeper.core.system import inputs
from gatekeeper.run.plan import forecast
from tests.builders.github import document

ROOT = Path(__file__).resolve().parents[2]
SLOS = ROOT / "slos"
FILES = ("m4-24gb", "m4-24gb-inprocess", "m4-24gb-nightly")

BRIEF = {
    ("throughput_ratio", "at_least", 1.16),
    ("decode_throughput", "at_least", 44.0),
    ("itl_p95", "at_most", 0.045),
    ("acceptance_rate", "at_least", 0.55),
    ("acceptance_window_min", "at_least", 0.40),
    ("ttft_delta", "at_most", 0.08),
    ("task_pass_delta", "at_least", -0.005),
    ("task_pass_delta", "at_most", 0.005),
    ("json_pass_delta", "at_least", -0.005),
    ("json_pass_delta", "at_most", 0.005),
    ("tool_call_pass_delta", "at_least", -0.005),
    ("tool_call_pass_delta", "at_most", 0.005),
    ("memory_headroom", "at_least", 10e9),
    ("memory_pressure_critical", "at_most", 60.0),
    ("swapin_bytes", "at_most", 200e6),
    ("throttle_time", "at_most", 0.0),
    ("error_rate", "at_most", 0.0),
}
"""The published checklist for a Mac mini M4, in SI base units."""


@pytest.mark.parametrize("name", FILES)
def test_every_figure_of_the_brief_is_promised(name: str) -> None:
    """Each file holds every figure of the published checklist, each with the word for where it comes from."""
    slo = inputs.read(SLOS / f"{name}.toml").slo
    promised: dict[tuple[str, str, float], Objective] = {
        (objective.metric, objective.bound, objective.threshold): objective for objective in slo.objective
    }

    assert BRIEF <= set(promised)
    assert [] == [figure for figure in BRIEF if not promised[figure].why.startswith("Brief: ")]
    assert [] == [
        figure for figure, objective in promised.items() if figure not in BRIEF and not objective.why.startswith("Ours")
    ]
    assert {"footprint_peak", "footprint_growth"} <= {metric for metric, *_ in promised}
    assert "warm-up" == promised["ttft_delta", "at_most", 0.08].or_with
    assert (2, 3, 4, 6) == slo.sweep.num_draft_tokens
    assert 4 == slo.sweep.default.num_draft_tokens
    assert ("shrink-draft", "lighter-draft", "autoregressive") == slo.fallback.ladder


@pytest.mark.parametrize("name", FILES)
def test_a_file_can_certify(name: str) -> None:
    """It draws no complaint, soaks with apps open beside it, and never judges plain decoding by the draft's speeds."""
    read = inputs.read(SLOS / f"{name}.toml")
    slo = read.slo
    backend = open_backend(slo.subject, models={}, base=Path(), logs=Path())
    traits = BackendTraits(backend.name, backend.sight, backend.streams, backend.knobs, backend.caches)

    assert [] == complaints(slo, read.canaries, traits, {})
    assert ("Apple M4", 24, "ac") == (slo.host.chip, slo.host.memory_gb, slo.host.power)
    assert (True, False) == (slo.soak.duration >= 600, slo.sampling.thinking)
    assert min(read.profile.background.memory, read.profile.background.cpu) > 0
    plain = {objective.metric for objective in slo.objectives_for("code", speculating=False)}
    assert plain.isdisjoint({"decode_throughput", "itl_p95", "throughput_ratio", "acceptance_rate"})
    pair = inputs.read(SLOS / "m4-24gb.toml").slo.subject
    assert ("off", pair.target, pair.drafts) == (slo.subject.prompt_cache, slo.subject.target, slo.subject.drafts)


def rehearsed(name: str, truth: float | None, fault: str = "", headroom: float | None = None) -> Rehearsed:
    read = inputs.read(SLOS / f"{name}.toml")
    script, calm = script_of("m4", read.slo, read.canaries, truth, fault or "none"), host_of(read.slo, fault or "none")

    def host(at: float) -> dict[str, float]:
        return {**calm(at), **({} if headroom is None else {"memory_headroom": headroom})}

    return rehearse(read.slo, read.canaries, script, 1, profile=read.profile, host=host)


ALL = dict.fromkeys(("json", "code", "tools"), "promoted")
NONE = dict.fromkeys(ALL, "graded_back")
NIGHT = [pytest.mark.nightly]
REHEARSALS = [
    pytest.param("m4-24gb", None, {}, 0, ALL, "", 75, id="at its own rates"),
    pytest.param("m4-24gb", 1.3, {}, 0, ALL, "", 75, id="at 1.3x", marks=NIGHT),
    pytest.param("m4-24gb-inprocess", None, {}, 0, ALL, "", 75, id="in process", marks=NIGHT),
    pytest.param("m4-24gb-inprocess", 1.3, {}, 0, ALL, "", 75, id="in process at 1.3x", marks=NIGHT),
    pytest.param("m4-24gb-used", None, {"headroom": 2.9e9}, 0, ALL, "", 75, id="a machine in use"),
    pytest.param("m4-24gb", 1.0, {}, 1, NONE, "", 120, id="not worth it"),
    pytest.param("m4-24gb", 0.9, {}, 1, NONE, "", 120, id="slower", marks=NIGHT),
    pytest.param("m4-24gb", 1.3, {"fault": "leak"}, 1, None, "footprint_growth: ", 180, id="a leak", marks=NIGHT),
    pytest.param("m4-24gb", 1.3, {"fault": "throttle"}, 1, None, "throttle_time: ", 180, id="a minute of throttling"),
    pytest.param("m4-24gb", 1.3, {"fault": "squeeze"}, 1, None, "memory_headroom: ", 180, id="squeeze", marks=NIGHT),
    pytest.param(
        "m4-24gb", 1.3, {"fault": "tools"}, 0, ALL | {"tools": "graded_back"}, "tool_call_pass_delta: ", 120,
        id="wrong tool calls",
    ),
    pytest.param(
        "m4-24gb-nightly", None, {}, 0, ALL | {"chat": "graded_back", "long": "graded_back"},
        ("acceptance_rate: ", "answer_throughput_ratio"), 600, id="a night", marks=[*NIGHT, pytest.mark.slow],
    ),
]  # fmt: skip
"""The file, the draft's true gain, what else is so, the code, each workload's end, why, and the most minutes."""


@pytest.mark.whole
@pytest.mark.parametrize(("name", "truth", "more", "code", "ends", "because", "most"), REHEARSALS)
def test_a_file_ends_for_the_reason_meant(
    name: str,
    truth: float | None,
    more: dict[str, Any],
    code: int,
    ends: dict[str, str] | None,
    because: str | tuple[str, ...],
    most: float,
) -> None:
    """A draft that is worth it is promoted, one that is not is graded back; a host in trouble fails for that alone."""
    run = rehearsed(name, truth, **more)

    verdict, steps = run.verdict, {step.workload: step.because for step in run.verdict.transitions}
    assert (code, "certification") == (verdict.exit_code, verdict.grade)
    assert sum(run.seconds.values()) / 60 <= most
    if ends is None:
        failed = [check.metric for check in verdict.host_checks if check.outcome is Outcome.FAIL]
        assert ("failed", [str(because).partition(":")[0]]) == (verdict.outcome, failed)
        assert all(reason.startswith(f"drafting off: {because}") for reason in steps.values())
        return
    assert ends == {workload.name: workload.outcome for workload in verdict.workloads}
    reasons = (because,) if isinstance(because, str) else because
    assert all(any(reason in step for step in steps.values()) for reason in reasons if reason)
    if ends is NONE:
        assert all("no draft setting" in reason or "throughput_ratio" in reason for reason in steps.values())
    if (name, truth) == ("m4-24gb", None):
        (code_workload,) = [workload for workload in verdict.workloads if workload.name == "code"]
        (check,) = [check for check in code_workload.checks if check.metric == "ttft_delta"]
        assert ("warm-up", Outcome.PASS) == (check.passed_with, check.outcome)
        assert (check.lo or 0) > 0.08  # a draft's first token is late, and in time only with a warm-up


@pytest.mark.parametrize(
    ("workflow", "job", "name"),
    [("certify", "certify", "m4-24gb"), ("nightly-soak", "soak", "m4-24gb-nightly")],
)
def test_a_workflow_leaves_its_run_the_time_it_takes(workflow: str, job: str, name: str) -> None:
    """A workflow's default SLO fits its limit, with full answers and one step down the ladder."""
    path = ROOT / ".github" / "workflows" / f"{workflow}.yml"
    read = document(path)
    timed = next(step for step in (*read["jobs"][job]["steps"], read["jobs"][job]) if "timeout-minutes" in step)

    planned, _ = forecast(SLOS / f"{name}.toml", 38.0)

    assert f"slos/{name}.toml" in path.read_text("utf-8")
    needed = planned["expected_total_seconds"] + max(planned["expected_fallback_seconds"].values())
    assert needed / 60 <= timed["timeout-minutes"]
