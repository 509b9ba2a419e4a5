"""Planned requests: what of their sampling follows from the plan."""

from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import setting
from tests.builders.slo import slo


def test_each_request_draws_anew_and_the_same_again() -> None:
    """With one seed for all, a server would repeat one answer to a canary, and two repeats would be one draw; a run
    that
    is made again has the same seeds. At temperature 0, and where streams share batches, none is sent.
    """
    canary = Canary(id="a", messages=({"role": "user", "content": "Hi"},))
    requests = [PlannedRequest("easy", canary, "plain", setting(), prefix=f"soak-1:{number}") for number in range(3)]
    sampled = slo(sampling={"temperature": 0.7, "seed": 5})

    seeds = [request.sampled_by(sampled).seed for request in requests]

    assert 3 == len(set(seeds))
    assert all(seed is not None and 0 <= seed < 2**31 for seed in seeds)
    assert seeds == [request.sampled_by(sampled).seed for request in requests]
    assert requests[0].sampled_by(slo()).seed is None
