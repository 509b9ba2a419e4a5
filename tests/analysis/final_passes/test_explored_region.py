"""The explored region: its boundary is the truth's, few requests find it, and noise proves nothing."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.final_passes.explored_region import Exploration, ProbeCache, certified_region, explore
from gatekeeper.analysis.plan.region_points import REGION, Direction, Point, box_corners
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.policy import AxisBounds
from gatekeeper.core.records import Generation, StoredRecords
from gatekeeper.core.slo import Region
from gatekeeper.core.verdict import Outcome
from tests.builders.case import WINNING, bare
from tests.builders.golden_words import says
from tests.builders.slo import canaries, counted, generation, objective, steady

Truth = Callable[[Mapping[str, float]], float]
"""The ratio at a point, by the values that differ from the certified ones."""


def case_of(region: Mapping[str, Any], *objectives: dict[str, Any], **changes: Any) -> Case:
    promises = (objective("throughput_ratio", at_least=1.1), *objectives)
    case = bare({"easy": WINNING}, objectives=promises, region=region, **changes)
    return replace(case, canaries={"easy": canaries(16, "easy")}, live=True)


def region_of(answers: Iterable[Generation]) -> dict[str, StoredRecords[Generation]]:
    return {REGION: StoredRecords(tuple(answers))}


def answers_of(case: Case) -> Sequence[Generation]:
    return case.recorded_at_end(REGION).records


def explored(case: Case, truth: Truth, noise: float = 0.02, seed: int = 0) -> tuple[Case, Exploration]:
    """Answer whatever the exploration needs, as a system does whose ratio is the truth."""
    cache: ProbeCache = {}
    route = case.plan.candidates[0].setting
    records: list[Any] = []
    at_s = 0.0
    while (exploration := explore(case, "easy", route, 12, cache)).need is not None:
        plan = exploration.need.plan
        ratio, prompt = truth(dict(plan.point)), int(dict(plan.point).get("context", 12))
        for request in (each for block in plan.blocks(exploration.need.look, case.plan.seed) for each in block):
            drafting = request.arm == "candidate"
            shuffle = random.Random(f"{seed}/{request.key}")
            gap = 0.05 / (ratio if drafting else 1.0) * (1 + shuffle.gauss(0, noise))
            limit = min(dict(plan.point).get("max_tokens", 10), 40)
            answer = steady(gap, int(limit), sent_s=at_s, rounds=counted(4, 16, 6) if drafting else None)
            records.append(
                generation(
                    replace(answer, prompt_tokens=prompt),
                    request.canary.id,
                    arm=request.arm,
                    trial=plan.name,
                    key=request.key,
                    pair=request.pair,
                    setting=plan.knobs if drafting else plan.plain,
                )
            )
            at_s += 2
        case = replace(case, at_end=region_of(records))
    return case, exploration


def outcomes(exploration: Exploration) -> dict[Point, Outcome]:
    return {probe.point: probe.outcome for probe in exploration.probes}


def document(case: Case) -> dict[str, dict[str, Any]]:
    region = certified_region(replace(case, live=False), "easy", case.plan.candidates[0].setting, 12)
    assert region is not None
    return {axis.name: axis.document() for axis in region.axes}


def test_the_boundary_is_the_truths() -> None:
    """
    Drafting pays up to temperature 0.7: the values up to it are inside, the next is outside, the last is not probed.
    """
    case, exploration = explored(
        case_of({"temperature": [0.0, 0.3, 0.7, 1.0, 1.5]}), lambda at: 1.5 if at["temperature"] <= 0.7 else 0.8
    )

    axis = document(case)["temperature"]
    assert [Outcome.PASS, Outcome.PASS, Outcome.FAIL] == [probe.outcome for probe in exploration.probes]
    assert (0.0, 0.0, 0.7) == (axis["certified"], axis["at_least"], axis["at_most"])
    assert ["certified", "inside", "inside", "outside", "open"] == [value["outcome"] for value in axis["values"]]


@pytest.mark.parametrize("inside", [0, 1, 5, 8])
def test_an_axis_declared_monotone_is_bisected(inside: int) -> None:
    """
    Of eight values at most four are probed, wherever the boundary lies; what lies between is known without a request.
    """
    values = [100 * 2**step for step in range(8)]
    region = {"context": values, "monotone": ["context"], "repeats": 1}
    last = ([0, *values])[inside]
    case, exploration = explored(case_of(region), lambda at: 1.5 if at["context"] <= last else 0.7)

    axis = document(case)["context"]
    assert ["inside"] * inside + ["outside"] * (8 - inside) == [value["outcome"] for value in axis["values"]]
    assert (values[inside - 1] if inside else 12) == axis["at_most"]
    assert len(exploration.probes) <= 4


def test_a_corner_is_measured_before_two_axes_may_move() -> None:
    """
    Each axis alone is fine, both together are not: the box shrinks to the corner that holds, and the axes stay as wide.
    """
    region = {"temperature": [0.0, 0.5, 1.0], "context": [200, 400]}

    def truth(at: Mapping[str, float]) -> float:
        return 0.8 if at.get("temperature", 0) >= 1.0 and "context" in at else 1.5

    case, exploration = explored(case_of(region), truth)

    axes = document(case)
    assert (1.0, 400) == (axes["temperature"]["at_most"], axes["context"]["at_most"])
    assert (0.5, 200) == (axes["temperature"]["together_at_most"], axes["context"]["together_at_most"])
    assert Outcome.FAIL is outcomes(exploration)[("context", 400), ("temperature", 1.0)]


def test_no_corner_no_box() -> None:
    """
    Where no corner holds, two axes may not move at once.
    """
    region = {"temperature": [0.0, 1.0], "context": [400]}

    case, _ = explored(case_of(region), lambda at: 1.5 if len(at) == 1 else 0.8)

    assert {"temperature", "context"} == document(case).keys()
    assert not any("together_at_most" in axis for axis in document(case).values())


def test_each_side_of_a_box_is_a_corner_unless_its_axis_is_monotone() -> None:
    """
    Three axes have four corners beside the axes themselves; where all are declared monotone, the outermost is enough.
    """
    ways = [Direction(axis, (1.0, 2.0), False) for axis in "abc"]
    declared = [Direction(axis, (1.0, 2.0), True) for axis in "abc"]

    sides, outermost = (box_corners(dict.fromkeys(directions, 2)) for directions in (ways, declared))

    assert [3, 2, 2, 2] == [len(point) for point in sides]
    assert [(("a", 2.0), ("b", 2.0), ("c", 2.0))] == outermost


@pytest.mark.whole
def test_noise_proves_no_point_outside_and_none_inside() -> None:
    """
    With 15 % of noise and a truth 4 % above the bound no point of thirty runs is outside; at the bound itself few are
    inside, which the allowed error covers.
    """
    region = {"temperature": [0.0, 0.5, 1.0], "repeats": 1}
    above = [explored(case_of(region), lambda _: 1.144, 0.15, seed)[1] for seed in range(30)]
    below = [explored(case_of(region), lambda _: 1.08, 0.15, seed)[1] for seed in range(30)]

    assert not any(probe.outcome is Outcome.FAIL for exploration in above for probe in exploration.probes)
    assert sum(any(probe.outcome is Outcome.PASS for probe in exploration.probes) for exploration in below) <= 3


def test_what_was_not_measured_is_open() -> None:
    """
    Records that end within a point leave it open, and nothing beyond the certified value is routed.
    """
    case, _ = explored(case_of({"temperature": [0.0, 0.5]}), lambda _: 1.5)
    cut = replace(case, at_end=region_of(answers_of(case)[:9]), live=False)

    axis = document(cut)["temperature"]

    assert ["certified", "open"] == [value["outcome"] for value in axis["values"]]
    assert (0.0, 0.0) == (axis["at_least"], axis["at_most"])


def test_a_limit_that_no_answer_reached_proves_nothing() -> None:
    """
    Answers of 40 tokens try a limit of 300 no more than the certified one of 256.
    """
    case, exploration = explored(case_of({"max_tokens": [300, 600]}), lambda _: 1.5)

    says("verdicts", "a limit that no answer reached proves nothing", exploration.probes[0].because)
    assert 256 == document(case)["max_tokens"]["at_most"]


def test_a_context_reaches_as_far_as_its_prompts() -> None:
    """
    The bound is in tokens that were counted, and without a count there is none.
    """
    case, _ = explored(case_of({"context": [200]}), lambda _: 1.5)
    mute = replace(
        case,
        at_end=region_of(
            replace(record, answer=replace(record.answer, prompt_tokens=150)) for record in answers_of(case)
        ),
    )
    silent = replace(
        case,
        at_end=region_of(
            replace(record, answer=replace(record.answer, prompt_tokens=None)) for record in answers_of(case)
        ),
    )

    assert [200, 150, 12] == [document(explored_case)["context"]["at_most"] for explored_case in (case, mute, silent)]


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ({"temperature": (0.7, 0.3)}, "must rise"),
        ({"context": (0,)}, "is not from 1"),
        ({"concurrency": (128,)}, "is not from 1 to 64"),
        ({"temperature": (0.5,), "monotone": ("context",)}, "is no axis with values"),
        ({"temperature": (0.5,), "canaries": 4}, "greater than or equal to 8"),
    ],
)
def test_a_region_that_makes_no_sense_is_refused(written: dict[str, Any], word: str) -> None:
    """
    The values of an axis rise and lie in its range, and only axes with values are declared monotone.
    """
    with pytest.raises(ValueError, match=word):
        Region.model_validate(written)


def test_a_box_ends_no_further_out_than_its_axes() -> None:
    """
    The prompts of a corner may happen to be longer than those on the axis: the nearer end counts, and the route is
    whole.
    """
    case, _ = explored(case_of({"temperature": [0.0, 0.5], "context": [200]}), lambda _: 1.5)
    longer = tuple(
        replace(record, answer=replace(record.answer, prompt_tokens=150 if record.trial == "context-200" else 180))
        for record in answers_of(case)
    )

    context = document(replace(case, at_end=region_of(longer)))["context"]

    assert (150, 150) == (context["at_most"], context["together_at_most"])
    AxisBounds.model_validate({key: context[key] for key in AxisBounds.model_fields if key in context})


@pytest.mark.parametrize(
    ("region", "metric", "changes"),
    [
        ({"temperature": [0.0, 0.5]}, "token_agreement", {}),
        ({"temperature": [0.0, 0.5]}, "first_tokens_p_value", {"sampling": {"distribution_check": True}}),
        ({"context": [200]}, "warm_cache_agreement", {}),
    ],
)
def test_a_point_that_nothing_can_prove_is_open_without_a_request(
    region: dict[str, Any], metric: str, changes: dict[str, Any]
) -> None:
    """
    Words above temperature 0, and what is measured at the certified point alone, leave a point open at no cost.
    """
    _, exploration = explored(case_of(region, objective(metric), **changes), lambda _: 1.5)

    (probe,) = exploration.probes
    assert (Outcome.UNPROVEN, 0) == (probe.outcome, probe.answers)
    assert metric in probe.because


@pytest.mark.parametrize(
    ("region", "outcome"), [({"context": [200]}, Outcome.FAIL), ({"temperature": [0.0, 0.5]}, Outcome.UNPROVEN)]
)
def test_an_answer_that_is_cut_short_by_chance_breaks_nothing(region: dict[str, Any], outcome: Outcome) -> None:
    """
    At temperature 0 an answer cut short that plain decoding completes is a fact; above it, both arms draw their ends.
    """
    case, _ = explored(case_of(region), lambda _: 1.5)
    first = next(at for at, record in enumerate(answers_of(case)) if record.arm == "candidate")
    cut = list(answers_of(case))
    cut[first] = replace(cut[first], answer=replace(cut[first].answer, finish="length"))
    ended = replace(case, at_end=region_of(cut), live=False)

    (probe,) = explore(ended, "easy", case.plan.candidates[0].setting, 12, {}).probes

    assert outcome is probe.outcome
    assert "truncation_rate" in probe.because
