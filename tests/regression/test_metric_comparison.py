"""Each metric of one system over another, all of them sharing the error."""

import math
from collections.abc import Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Estimate
from gatekeeper.regression.metric_comparison import compare_metrics
from tests.builders.slo import counted, evidence, generation, steady

SHIFTS = (-0.02, 0.01, 0.02, -0.01)


def side(seconds: float, *, accepted: int | None = 6) -> list[Generation]:
    """Return two rounds over ten canaries; speeds vary by a per cent or two."""
    rounds = None if accepted is None else counted(2, 8, accepted)
    answers = []
    for turn in range(2):
        for number in range(10):
            token_s = seconds * math.exp(SHIFTS[(number + turn) % 4])
            answer = steady(token_s, 40, sent_s=10.0 * (10 * turn + number), rounds=rounds)
            answers.append(generation(answer, f"c{number}", pair=str(turn)))
    return answers


def compared(a: Sequence[Generation], b: Sequence[Generation]) -> dict[str, str]:
    paired = replace(evidence(b, a), drift_limit=math.inf)
    sides: tuple[PairedAnswers, PairedAnswers] = (
        replace(paired, answers=tuple(a), plain=(), pairs=()),
        replace(paired, plain=(), pairs=()),
    )
    comparisons = compare_metrics(paired, sides)
    proven = [row.value for row in comparisons if row.says in {"better", "worse"}]
    assert all(isinstance(value, Estimate) and not value.lo <= 1 <= value.hi for value in proven)
    return {row.metric: row.says for row in comparisons}


def test_a_slower_system_is_worse_in_speed_alone() -> None:
    """
    A tenth slower and the same acceptance: both speeds are worse, and nothing else is.
    """
    says = compared(side(0.02), side(0.022))

    assert ("worse", "worse") == (says["throughput_ratio"], says["answer_throughput_ratio"])
    assert "no difference shown" == says["acceptance_rate"] == says["ttft_delta"]


def test_a_metric_that_is_not_measured_takes_no_share_of_the_error() -> None:
    """
    Without counts of rounds the others are compared as before, and acceptance is not measured.
    """
    says = compared(side(0.02, accepted=None), side(0.022, accepted=None))

    assert "not measured" == says["acceptance_rate"] == says["acceptance_length"]
    assert "worse" == says["throughput_ratio"]


def test_fewer_accepted_tokens_are_worse() -> None:
    """
    Acceptance is compared by what each side counted.
    """
    says = compared(side(0.02), side(0.02, accepted=4))

    assert ("worse", "no difference shown") == (says["acceptance_rate"], says["throughput_ratio"])
