"""How long the canaries of a watch need until they show that acceptance fell to half."""

import math

from gatekeeper.analysis.stats import fall_detection
from gatekeeper.core.policy import Guard, Policy, Route
from gatekeeper.live.guards.guard_judgement import fall_error
from gatekeeper.live.guards.guard_values import acceptance_spread

METRIC = "acceptance_rate"


def answers_until_seen(policy: Policy, route: Route, guard: Guard) -> int | None:
    """Return the answers after which *guard* sees acceptance at half of what was certified; None: it never would.

    This is the mean of the evidence of an answer (`analysis/stats/fall_detection.py`) against what the policy's life
    needs.
    """
    certified = route.measured.acceptance_rate
    if certified is None or guard.threshold <= (half := certified.center / 2):
        return None
    rounds = max(1.0, policy.lifetime / policy.watch.interval)
    needed = fall_detection.needed(rounds * policy.watch.canaries, fall_error(policy, route.workload))
    gain = fall_detection.step(half, 1.0, guard.threshold, acceptance_spread(certified))
    answers = needed / gain if gain > 0 else math.inf
    return math.ceil(answers) if math.isfinite(answers) else None


def server_seconds(policy: Policy, *, both_arms: bool) -> dict[str, float]:
    """Return the seconds of canaries, at full length, after which each guarded route sees acceptance at half.

    With *both_arms* each canary has a plain answer beside it. A route without a measured speed is left out.
    """
    seconds_by_workload = {}
    for guard in policy.guard:
        for route in policy.route:
            speed, ratio = route.measured.decode_throughput, route.measured.throughput_ratio
            if guard.metric != METRIC or guard not in policy.guards_of(route.workload) or speed is None:
                continue
            answers = answers_until_seen(policy, route, guard)
            if answers is not None:
                plain = ratio.center if both_arms and ratio is not None else 0.0
                seconds = (
                    answers * policy.conditions.max_tokens * (1 + plain) / speed.center
                    if speed.center > 0
                    else math.inf
                )
                if math.isfinite(seconds):
                    seconds_by_workload[route.workload] = seconds
    return seconds_by_workload
