"""The timing of one answer, on answers whose figures can be worked out on paper."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.timing import (
    acceptance_length,
    acceptance_rate,
    answer_rate,
    prefill_rate,
    ttft,
)
from gatekeeper.core.records import Answer, Claims
from tests.builders.slo import answer, claimed, counted


def prompted(seconds: float | None) -> Answer:
    return replace(answer([0.4], prompt_tokens=50), claims=Claims(prompt_seconds=seconds))


@pytest.mark.parametrize(
    ("figure", "reply", "value"),
    [
        (ttft, answer([0.25, 0.3], sent_s=5.0), 0.25),
        (ttft, answer([], ended_s=1.0), None),
        (answer_rate, answer([1.0, 3.0], output_tokens=30), 10.0),
        (answer_rate, answer([1.0], output_tokens=None), None),
        (answer_rate, answer([], ended_s=0.0, output_tokens=3), None),
        # By the server's clock, however late the first token; only the tokens that were read count.
        (prefill_rate, prompted(0.1), 500.0),
        (prefill_rate, replace(prompted(0.1), claims=Claims(prompt_tokens=20, prompt_seconds=0.1)), 200.0),
        *((prefill_rate, prompted(seconds), None) for seconds in (None, 0.0, -0.1, 0.5)),
        (prefill_rate, replace(answer([0.4]), claims=Claims(prompt_seconds=0.1)), None),
        (acceptance_rate, answer(rounds=counted(2, 8, 6)), 0.75),
        (acceptance_length, answer(rounds=counted(2, 8, 6)), 4.0),
        # No drafted token is no acceptance, and a server's claim is not our count.
        (acceptance_rate, answer(rounds=counted(0, 0, 0)), None),
        (acceptance_length, answer(rounds=counted(0, 0, 0)), None),
        (acceptance_rate, answer(claims=claimed(10, 9)), None),
        # To the nanosecond, whenever the answer was sent.
        (ttft, answer([0.25, 0.5, 1.0], sent_s=1000.0), 0.25),
    ],
)
def test_a_figure_of_one_answer(figure: Callable[[Answer], float | None], reply: Answer, value: float | None) -> None:
    """What one answer shows, worked out on paper; what is missing or impossible gives no figure."""
    assert value == pytest.approx(figure(reply))
