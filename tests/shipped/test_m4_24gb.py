"""The SLO files for the Mac mini M4: the brief's figures, the hour, and a verdict for the reason meant.

Nothing here ran on a Mac: a rehearsal makes the whole run on a simulated one (`bench/machines/m4.toml`).
"""

from functools import cache
from pathlib import Path

import pytest

from bench.rehearsal import Rehearsed, rehearse
from bench.simulated_mac import host_of, script_of
from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints
from gatekeeper.analysis.verdict.run_verdict import Verdict
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
    """Each file draws no complaint, soaks for a certificate with apps open beside it, and is for this machine."""
    slo_inputs = inputs.read(SLOS / f"{name}.toml")
    slo = slo_inputs.slo
    backend = open_backend(slo.subject, models={}, base=Path(), logs=Path())
    traits = BackendTraits(backend.name, backend.sight, backend.streams, backend.knobs, backend.caches)

    assert [] == complaints(slo, slo_inputs.canaries, traits, {})
    assert ("Apple M4", 24, "ac") == (slo.host.chip, slo.host.memory_gb, slo.host.power)
    assert slo.soak.duration >= 600
    assert slo.sampling.thinking is False
    assert slo_inputs.profile.background.memory > 0
    assert slo_inputs.profile.background.cpu > 0


@pytest.mark.parametrize("name", FILES)
def test_the_briefs_speeds_bind_the_draft_alone(name: str) -> None:
    """The brief's own plain baseline misses its absolute speeds, so plain decoding is never judged by them."""
    slo = inputs.read(SLOS / f"{name}.toml").slo

    plain = {objective.metric for objective in slo.objectives_for("code", speculating=False)}

    assert plain.isdisjoint({"decode_throughput", "itl_p95", "throughput_ratio", "acceptance_rate"})


def test_the_server_is_certified_as_it_is_deployed() -> None:
    """Two files certify mlx_lm.server without its prompt cache, one mlx-lm in process; all three the same pair."""
    subjects = {name: inputs.read(SLOS / f"{name}.toml").slo.subject for name in FILES}

    assert ["mlx-server", "mlx", "mlx-server"] == [subject.backend for subject in subjects.values()]
    assert {"off"} == {subject.prompt_cache for subject in subjects.values()}
    assert 1 == len({(subject.target, subject.drafts) for subject in subjects.values()})


def test_windows_below_the_bound_can_fire() -> None:
    """Three windows fit into each soak; where a file claims every figure of the brief they are of five minutes."""
    soaks = {name: inputs.read(SLOS / f"{name}.toml").slo.soak for name in FILES}

    assert all(3 * soak.window_s <= soak.duration for soak in soaks.values())
    assert [300, 180, 300] == [soak.window_s for soak in soaks.values()]


@cache
def rehearsed(name: str, truth: float | None, fault: str = "none") -> Rehearsed:
    slo_inputs = inputs.read(SLOS / f"{name}.toml")
    script = script_of("m4", slo_inputs.slo, slo_inputs.canaries, truth, fault)
    return rehearse(
        slo_inputs.slo, slo_inputs.canaries, script, 1, profile=slo_inputs.profile, host=host_of(slo_inputs.slo, fault)
    )


def minutes(run: Rehearsed) -> float:
    return sum(run.seconds.values()) / 60


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {workload.name: workload.outcome for workload in verdict.workloads}


@pytest.mark.whole
@pytest.mark.parametrize("name", ["m4-24gb", pytest.param("m4-24gb-inprocess", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("truth", [None, 1.3])
def test_a_draft_that_is_worth_it_is_promoted_within_the_hour(name: str, truth: float | None) -> None:
    """With the machine's own rates and at 1.3x everything is promoted within 75 minutes."""
    run = rehearsed(name, truth)

    assert ("promoted", 0, "certification") == (run.verdict.outcome, run.verdict.exit_code, run.verdict.grade)
    assert {"json": "promoted", "code": "promoted", "tools": "promoted"} == outcomes(run.verdict)
    assert minutes(run) <= 75


@pytest.mark.whole
def test_a_mac_in_use_has_a_file_that_it_can_keep() -> None:
    """With the 2.9 GB that a long session leaves beside the server everything is promoted, for the checklist's own
    pair.
    """
    slo_inputs = inputs.read(SLOS / "m4-24gb-used.toml")
    slo, checklist = slo_inputs.slo, inputs.read(SLOS / "m4-24gb.toml").slo
    calm = host_of(slo)
    script = script_of("m4", slo, slo_inputs.canaries, None)

    run = rehearse(
        slo, slo_inputs.canaries, script, 1, profile=slo_inputs.profile,
        host=lambda at: {**calm(at), "memory_headroom": 2.9e9},
    )  # fmt: skip

    assert ("promoted", 0, "certification") == (run.verdict.outcome, run.verdict.exit_code, run.verdict.grade)
    assert {"json": "promoted", "code": "promoted", "tools": "promoted"} == outcomes(run.verdict)
    assert (slo.subject, slo.host, slo.fallback) == (checklist.subject, checklist.host, checklist.fallback)


@pytest.mark.nightly
@pytest.mark.whole
def test_the_ratio_of_a_rehearsal_is_what_it_is_called() -> None:
    """Without noise the soak at 1.16x measures that ratio, in each workload within what their lengths make of it."""
    slo_inputs = inputs.read(SLOS / "m4-24gb.toml")
    script = script_of("m4", slo_inputs.slo, slo_inputs.canaries, 1.16) | {"noise": {}}
    run = rehearse(
        slo_inputs.slo, slo_inputs.canaries, script, 1, profile=slo_inputs.profile, host=host_of(slo_inputs.slo)
    )

    ratios = [
        check.center
        for workload in run.verdict.workloads
        for checks in (*(step.checks for step in workload.steps), workload.checks)
        for check in checks
        if check.metric == "throughput_ratio"
    ]
    assert len(ratios) >= 2
    assert [pytest.approx(1.16, rel=0.025)] * len(ratios) == ratios


@pytest.mark.whole
@pytest.mark.parametrize("truth", [None, 1.3])
def test_a_soak_of_900_seconds_is_one(truth: float | None) -> None:
    """Fifteen minutes under load give every objective its canaries, with the host sampled once a second."""
    soaking = [
        host_sample for host_sample in rehearsed("m4-24gb", truth).case.host_samples if host_sample.phase == "soak-1"
    ]

    assert 900 <= len(soaking) <= 930


@pytest.mark.whole
def test_the_first_token_is_late_and_a_warm_up_is_required() -> None:
    """On the M4 a draft's first token comes more than 8 % later, and is in time only with a warm-up."""
    (code,) = [workload for workload in rehearsed("m4-24gb", None).verdict.workloads if workload.name == "code"]

    (check,) = [check for check in code.checks if check.metric == "ttft_delta"]
    assert ("warm-up", Outcome.PASS) == (check.passed_with, check.outcome)
    assert check.lo is not None
    assert check.lo > 0.08


@pytest.mark.nightly
@pytest.mark.whole
def test_without_the_cost_of_a_pause_the_late_first_token_is_not_excused() -> None:
    """On a Mac where a pause costs nothing a warm-up saves nothing: code is graded back for its first token."""
    slo_inputs = inputs.read(SLOS / "m4-24gb.toml")
    script = script_of("m4", slo_inputs.slo, slo_inputs.canaries, None) | {"cold": {}}

    run = rehearse(
        slo_inputs.slo, slo_inputs.canaries, script, 1, profile=slo_inputs.profile, host=host_of(slo_inputs.slo)
    )

    assert {"json": "promoted", "code": "graded_back", "tools": "promoted"} == outcomes(run.verdict)
    assert "ttft_delta: " in run.verdict.transitions[-1].because


@pytest.mark.whole
@pytest.mark.parametrize("truth", [pytest.param(0.9, marks=pytest.mark.nightly), 1.0])
def test_a_draft_that_is_not_worth_it_is_graded_back_sooner(truth: float) -> None:
    """Below plain decoding's speed every workload decodes plainly within two hours: by the sweep's proof, or the soak's
    where a process that was just started may still warm up.
    """
    run = rehearsed("m4-24gb", truth)

    assert ("graded_back", 1) == (run.verdict.outcome, run.verdict.exit_code)
    assert {"graded_back"} == set(outcomes(run.verdict).values())
    assert minutes(run) <= 120
    last = {step.workload: step.because for step in run.verdict.transitions}.values()
    assert all("no draft setting" in because or "throughput_ratio" in because for because in last)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("fault", "metric"),
    [
        pytest.param("leak", "footprint_growth", marks=pytest.mark.nightly),
        ("throttle", "throttle_time"),
        pytest.param("squeeze", "memory_headroom", marks=pytest.mark.nightly),
    ],
)
def test_a_host_in_trouble_fails_for_that_reason(fault: str, metric: str) -> None:
    """A leak, a minute of throttling or memory that runs short fails the run, and nothing else is to blame."""
    run = rehearsed("m4-24gb", 1.3, fault)

    assert ("failed", 1) == (run.verdict.outcome, run.verdict.exit_code)
    assert [metric] == [
        host_check.metric for host_check in run.verdict.host_checks if host_check.outcome is Outcome.FAIL
    ]
    assert all(transition.because.startswith(f"drafting off: {metric}: ") for transition in run.verdict.transitions)


@pytest.mark.whole
def test_wrong_tool_calls_turn_drafting_off_for_tools_alone() -> None:
    """Calls that only the draft gets wrong take tools down to plain decoding; the others stay promoted."""
    run = rehearsed("m4-24gb", 1.3, "tools")

    assert {"json": "promoted", "code": "promoted", "tools": "graded_back"} == outcomes(run.verdict)
    assert "tool_call_pass_delta: " in run.verdict.transitions[-1].because


@pytest.mark.nightly
@pytest.mark.whole
def test_a_host_that_shows_no_gpu_is_unproven() -> None:
    """Where nothing confirms that the thermal sensors work, no throttling is unproven, and so is the run."""
    run = rehearsed("m4-24gb", 1.3, "blind")

    assert ("unproven", 3) == (run.verdict.outcome, run.verdict.exit_code)
    open_checks = [host_check for host_check in run.verdict.host_checks if host_check.outcome is not Outcome.PASS]
    assert [("throttle_time", Outcome.UNPROVEN)] == [
        (open_check.metric, open_check.outcome) for open_check in open_checks
    ]


@pytest.mark.nightly
@pytest.mark.whole
@pytest.mark.slow
def test_a_night_decides_chat_and_long_prompts_too() -> None:
    """With the machine's own rates chat and long prompts decode plainly, each for its own reason, and the rest
    drafts.
    """
    run = rehearsed("m4-24gb-nightly", None)

    assert ("promoted", 0) == (run.verdict.outcome, run.verdict.exit_code)
    steps = {transition.workload: transition.because for transition in run.verdict.transitions}
    assert {"chat", "long"} == set(steps)
    assert "acceptance_rate: " in steps["chat"]
    assert "answer_throughput_ratio" in steps["long"]


@pytest.mark.parametrize(
    ("workflow", "job", "name"),
    [("certify", "certify", "m4-24gb"), ("nightly-soak", "soak", "m4-24gb-nightly")],
)
def test_a_workflow_leaves_its_run_the_time_it_takes(workflow: str, job: str, name: str) -> None:
    """The SLO a workflow takes by default fits its limit: with all answers at full length, and one step down the
    ladder.
    """
    path = ROOT / ".github" / "workflows" / f"{workflow}.yml"
    read = document(path)
    timed = next(step for step in (*read["jobs"][job]["steps"], read["jobs"][job]) if "timeout-minutes" in step)

    planned, _ = forecast(SLOS / f"{name}.toml", 38.0)

    assert f"slos/{name}.toml" in path.read_text("utf-8")
    needed = planned["expected_total_seconds"] + max(planned["expected_fallback_seconds"].values())
    assert needed / 60 <= timed["timeout-minutes"]
