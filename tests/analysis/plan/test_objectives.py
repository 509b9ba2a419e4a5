"""Objectives that apply to a workload: the SLO's own, and the implicit ones."""

from gatekeeper.analysis.plan.objectives import all_objectives, implicit_objectives
from tests.builders.slo import objective, slo


def test_speculating_brings_implicit_objectives() -> None:
    """
    A speculating setting must answer, engage its draft and cut nothing short, though the SLO is silent about it.
    """
    names = [one.metric for one in all_objectives(slo(), "easy", speculating=True)]

    assert ["throughput_ratio", "error_rate", "speculation_engaged", "truncation_rate"] == names


def test_naming_the_metric_relaxes_an_implicit_objective() -> None:
    """
    An SLO that speaks of error_rate itself is taken at its word.
    """
    written = slo(objective("error_rate", at_most=0.02))

    assert {"speculation_engaged", "truncation_rate"} == {one.metric for one in implicit_objectives(written)}
    assert [0.02] == [
        one.threshold for one in all_objectives(written, "easy", speculating=True) if one.metric == "error_rate"
    ]


def test_plain_decoding_is_held_to_what_applies_to_it() -> None:
    """
    Ratios, deltas, acceptance and the implicit objectives do not apply to plain decoding; latencies do.
    """
    written = slo(
        objective("throughput_ratio"),
        objective("acceptance_rate", at_least=0.5),
        objective("ttft", at_most=0.5),
        objective("itl_p95", at_most=0.05, when="speculating"),
    )

    assert ["ttft"] == [one.metric for one in all_objectives(written, "easy", speculating=False)]


def test_host_objectives_belong_to_the_run() -> None:
    """
    An objective on memory is not checked once per workload.
    """
    written = slo(objective("throughput_ratio"), objective("memory_headroom", at_least=1e9))

    assert "memory_headroom" not in {one.metric for one in all_objectives(written, "easy", speculating=True)}
    assert ["memory_headroom"] == [one.metric for one in written.host_objectives]


def test_objectives_of_other_workloads_are_theirs() -> None:
    """
    An objective that names its workloads is checked for those alone.
    """
    written = slo(
        objective("ttft", at_most=0.5, workloads=["easy"]),
        objective("ttft", at_most=0.9, workloads=["hard"]),
        workload=[{"name": name, "canaries": f"{name}.jsonl"} for name in ("easy", "hard")],
    )

    assert [0.5] == [one.threshold for one in all_objectives(written, "easy", speculating=False)]
    assert [0.9] == [one.threshold for one in all_objectives(written, "hard", speculating=False)]


def test_a_prompt_cache_and_drawn_tokens_bring_objectives_of_their_own() -> None:
    """
    As deployed, a cache may not change answers; with a distribution check, a draft may not change what is drawn.
    """
    subject = {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"}
    cached = slo(subject={**subject, "prompt_cache": "as-deployed"})
    drawn = slo(sampling={"temperature": 0.7, "distribution_check": True})

    assert ["warm_cache_agreement"] == [one.metric for one in implicit_objectives(cached)][3:]
    assert ["first_tokens_p_value"] == [one.metric for one in implicit_objectives(drawn)][3:]
    assert [] == [one.metric for one in implicit_objectives(slo())][3:]
