"""The route of a live request: the policy, the load, the holdout."""

import pytest

from gatekeeper.core.policy import Proxy
from gatekeeper.proxy.live_evidence import LiveEvidence
from gatekeeper.proxy.live_request import LiveRequest
from gatekeeper.proxy.request_routes import ConcurrencyLimit, RequestRoutes
from tests.builders.live_server import CHAT, live_policy, published

SECOND = 1_000_000_000
ASKED = LiveRequest(CHAT)
LIMITS = {"narrow": 2, "wide": 4}


def test_nothing_speculates_without_a_policy_that_is_in_force() -> None:
    """
    Before the first round, after the overlay has expired, and where a guard turned the route off, decoding is plain.
    """
    routes, now = RequestRoutes(LiveEvidence(), lambda: 1.0, lambda: now_ns[0]), []
    now_ns = [0]
    now.append(routes.decide(ASKED).because)
    published(routes, until_ns=10)
    now.append(routes.decide(ASKED).because)
    now_ns[0] = 10
    now.append(routes.decide(ASKED).because)
    published(routes, on=False)
    now.append(routes.decide(ASKED).because)

    assert ["first round", "as certified", "overdue", "a guard was violated"] == [
        next(part for part in ("first round", "as certified", "overdue", "a guard was violated") if part in why)
        for why in now
    ]


def test_a_workload_without_a_route_decodes_plainly() -> None:
    """
    What the policy does not name is never speculated on, whatever the header says.
    """
    routes = RequestRoutes(LiveEvidence(), lambda: 1.0)
    published(routes)

    decided = routes.decide(LiveRequest(CHAT, workload="secret"))

    assert ("unknown", False, None) == (decided.workload, decided.speculative, decided.arm)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_the_holdout_is_the_share_that_the_policy_says(share: float) -> None:
    """
    A draw below the share is decoded plainly and counted in the holdout; every other one speculates.
    """
    draws = iter([share - 1e-9, share])
    routes = RequestRoutes(LiveEvidence(), lambda: next(draws))
    published(routes, of=live_policy(holdout=share))

    first, second = routes.decide(ASKED), routes.decide(ASKED)

    assert [(False, "holdout"), (True, "speculative")] == [(one.speculative, one.arm) for one in (first, second)]


def test_above_the_certified_concurrency_requests_decode_plainly_with_hysteresis() -> None:
    """
    Five requests where four are certified are too many; it takes three for five seconds to speculate again.
    """
    limit, proxy = ConcurrencyLimit(), Proxy()
    steps = [(4, 0), (5, 1), (4, 2), (3, 3), (4, 6), (3, 7), (2, 11), (3, 12), (4, 13)]

    crowded = [limit.update(count, 4, proxy, at * SECOND) for count, at in steps]

    assert [False, True, True, True, True, True, True, False, False] == crowded


def test_a_route_alone_on_its_server_is_certified_for_one_request() -> None:
    """
    Without a figure for concurrency the certificate holds for one request in flight.
    """
    routes = RequestRoutes(LiveEvidence(), lambda: 1.0)
    published(routes, of=live_policy(concurrency=1))
    routes.begin()
    alone = routes.decide(ASKED)
    routes.begin()

    assert (True, False) == (alone.speculative, routes.decide(ASKED).speculative)


def test_each_route_has_its_own_limit_and_its_own_way_back() -> None:
    """
    With three in flight a route certified for two decodes plainly and one certified for four speculates; the first
    comes back when the load was at most one for five seconds, counted from when it fell, not from the next request.
    """
    now_ns = [0]
    routes = RequestRoutes(LiveEvidence(), lambda: 1.0, lambda: now_ns[0])
    policy = live_policy()
    base = policy.route_of("easy")
    both = tuple(base.model_copy(update={"workload": name, "max_concurrency": most}) for name, most in LIMITS.items())
    published(routes, of=policy.model_copy(update={"route": both}), names=tuple(LIMITS))

    def speculating() -> list[bool]:
        return [routes.decide(LiveRequest(CHAT, workload=name)).speculative for name in LIMITS]

    for _ in range(3):
        routes.begin()
    seen = [speculating()]
    routes.end()
    seen.append(speculating())
    routes.end()
    for at in (4, 5):
        now_ns[0] = at * SECOND
        seen.append(speculating())

    assert [[False, True], [False, True], [False, True], [True, True]] == seen
