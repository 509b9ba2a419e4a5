"""What a watch says at its start: how soon its canaries would show a collapse."""

import pytest

from gatekeeper.live import terminal_lines
from gatekeeper.live.guards import fall_detection
from gatekeeper.live.guards.guard_judgement import answers_until_seen, fall_error, server_seconds
from gatekeeper.live.guards.guard_values import acceptance_spread
from tests.builders.watch import DAY_S, MEASURED, figure, guard, policy

CERTIFIED = {**MEASURED, "acceptance_rate": figure(0.8, 0.78, 0.82)}


def test_the_stated_answers_are_those_that_show_the_fall() -> None:
    """With each answer at half of the certified acceptance, the stated number of answers shows the fall; one less
    not.
    """
    certified_policy = policy(guard("acceptance_rate", at_least=0.6), measured=CERTIFIED)
    (route,), (bound,) = certified_policy.route, certified_policy.guard

    stated = answers_until_seen(certified_policy, route, bound)

    assert stated is not None
    needed = fall_detection.compute_needed_evidence(30 * DAY_S / 60 * 4, fall_error(certified_policy, "easy"))
    values = [fall_detection.WeightedValue(number, 0.4) for number in range(stated)]
    spread = acceptance_spread(route.measured.acceptance_rate)
    assert fall_detection.detect(values, 0.6, spread, needed) is not None
    assert fall_detection.detect(values[:-1], 0.6, spread, needed) is None
    tokens = certified_policy.conditions.max_tokens
    assert {"easy": pytest.approx(stated * tokens / 75 * 2.5)} == server_seconds(certified_policy, both_arms=True)


@pytest.mark.parametrize(
    ("seconds", "duty", "sentence"),
    [
        ({"easy": 120.0}, 0.02, "after about 100 min (easy); within 10 min with --duty 0.2;"),
        ({"easy": 120.0, "hard": 60.0}, 0.02, "after about 3.33 h (easy, hard); within 10 min with --duty 0.4;"),
        ({"easy": 120.0}, 0.4, "after about 5 min (easy); soon enough;"),
        ({"easy": 600.0}, 0.02, "no sooner than after 20 min at the highest duty, 0.5;"),
    ],
)
def test_the_duty_for_two_windows_is_stated(seconds: dict[str, float], duty: float, sentence: str) -> None:
    """The line names the time at the duty in force and the duty that shows the fall within two windows of five
    minutes.
    """
    line = terminal_lines.time_to_half(seconds, duty)

    assert line is not None
    assert sentence in line
