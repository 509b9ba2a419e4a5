"""The null arm: plain decoding against itself, the harness's own noise on this host now."""

from typing import Any

from bench.rehearsal import Rehearsed, canaries, rehearse, slo
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, sweep_plan
from gatekeeper.analysis.sweep.choice import SettingResult, choose, setting_results
from gatekeeper.core.verdict import Estimate


def run(ratio: float, noise: float, *, repeats: int = 1, **script: Any) -> Rehearsed:
    promised = slo(
        workload=[{"name": "work", "canaries": "x", "speculation": "optional"}],
        sweep={"repeats": repeats, "num_draft_tokens": [4]},
        soak={"duration": 30.0, "sentinel_share": 0.5},
        objective=[{"metric": "error_rate", "at_most": 0.0, "why": "w"}],
    )
    truth = {"seed": 5, "tokens": 40, "acceptance": 0.0, "ratio": ratio, "noise": {"answer": noise}, **script}
    return rehearse(promised, {"work": canaries("work", 24)}, truth, 5)


def seen_of(ran: Rehearsed) -> SettingResult:
    case = ran.case
    return setting_results(case.sweep_answers("work"))[0]


def test_the_null_arm_is_asked_beside_the_baseline() -> None:
    """
    Every canary has its second plain answer in the same place of the interleaving, in a record file of its own.
    """
    ran = run(1.3, 0.02, repeats=2)

    steps = ran.case.plan.requests
    units = [steps[at : at + 3] for at in range(0, len(steps), 3)]
    assert "null.jsonl" in [trial.file for trial in ran.case.plan.trials]
    assert all({BASELINE, NULL, "default"} == {step.trial.name for step in unit} for unit in units)
    assert all(1 == len({(step.canary.id, step.repeat) for step in unit}) for unit in units)
    assert 1 < len({tuple(step.trial.name for step in unit) for unit in units})


def test_a_sweep_without_drafts_has_no_null_arm() -> None:
    """
    Where nothing is compared, nothing is spent on the noise of a comparison.
    """
    promised = slo(
        workload=[{"name": "work", "canaries": "x", "speculation": "optional"}],
        objective=[{"metric": "error_rate", "at_most": 0.0, "why": "w"}],
    )
    bare = promised.model_copy(update={"subject": promised.subject.model_copy(update={"drafts": ()})})

    plan = sweep_plan(bare, {"work": canaries("work", 5)}, shares_process=True, restart_knobs=(), seed=1)

    assert ["baseline"] == [trial.name for trial in plan.trials]


def test_an_effect_inside_the_noise_does_not_beat_plain() -> None:
    """
    The same gain of 3 % is chosen on a quiet host and is not on a noisy one, which says why.
    """
    quiet, noisy = run(1.03, 0.005), run(1.03, 0.15)

    because = noisy.verdict.workloads[0].because
    assert ("promoted", "graded_back") == tuple(one.verdict.workloads[0].outcome for one in (quiet, noisy))
    assert "plain against plain reads" in because


def test_a_harness_that_favours_one_side_raises_the_bar() -> None:
    """
    Whatever plain decoding "gains" over itself, in either direction, is no gain of a draft.
    """
    one = seen_of(run(1.1, 0.005))
    assert isinstance(one.noise, Estimate)
    assert one.beats_plain

    for noise in (Estimate(1.15, 1.14, 1.16, 24), Estimate(0.87, 0.86, 0.88, 24)):
        biased = SettingResult(one.trial, one.ratio, one.measure, one.logs, one.acceptance, noise)

        assert not biased.beats_plain


def test_the_choice_shows_the_null_run() -> None:
    """
    verdict.json holds what plain against plain read, beside the settings it was held against.
    """
    ran = run(1.3, 0.02)
    one = seen_of(ran)

    document = choose(ran.case.slo, ran.case.plan, (one,)).document()

    assert document["null"]["lo"] <= 1.0 <= document["null"]["hi"]
    assert one.ratio.n == document["null"]["n"]
