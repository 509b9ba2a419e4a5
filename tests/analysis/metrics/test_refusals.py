"""Every refusal of the arithmetic, and the least that is not refused."""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from tests.builders.slo import answer, canaries, evidence, followed, marked, spread, steady, twins

Found = Callable[[], Estimate | Missing]
Value = TypeVar("Value")


def same(names: Iterable[str], value: Value) -> dict[str, Value]:
    return dict.fromkeys(names, value)


def pairs(*speeds: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return {f"c-{at}": pair for at, pair in enumerate(speeds)}


REFUSED: dict[str, tuple[Found, Missing]] = {
    "too few answers": (
        lambda: intervals.quantile([1.0] * 58, 0.95, 0.95),
        Missing("too few distinct canaries answered: 58, need 59 for 95 % confidence", 58),
    ),
    "a sample that is none": (
        lambda: intervals.quantile([math.nan] * 59, 0.95, 0.95),
        Missing("a sample is not a finite number", 59),
    ),
    "too few ratios": (
        lambda: intervals.geometric_mean_ratio({"a": [1.0], "b": [1.0], "c": []}, 0.95, least=3),
        Missing("too few canaries in both arms: 2, need 3", 2),
    ),
    "too few ratios by default": (
        lambda: intervals.geometric_mean_ratio(same("abcd", [1.0]), 0.95),
        Missing("too few canaries in both arms: 4, need 5", 4),
    ),
    "a negative ratio": (
        lambda: intervals.geometric_mean_ratio(same("abcde", [-1.0]), 0.95),
        Missing("a ratio is not a positive finite number", 5),
    ),
    "too few clusters": (
        lambda: intervals.pooled_quantile({str(at): [(0.1, 9)] for at in range(58)} | {"none": []}, 0.95, 0.95),
        Missing("too few distinct canaries answered: 58, need 59 for 95 % confidence", 58),
    ),
    "a gap that is none": (
        lambda: intervals.pooled_quantile(same("abcde", [(math.inf, 1)]), 0.5, 0.95),
        Missing("a gap is not a finite number", 5),
    ),
    "no marks": (
        lambda: intervals.paired_pass_delta({}, 0.95),
        Missing("no canary of this kind was answered in both arms", 0),
    ),
    "a mark that is none": (
        lambda: intervals.paired_pass_delta(pairs((math.nan, 1.0)), 0.95),
        Missing("a pass rate is not a finite number", 1),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_refusal_says_why_and_how_much_there_was(case: str) -> None:
    """What cannot be estimated is refused in words a report prints, with the count that was seen."""
    find, reason = REFUSED[case]

    assert reason == find()


@pytest.mark.parametrize(
    ("find", "n"),
    [
        (lambda: intervals.quantile([1.0] * 59, 0.95, 0.95), 59),
        (lambda: intervals.geometric_mean_ratio(same("abcde", [1.0]), 0.95), 5),
        (lambda: intervals.pooled_quantile({str(at): [(0.1, 9)] for at in range(59)}, 0.95, 0.95), 59),
        (lambda: intervals.paired_pass_delta(pairs((1.0, 1.0)), 0.95), 1),
    ],
    ids=["quantile", "ratio", "pooled", "marks"],
)
def test_the_least_that_suffices_is_enough(find: Found, n: int) -> None:
    """With exactly as many units as are needed there is an estimate, and it says how many there were."""
    result = find()

    assert isinstance(result, Estimate)
    assert n == result.n


FROZEN = canaries(10, expect={"equals": "right"})
FAULTY = twins(8, lambda _: steady(0.05), lambda _: steady(0.1, fault="died"))
LOST = Missing("8 of 8 pairs are lost to faults, different lengths or missing speeds, 5 % allowed", 8)
UNGIVEN: dict[str, tuple[str, Callable[[], PairedAnswers], Missing]] = {
    "lost pairs": ("throughput_ratio", lambda: evidence(*FAULTY), LOST),
    "lost pairs of the system": ("system_throughput_ratio", lambda: evidence(*FAULTY), LOST),
    "no pairs": (
        "throughput_ratio",
        lambda: evidence(FAULTY[0]),
        Missing("no answer of this workload is paired with a plain one", 0),
    ),
    "no server's prompt time": (
        "prefill_throughput",
        lambda: evidence(spread(60, lambda _: answer([0.1], prompt_tokens=50))),
        Missing("no answer says how long its prompt was read, and the time to first token holds more than that", 0),
    ),
    "plain answers that failed": (
        "task_pass_delta",
        lambda: evidence(marked([True] * 10, "candidate"), marked([True] * 10, "plain", fault="died"), FROZEN),
        Missing("10 of 10 canaries were not answered in both arms", 0),
    ),
    "plain tokens that failed": (
        "token_agreement",
        lambda: evidence(marked([True] * 10, "candidate"), marked([True] * 10, "plain", fault="died"), FROZEN),
        Missing("10 of 10 canaries were not answered in both arms", 0),
    ),
    "no canary of the kind": (
        "tool_call_pass_delta",
        lambda: evidence(marked([True], "candidate"), marked([True], "plain"), FROZEN[:1]),
        Missing("no canary of this workload has an expectation of this kind", 0),
    ),
    "no plain answer": (
        "task_pass_delta",
        lambda: evidence(marked([True] * 10, "candidate"), marked([True] * 9, "plain"), FROZEN),
        Missing("1 of 10 canaries were not answered in both arms", 9),
    ),
    "no answer of the candidate": (
        "task_pass_delta",
        lambda: evidence(marked([True] * 8, "candidate"), marked([True] * 10, "plain"), FROZEN),
        Missing("2 of 10 canaries were not answered in both arms", 8),
    ),
    "no plain tokens": (
        "token_agreement",
        lambda: evidence(marked([True] * 10, "candidate"), marked([True] * 9, "plain"), FROZEN),
        Missing("1 of 10 canaries were not answered in both arms", 9),
    ),
    "drawn tokens": (
        "token_agreement",
        lambda: evidence(marked([True], "candidate"), marked([True], "plain"), greedy=False),
        Missing("tokens can only be compared at temperature 0", 0),
    ),
    "no engagement": (
        "speculation_engaged",
        lambda: evidence(spread(5, lambda _: answer())),
        Missing(
            "cannot determine whether the draft was used: no counters, 0 of 0 answers came in bursts, "
            "0 of 0 plain ones did",
            0,
        ),
    ),
    "no twin": (
        "truncation_rate",
        lambda: evidence(spread(5, lambda _: answer())),
        Missing("no canary was answered in both arms", 0),
    ),
    "no warm pass": (
        "warm_cache_agreement",
        lambda: evidence(spread(5, lambda _: answer()), followed=followed(warm_cache="warm_cache-1.jsonl: damaged")),
        Missing("warm_cache-1.jsonl: damaged", 0),
    ),
    "no records": ("ttft", lambda: evidence([]), Missing("no answers were recorded", 0)),
    "no value": (
        "ttft",
        lambda: evidence(spread(5, lambda _: answer([], ended_s=1.0))),
        Missing("no answer has a value for it", 0),
    ),
    "uncounted chunks": (
        "itl_p50",
        lambda: evidence(spread(60, lambda _: answer([0.1, 0.2], tokens=[None] * 2, output_tokens=9))),
        Missing("this server does not report how many tokens each piece of an answer has", 0),
    ),
}


@pytest.mark.parametrize("case", UNGIVEN)
def test_a_metric_that_is_not_given_says_why_and_how_much_there_was(case: str) -> None:
    """A check that is unproven prints its reason, and the count that was seen stands in the verdict."""
    metric, build, reason = UNGIVEN[case]

    assert reason == estimate(metric, build())
