"""The sweep's trials and their order."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.analysis.plan import settings as plan_settings
from gatekeeper.analysis.plan import sweep_plan as planning
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, SweepPlan, sweep_plan
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import setting
from gatekeeper.core.slo import Slo
from tests.builders.slo import canaries, canary, objective, slo

SWEEP = {"repeats": 2, "num_draft_tokens": [2, 4, 6], "temperature": [0.0, 0.7], "default": {"num_draft_tokens": 4}}


def laid(written: Slo, *, shares: bool = True, seed: int = 7, count: int = 6) -> SweepPlan:
    frozen = {workload.name: canaries(count, workload.name) for workload in written.workload}
    restart = () if shares else ("draft", "num_draft_tokens")
    return sweep_plan(written, frozen, shares_process=shares, restart_knobs=restart, seed=seed)


def test_one_at_a_time_moves_each_knob_alone() -> None:
    """Every candidate differs from the default in one knob, the default comes first, and no setting comes twice."""
    settings_by_name = {
        name: (changed, dict(knobs)) for name, changed, knobs in plan_settings.candidate_settings(slo(sweep=SWEEP))
    }

    default = {"draft": "heavy", "num_draft_tokens": 4, "temperature": 0.0}
    assert {
        "default": (None, default),
        "num_draft_tokens-2": ("num_draft_tokens", {**default, "num_draft_tokens": 2}),
        "num_draft_tokens-6": ("num_draft_tokens", {**default, "num_draft_tokens": 6}),
        "temperature-0.7": ("temperature", {**default, "temperature": 0.7}),
    } == settings_by_name
    assert "default" == next(iter(settings_by_name))


@pytest.mark.parametrize(
    "drafts", [["a/pair", "b/pair", "c/pair"], ["m/Draft", "n/draft", "o/DRAFT"], ["x", "a b", "a-b"]]
)
def test_every_trial_has_its_own_file(drafts: list[str]) -> None:
    """Drafts whose names end alike, or differ in case alone on a Mac's disk, do not share a record file."""
    subject = {"backend": "scripted", "target": "t", "drafts": drafts, "script": "s.json"}

    trials = planning.trials_of(slo(subject=subject, sweep={"draft": drafts}))

    # Plain decoding, its null arm, and a candidate for each of three drafts.
    assert 5 == len(trials) == len({trial.file.lower() for trial in trials}) == len({trial.name for trial in trials})


def test_more_runs_than_allowed_are_refused() -> None:
    """A grid that explodes is refused with both numbers and a way out, before anything runs."""
    sweep = {"design": "grid", "num_draft_tokens": [1, 2, 3, 4], "max_tokens": [8, 16, 32], "max_runs": 11}

    with pytest.raises(InputError) as refused:
        planning.trials_of(slo(sweep=sweep))

    assert ("12 runs" in refused.value.message, "max_runs allows 11" in refused.value.message) == (True, True)
    assert "one-at-a-time" in refused.value.hint
    assert planning.trials_of(slo(sweep={**sweep, "max_runs": 12}))


def test_arms_are_interleaved_where_one_process_serves_both() -> None:
    """All arms, the second plain one among them, answer a canary before the next one is sent, in random order, so that
    a drift falls on all alike; a condition has a plain twin of its own.
    """
    plan = laid(slo(sweep=SWEEP))

    assert 1 == len(plan.blocks)
    steps, trials = plan.blocks[0].requests, {trial.name: trial for trial in plan.trials}
    arms = len(plan.blocks[0].trials)
    groups = [steps[at : at + arms] for at in range(0, len(steps), arms)]
    assert all(1 == len({(request.canary.id, request.repeat) for request in group}) for group in groups)
    assert all({*trials} == {request.trial for request in group} > {BASELINE, NULL} for group in groups)
    assert len({tuple(request.trial for request in group) for group in groups}) > 1
    assert BASELINE == trials["num_draft_tokens-6"].baseline
    twin = trials[trials["temperature-0.7"].baseline]
    assert ("plain", {"draft": None, "temperature": 0.7}) == (twin.arm, dict(twin.setting))


def test_blocks_go_abba_where_the_process_is_not_shared() -> None:
    """Plain, candidate, candidate, plain: a host that warms up steadily weighs on both arms alike."""
    plan = laid(slo(sweep={"repeats": 2, "num_draft_tokens": [4]}), shares=False)

    assert [("1.1a", "plain"), ("1.1b", "candidate"), ("1.1c", "candidate"), ("1.1d", "plain")] == [
        (block.name, block.trials[0].arm) for block in plan.blocks
    ]


def test_each_canary_is_in_both_halves() -> None:
    """With repeats, both plain blocks ask the same canaries, and so do both candidate blocks."""
    plan = laid(slo(sweep={"repeats": 3, "num_draft_tokens": [4]}), shares=False)

    halves = [{step.canary.id for step in block.requests} for block in plan.blocks]

    assert 4 == len(halves)
    assert all(halves[0] == half for half in halves)


def test_concurrent_arms_are_not_mixed() -> None:
    """Answers under way together disturb each other: with many streams one trial is sent at a time, ABBA."""
    plan = laid(slo(sweep={"repeats": 2, "num_draft_tokens": [4]}, soak={"concurrency": 8}))

    assert [8] * 4 == [block.concurrency for block in plan.blocks]
    for block in plan.blocks:
        order = [step.trial for step in block.requests]
        assert len(block.trials) == sum(trial != before for before, trial in pairwise(["", *order]))


@given(st.integers(0, 2**60), st.booleans(), st.integers(1, 3), st.integers(2, 7), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_every_step_comes_once_and_within_budget(
    seed: int, shares: bool, repeats: int, count: int, budget: int
) -> None:
    """Whatever the order, each trial asks each canary of its budget once per repeat, under a key of its own."""
    plan = laid(slo(sweep={**SWEEP, "repeats": repeats, "budget": budget}), shares=shares, seed=seed, count=count)

    for block in plan.blocks:
        assert len(block.requests) == len({(request.trial, request.key) for request in block.requests})
    for trial in plan.trials:
        if trial.arm == "candidate":
            sent = [request for block in plan.blocks for request in block.requests if request.trial == trial.name]
            keys = sorted((request.canary.id, request.repeat) for request in sent)
            assert len(keys) == len(set(keys)) <= budget
            assert {name for name, _ in keys} == {f"easy-{at:03}" for at in range(min(count, budget))}


@pytest.mark.parametrize(
    ("budget", "repeats", "share"), [(400, 3, (6, 3)), (12, 3, (6, 2)), (6, 3, (6, 1)), (4, 3, (4, 1)), (1, 1, (1, 1))]
)
def test_budget_gives_up_repeats_before_canaries(budget: int, repeats: int, share: tuple[int, int]) -> None:
    """Canaries are the independent units: repeats go first when the budget is short."""
    written = slo(sweep={"repeats": repeats, "budget": budget})

    assert share == planning.share_of_budget(written, canaries(6))


@pytest.mark.parametrize(
    ("knobs", "limit", "tokens"),
    [({"max_tokens": 32}, 64, 32), ({}, 64, 64), ({}, None, 256)],
)
def test_max_tokens_precedence(knobs: dict[str, Any], limit: int | None, tokens: int) -> None:
    """The knob goes before the canary's own limit, and that before the SLO's."""
    sampling = plan_settings.sampling_for(slo(), canary(max_tokens=limit), setting(draft="heavy", **knobs), 1)

    assert tokens == sampling.max_tokens


@pytest.mark.parametrize(
    ("temperature", "streams", "seed"), [(0.0, 1, None), (0.7, 1, 7), (0.7, 8, None), (0.0, 8, None)]
)
def test_a_seed_is_sent_only_where_it_changes_nothing_but_the_draw(
    temperature: float, streams: int, seed: int | None
) -> None:
    """A seed switches a server's batching off: none at temperature 0, none beside other streams."""
    sampling = plan_settings.sampling_for(slo(), canary(), setting(draft=None, temperature=temperature), streams)

    assert seed == sampling.seed


@pytest.mark.parametrize(("metric", "sent"), [("throughput_ratio", 6), ("error_rate", 12)])
def test_the_sweep_leaves_canaries_for_a_bound_on_prompts_like_them(metric: str, sent: int) -> None:
    """Every second canary where an interval must hold for other prompts; settings do not compete in counts."""
    bound = {"at_most": 0.5} if metric == "error_rate" else {"at_least": 1.1}
    plan = laid(slo(objective(metric, scope="population", **bound)), count=12)

    names = {request.canary.id for request in plan.requests}

    assert sent == len(names)
    assert {prompt.id for prompt in canaries(12, "easy")[:: 12 // sent]} == names
