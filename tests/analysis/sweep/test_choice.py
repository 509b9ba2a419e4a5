"""Which setting the sweep chooses."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bench import rehearsal
from gatekeeper.analysis.plan.settings import chosen_of
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.sweep.choice import Choice, choose
from gatekeeper.analysis.sweep.setting_result import SettingResult, setting_results
from gatekeeper.analysis.sweep.sweep_answers import sweep_answers
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import Slo
from tests.builders.slo import answer, canaries, counted, generation, known, slo, steady

LENGTHS = {"repeats": 1, "budget": 16, "num_draft_tokens": [2, 3, 4, 6], "default": {"num_draft_tokens": 4}}
ALL_LENGTHS = ("default", "num_draft_tokens-2", "num_draft_tokens-3", "num_draft_tokens-6")
FROZEN = canaries(16)
WORDS = "twenty tokens or fewer, each of which has a byte at least"


def laid(written: Slo) -> SweepPlan:
    return sweep_plan(written, {"easy": FROZEN}, shares_process=True, restart_knobs=(), seed=7)


def swept(plan: SweepPlan, ratios: Mapping[str, float], noise: float = 0.01) -> dict[str, list[Generation]]:
    """Answer every step: plain decoding at 0.1 s a token, each candidate trial faster by its ratio."""
    shuffle = random.Random(3)
    records: dict[str, list[Generation]] = {}
    for step in (step for block in plan.blocks for step in block.requests):
        plain = step.arm == "plain"
        gap = 0.1 / ratios.get(step.trial, 1.0) * (1 + shuffle.gauss(0, noise))
        length = dict(step.setting).get("num_draft_tokens") or 4
        length = length if isinstance(length, int) else 5
        rounds = None if plain else counted(4, 4 * length, min(4 * length, 12))
        reply = steady(gap, 16, rounds=rounds, text=WORDS)
        record = generation(reply, step.canary.id, arm=step.arm, pair=step.pair, setting=step.setting)
        records.setdefault(step.trial, []).append(record)
    return records


def chosen(
    written: Slo,
    ratios: Mapping[str, float],
    noise: float = 0.01,
    *,
    required: bool = False,
) -> Choice:
    return choose(written, results(written, ratios, noise), "easy", required=required)


def results(written: Slo, ratios: Mapping[str, float], noise: float) -> tuple[SettingResult, ...]:
    plan = laid(written)
    return setting_results(sweep_answers(written, plan, swept(plan, ratios, noise), "easy", FROZEN))


def test_the_best_is_chosen_where_it_is_clear() -> None:
    """Length 3 wins by a margin no noise explains."""
    ratios = {"default": 1.3, "num_draft_tokens-2": 1.2, "num_draft_tokens-3": 1.6, "num_draft_tokens-6": 1.1}

    choice = chosen(slo(sweep=LENGTHS), ratios)

    assert {"draft": "heavy", "num_draft_tokens": 3} == dict(choice.setting)


@pytest.mark.parametrize(("ratio", "noise"), [(0.9, 0.01), (0.98, 0.02), (0.7, 0.2)])
def test_nothing_beats_plain(ratio: float, noise: float) -> None:
    """Where no setting is proven faster than plain decoding, plain decoding is chosen."""
    choice = chosen(slo(sweep=LENGTHS), dict.fromkeys(ALL_LENGTHS, ratio), noise)

    assert {"draft": None} == dict(choice.setting)
    assert "plain" in choice.because


def test_a_required_workload_is_soaked_unless_all_is_ruled_out() -> None:
    """Where no gain shows and none is ruled out, the setting that reads best is soaked."""
    ratios = dict.fromkeys(ALL_LENGTHS, 1.02)

    free, must = (chosen(slo(sweep=LENGTHS), ratios, 0.15, required=required) for required in (False, True))

    best = max(must.results, key=lambda result: known(result.ratio).center)
    assert ({"draft": None}, chosen_of(best.trial.setting)) == (dict(free.setting), must.setting)
    assert "so the soak decides" in must.because


@pytest.mark.parametrize(
    ("ratio", "age_s", "plain"),
    [
        (0.9, 600, True),
        (1.05, 600, False),
        (1.001, 600, False),
        (0.9, 0, False),
        (0.9, 300, False),
        (0.75, 300, True),
        (0.6, 0, True),
    ],
)
def test_a_required_workload_is_graded_back_by_proof_alone(ratio: float, age_s: float, *, plain: bool) -> None:
    """Only what is proven slower is not soaked; a process younger than ten minutes may warm up."""
    written = slo(
        {"metric": "throughput_ratio", "at_least": 1.16, "why": "it must"}, sweep={**LENGTHS, "stop": "never"}
    )
    measured = [replace(result, age_s=age_s) for result in results(written, dict.fromkeys(ALL_LENGTHS, ratio), 0.02)]

    assert plain == (dict(choose(written, measured, "easy", required=True).setting)["draft"] is None)


@pytest.mark.parametrize("working", [0, 3], ids=["all", "most"])
def test_drafted_answers_that_fail_are_no_choice(working: int) -> None:
    """They are no proof of a slow draft: plain decoding is in doubt, by the server's words."""
    written = slo(sweep=LENGTHS)
    plan = laid(written)
    records = swept(plan, {})
    for name in ALL_LENGTHS:
        failed = answer([], ended_s=1.0, fault="died")
        broken = [generation(failed, record.canary, pair=record.pair) for record in records[name][working:]]
        records[name] = [*records[name][:working], *broken]
    measured = setting_results(sweep_answers(written, plan, records, "easy", FROZEN))

    free, must = (choose(written, measured, "easy", required=required) for required in (False, True))

    assert [None, None] == [dict(choice.setting)["draft"] for choice in (free, must)]
    assert all("died" in str(choice.doubt) for choice in (free, must))
    assert "drafted_failed" in {finding.kind for finding in must.findings}


def test_a_baseline_that_proves_nothing_chooses_plain() -> None:
    """Plain answers that all failed leave nothing to compare with; speculation is not assumed to win."""
    written = slo(sweep=LENGTHS)
    plan = laid(written)
    records = swept(plan, {"default": 2.0})
    records["baseline"] = [
        generation(answer([], ended_s=1.0, fault="died"), record.canary, arm="plain", pair=record.pair)
        for record in records["baseline"]
    ]

    choice = choose(written, setting_results(sweep_answers(written, plan, records, "easy", FROZEN)), "easy")

    assert {"draft": None} == dict(choice.setting)
    assert "inconclusive" in choice.because


@pytest.mark.parametrize(("silent", "length"), [((2, 3, 4, 6), None), ((6,), 3)])
@pytest.mark.parametrize("required", [False, True])
def test_a_draft_that_proposes_nothing_is_not_chosen(
    silent: tuple[int, ...], length: int | None, *, required: bool
) -> None:
    """However fast it reads: where no setting proposes a token, that is the reason, before any ratio."""
    plan = laid(slo(sweep=LENGTHS))
    records = swept(plan, dict.fromkeys(ALL_LENGTHS, 1.2) | {"num_draft_tokens-3": 1.5, "num_draft_tokens-6": 2.0})
    for trial in plan.candidates:
        if dict(trial.setting)["num_draft_tokens"] in silent:
            records[trial.name] = [
                replace(record, answer=replace(record.answer, rounds=counted(16, 0, 0)))
                for record in records[trial.name]
            ]

    measured = setting_results(sweep_answers(slo(sweep=LENGTHS), plan, records, "easy", FROZEN))
    choice = choose(slo(sweep=LENGTHS), measured, "easy", required=required)

    assert length == dict(choice.setting).get("num_draft_tokens")
    assert len(silent) == sum(result.proposes_nothing for result in choice.results)
    assert ("proposed no tokens" in choice.because) is (length is None)
    assert 1 == len({finding for finding in choice.findings if finding.kind == "silent_speculation"})


def test_winners_of_several_knobs_are_combined() -> None:
    """Length 2 and the light draft each win alone: together they are what the soak tests, and the reason says it."""
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "draft": ["heavy", "light"], "default": {"num_draft_tokens": 4}}

    choice = chosen(slo(sweep=sweep), {"default": 1.2, "num_draft_tokens-2": 1.5, "draft-light": 1.4})

    assert {"draft": "light", "num_draft_tokens": 2} == dict(choice.setting)
    assert "combined" in choice.because


def test_conditions_are_reported_and_never_chosen() -> None:
    """A temperature that happens to be fast is seen in the report; the choice keeps the promised one, unnamed."""
    sweep: dict[str, Any] = {
        "repeats": 1,
        "num_draft_tokens": [2, 4],
        "temperature": [0.0, 0.7],
        "default": {"num_draft_tokens": 4},
    }

    choice = chosen(slo(sweep=sweep), {"default": 1.5, "num_draft_tokens-2": 1.1, "temperature-0.7": 3.0})

    assert {"draft": "heavy", "num_draft_tokens": 4} == dict(choice.setting)
    assert "temperature-0.7" in {result.trial.name for result in choice.results}


def test_answers_that_arrive_whole_are_judged_by_their_whole_time() -> None:
    """A tool call sent in one piece has no decode speed; the whole answer's is used, and named."""
    written = slo(sweep={"repeats": 1, "num_draft_tokens": [4]})
    plan = laid(written)
    records = {
        name: [
            generation(answer([second], tokens=[20], text=WORDS), prompt.id, arm=arm, pair="1.0", role=Role.MEASURED)
            for prompt in FROZEN
        ]
        for name, arm, second in (("baseline", "plain", 1.0), ("default", "candidate", 0.5))
    }

    (measured,) = setting_results(sweep_answers(written, plan, records, "easy", FROZEN))

    assert isinstance(measured.ratio, Estimate)
    assert "answer_throughput_ratio" == measured.measure
    assert pytest.approx(2.0) == measured.ratio.center


@pytest.mark.parametrize(("lo", "draft"), [(0.99, None), (1.0, None), (1.01, "heavy")])
def test_beyond_noise_means_the_whole_interval(lo: float, draft: str | None) -> None:
    """A center of 1.2 beats plain decoding only if its lower bound does."""
    written = slo(sweep={"repeats": 1, "num_draft_tokens": [4]})
    plan = laid(written)
    trial = next(trial for trial in plan.trials if trial.arm == "candidate")
    result = SettingResult(trial, Estimate(1.2, lo, 1.5, 16), "throughput_ratio", None)

    assert draft == dict(choose(written, [result], "easy").setting)["draft"]


def with_null_arm(ratio: float, noise: float, *, repeats: int = 1, **script: Any) -> rehearsal.Rehearsed:
    promised = rehearsal.slo(
        workload=[{"name": "work", "canaries": "x", "speculation": "optional"}],
        sweep={"repeats": repeats, "num_draft_tokens": [4]},
        soak={"duration": 30.0, "baseline_share": 0.5},
        objective=[{"metric": "error_rate", "at_most": 0.0, "why": "w"}],
    )
    truth = {"seed": 5, "tokens": 40, "acceptance": 0.0, "ratio": ratio, "noise": {"answer": noise}, **script}
    return rehearsal.rehearse(promised, {"work": rehearsal.canaries("work", 24)}, truth, 5)


def result_of(ran: rehearsal.Rehearsed) -> SettingResult:
    case = ran.case
    return setting_results(case.sweep_answers("work"))[0]


def test_an_effect_inside_the_noise_does_not_beat_plain() -> None:
    """The same gain of 3 % is chosen on a quiet host and is not on a noisy one."""
    quiet, noisy = with_null_arm(1.03, 0.005), with_null_arm(1.03, 0.15)

    assert ("promoted", "graded_back") == tuple(rehearsed.verdict.workloads[0].outcome for rehearsed in (quiet, noisy))
