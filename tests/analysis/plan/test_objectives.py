"""Objectives that apply to a workload: the SLO's own, and the implicit ones."""

import pytest

from gatekeeper.analysis.follow_ups import warm_cache
from gatekeeper.analysis.plan.objectives import (
    AGREE_UNREAD,
    ALL_SHOWN,
    Implicit,
    Terms,
    all_objectives,
    implicit_objectives,
)
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.slo import Slo
from tests.builders.slo import objective, slo

IMPLICIT = (
    "error_rate",
    "speculation_engaged",
    "truncation_rate",
    "throughput_ratio",
    "answer_throughput_ratio",
    "numerics_harm_p_value",
    "replay_agreement",
)


def implied(written: Slo, workload: str = "easy", terms: Terms = ALL_SHOWN) -> dict[str, Implicit]:
    return {
        implicit_objective.metric: implicit_objective
        for implicit_objective in implicit_objectives(written, workload, terms)
    }


def test_speculating_brings_implicit_objectives() -> None:
    """A speculating setting must answer, engage its draft, cut nothing short, lose no speed and keep the words."""
    silent = slo(objective("acceptance_rate", at_least=0.5))

    names = [promise.metric for promise in all_objectives(silent, "easy", speculating=True)]

    assert ["acceptance_rate", *IMPLICIT] == names


def test_naming_the_metric_relaxes_an_implicit_objective() -> None:
    """An SLO that speaks of error_rate itself is taken at its word."""
    written = slo(objective("error_rate", at_most=0.02))

    words = {"replay_agreement", "numerics_harm_p_value"}
    speeds = {"throughput_ratio", "answer_throughput_ratio"}
    assert {"speculation_engaged", "truncation_rate", *speeds, *words} == implied(written).keys()
    assert [0.02] == [
        promise.threshold
        for promise in all_objectives(written, "easy", speculating=True)
        if promise.metric == "error_rate"
    ]


def test_plain_decoding_is_held_to_what_applies_to_it() -> None:
    """Ratios, deltas, acceptance and the implicit objectives do not apply to plain decoding; latencies do."""
    written = slo(
        objective("throughput_ratio"),
        objective("acceptance_rate", at_least=0.5),
        objective("ttft", at_most=0.5),
        objective("itl_p95", at_most=0.05, when="speculating"),
    )

    assert ["ttft"] == [promise.metric for promise in all_objectives(written, "easy", speculating=False)]


def test_a_prompt_cache_brings_objectives_of_its_own() -> None:
    """As deployed, no turn may fail, no word may change, and turns keep the SLO's own bounds of time: 1 without one,
    and the first token only where it has one. Plain decoding may not fail either, so that the pass is due for it too.
    """
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"}
    subject |= {"prompt_cache": "as-deployed"}
    cached = slo(objective("error_rate", at_most=0.0), subject=subject)
    bounds = objective("answer_throughput_ratio", at_least=1.2), objective("ttft_delta", at_most=0.08)
    bound = slo(*bounds, objective("throughput_ratio", at_least=0.9), subject=subject)

    always = {"warm_cache_turn_ratio": 1.0, "warm_cache_error_rate": 0.0, "warm_cache_agreement": 1.0}
    assert always.keys() == {name for name in implied(cached) if name.startswith("warm_cache")}
    assert always == {name: implied(cached)[name].threshold for name in always}
    assert (0.9, 0.08) == tuple(
        implied(bound)[name].threshold for name in ("warm_cache_turn_ratio", "warm_cache_ttft_delta")
    )
    plain = all_objectives(bound, "easy", speculating=False)
    assert ["warm_cache_error_rate"] == [promise.metric for promise in plain]
    settings = {"easy": (("draft", "heavy"),), "hard": (("draft", None),)}
    assert ("easy", "hard") == warm_cache.workloads_of(cached, settings)


def test_an_objective_is_of_the_workloads_it_names() -> None:
    """It is checked for those alone, and relaxes the implicit one of theirs; one on memory belongs to the run."""
    names = ("easy", "hard")
    written = slo(
        objective("error_rate", at_most=0.02, workloads=["easy"]),
        objective("ttft", at_most=0.9, workloads=["hard"]),
        objective("memory_headroom", at_least=1e9),
        workload=[{"name": name, "canaries": f"{name}.jsonl"} for name in names],
    )

    assert [False, True] == ["error_rate" in implied(written, name) for name in names]
    assert [[], ["ttft"]] == [
        [
            promise.metric
            for promise in all_objectives(written, name, speculating=True)
            if promise.metric not in IMPLICIT
        ]
        for name in names
    ]
    assert ["memory_headroom"] == [host_objective.metric for host_objective in written.host_objectives]


@pytest.mark.parametrize(
    ("lacks", "concurrency", "expected"),
    [
        (Sight.NOTHING, 1, ["throughput_ratio", "answer_throughput_ratio"]),
        (Sight.ARRIVALS, 1, ["answer_throughput_ratio"]),
        (Sight.NOTHING, 4, ["system_throughput_ratio"]),
        (Sight.TOKEN_COUNT, 1, []),
        (Sight.PLAIN, 1, []),
    ],
)
def test_the_implicit_ratios_are_those_the_backend_shows(lacks: Sight, concurrency: int, expected: list[str]) -> None:
    """Decode speed and that of whole answers; without arrivals the latter; above one stream the system's; else none."""
    written = slo(objective("acceptance_rate", at_least=0.5), soak={"duration": 600, "concurrency": concurrency})

    ratios = [name for name in implied(written, terms=Terms(sight=~lacks)) if "ratio" in name]

    assert expected == ratios


@pytest.mark.parametrize("metric", ["throughput_ratio", "answer_throughput_ratio", "system_throughput_ratio"])
@pytest.mark.parametrize(("bound", "least"), [(0.8, 0.8), (1.3, 1.0)])
def test_whole_answers_count_beside_any_ratio_that_is_named(metric: str, bound: float, least: float) -> None:
    """Whole answers are held to plain decoding's speed, or to the bound of an SLO that allows less."""
    ratios = {name: rule for name, rule in implied(slo(objective(metric, at_least=bound))).items() if "ratio" in name}

    beside = {} if metric == "answer_throughput_ratio" else {"answer_throughput_ratio": least}
    assert beside == {name: rule.threshold for name, rule in ratios.items()}


VERIFIES = Sight.REPLAY | Sight.VERIFIED


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        (Sight.NOTHING, {"replay_agreement": 1.0}),
        (Sight.REPLAY, {"replay_agreement": 1.0, "token_agreement": 1.0}),
        (Sight.REPLAY | Sight.LOGPROBS, {"replay_agreement": 1.0}),
        (VERIFIES, {"token_agreement": 1.0}),
        (VERIFIES | Sight.LOGPROBS, {"token_agreement": 1.0}),
        (VERIFIES | Sight.LOGPROBS | Sight.LOGITS, {"token_agreement": AGREE_UNREAD}),
        (Sight.TEXT, {}),
        (Sight.PLAIN, {}),
    ],
)
def test_greedy_words_are_an_implicit_objective(lacks: Sight, expected: dict[str, float]) -> None:
    """Each token must be the target's own choice where the backend shows it; else words must agree."""
    objectives = implied(slo(), terms=Terms(~lacks))

    words = {"token_agreement", "replay_agreement"} & objectives.keys()
    assert expected == {name: objectives[name].threshold for name in words}
    assert ("numerics_harm_p_value" in objectives) == bool(expected)


@pytest.mark.parametrize(
    ("lacks", "by"),
    [
        (Sight.NOTHING, "sampled_tokens_p_value"),
        (Sight.REPLAY | Sight.ROUNDS | Sight.TOKEN_IDS | Sight.LOGITS, "sampled_answers_p_value"),
    ],
    ids=["in process", "a server"],
)
def test_sampled_words_are_compared_by_their_distribution(lacks: Sight, by: str) -> None:
    """Above temperature 0 answers are compared as samples, token by token or whole."""
    objectives = implied(slo(sampling={"temperature": 0.7}), terms=Terms(~lacks))

    always = {"error_rate", "speculation_engaged", "answer_throughput_ratio"}
    assert always | {"numerics_harm_p_value", by} == objectives.keys()
    assert {0.001} == {objectives[name].threshold for name in ("numerics_harm_p_value", by)}
