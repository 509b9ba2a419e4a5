"""Each metric of one system over another, all of them sharing the error."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gatekeeper.analysis.metrics.answer_table import burst_gap, tabulate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.metrics import PASS_RATES
from gatekeeper.core.records import Generation
from gatekeeper.versus.metric_comparison import compare_metrics
from gatekeeper.versus.versus_result import MetricComparison
from tests.builders.slo import canary, counted, evidence, generation, known, marked, near, steady

SHIFTS = (-0.02, 0.01, 0.02, -0.01)


def side(seconds: float, *, accepted: int | None = 6, tokens: int = 40) -> list[Generation]:
    """Return two rounds over ten canaries; speeds vary by a per cent or two."""
    rounds = None if accepted is None else counted(2, 8, accepted)
    answers = []
    for turn in range(2):
        for number in range(10):
            token_s = seconds * math.exp(SHIFTS[(number + turn) % 4])
            answer = steady(token_s, tokens, sent_s=10.0 * (10 * turn + number), rounds=rounds)
            answers.append(generation(answer, f"c{number}", pair=str(turn)))
    return answers


def compared(a: Sequence[Generation], b: Sequence[Generation], **more: Any) -> dict[str, str]:
    return {row.metric: row.says for row in rows(a, b, **more)}


def rows(a: Sequence[Generation], b: Sequence[Generation], **more: Any) -> tuple[MetricComparison, ...]:
    table = tabulate((a, burst_gap(a)), (b, burst_gap(b)))
    paired = replace(evidence(b, a, **more), drift_limit=math.inf, lost_limit=0.25, recorded=lambda: table)
    sides: tuple[PairedAnswers, PairedAnswers] = (
        replace(paired, answers=tuple(a), plain=(), pairs=()),
        replace(paired, plain=(), pairs=()),
    )
    comparisons = compare_metrics(paired, sides)
    proven = [(row.value, row.metric in PASS_RATES) for row in comparisons if row.says in {"better", "worse"}]
    assert all(isinstance(value, Estimate) and not value.lo <= 1 - rate <= value.hi for value, rate in proven)
    return comparisons


def test_a_slower_system_is_worse_in_speed_alone() -> None:
    """A tenth slower and the same acceptance: both speeds are worse, and nothing else is."""
    says = compared(side(0.02), side(0.022))

    assert ("worse", "worse") == (says["throughput_ratio"], says["answer_throughput_ratio"])
    assert "no difference shown" == says["acceptance_rate"] == says["ttft_delta"]


def test_a_metric_that_is_not_measured_takes_no_share_of_the_error() -> None:
    """Without counts of rounds the others are compared as before, and acceptance is not measured."""
    says = compared(side(0.02, accepted=None), side(0.022, accepted=None))

    assert "not measured" == says["acceptance_rate"] == says["acceptance_length"]
    assert "worse" == says["throughput_ratio"]


def test_fewer_accepted_tokens_are_worse() -> None:
    """Acceptance is compared by what each side counted."""
    says = compared(side(0.02), side(0.02, accepted=4))

    assert ("worse", "no difference shown") == (says["acceptance_rate"], says["throughput_ratio"])


def test_an_engine_that_is_many_times_as_fast_is_measured() -> None:
    """Tokens 0.2 ms apart are closer than a tenth of the other engine's gap, and are still one token each: 50 times."""
    a, b = (side(seconds, accepted=None) for seconds in (0.01, 0.0002))

    ratio = next(row for row in rows(a, b) if row.metric == "throughput_ratio")

    assert ("better", 50) == (ratio.says, near(known(ratio.value).center))


def test_answers_that_end_elsewhere_are_compared_by_the_token() -> None:
    """B says the same in half as many tokens: its time per token is compared, that of whole answers is other work."""
    says = compared(side(0.02), side(0.01, tokens=20))

    assert ("better", "not measured") == (says["throughput_ratio"], says["answer_throughput_ratio"])


def test_tool_calls_that_come_whole_are_left_out_of_the_decode_time() -> None:
    """Four of ten canaries are answered by a call in one piece: the other six decide, and a note says so."""

    def with_calls(answers: list[Generation]) -> list[Generation]:
        call = ({"function": {"name": "f", "arguments": "{}"}},)
        whole_calls = [
            replace(steady(0.02, 1, sent_s=answer.answer.sent_ns / 1e9), tool_calls=call) for answer in answers
        ]
        return [
            replace(answer, answer=called) if answer.canary < "c4" else answer
            for answer, called in zip(answers, whole_calls, strict=True)
        ]

    ratio = rows(with_calls(side(0.02)), with_calls(side(0.01)))[0]

    assert ("throughput_ratio", "better", 2) == (ratio.metric, ratio.says, near(known(ratio.value).center))
    assert "4 canaries" in known(ratio.value).notes[-1]


def graded(count: int, **expect: Any) -> list[Canary]:
    return [canary(f"c-{number:03}", expect=expect) for number in range(count)]


def test_worse_answers_are_proven_for_prompts_like_these() -> None:
    """Of 40 right answers B has 20 or 28: worse; one less shows nothing, and no rate is made up."""
    canaries, right = graded(40, equals="right"), [True] * 40

    def says(wrong: int) -> dict[str, str]:
        a, b = (marked(marks, "candidate") for marks in (right, [False] * wrong + right[wrong:]))
        paired_by = [[replace(answer, pair="0") for answer in answers] for answers in (a, b)]
        return compared(*paired_by, known=canaries)

    assert "worse" == says(20)["task_pass_delta"] == says(12)["task_pass_delta"]
    assert "no difference shown" == says(1)["task_pass_delta"] == says(0)["task_pass_delta"]
    assert "json_pass_delta" not in says(0)


def test_what_cannot_be_compared_says_why() -> None:
    """A first token that a cache made early is not measured, with the reason, and takes no share of the error."""
    paired = replace(evidence(side(0.02), side(0.02)), drift_limit=math.inf)
    alone = replace(paired, plain=(), pairs=())

    row = next(
        row
        for row in compare_metrics(paired, (alone, alone), {"ttft_delta": "it was cached"})
        if row.metric == "ttft_delta"
    )

    assert (Missing("it was cached"), "not measured") == (row.value, row.says)
