"""The route of a live request: the policy, the load, the holdout."""

import re
import tomllib

import pytest
from pydantic import ValidationError

from gatekeeper.core.policy import Proxy, ProxyRule
from gatekeeper.live.live_request import LiveRequest, read_request
from gatekeeper.live.request_routes import ConcurrencyLimit, RequestDecision, RequestRoutes
from tests.builders.golden_words import says
from tests.builders.live_server import CHAT, live_policy, live_request, published
from tests.builders.project_folder import ROOT

SECOND = 1_000_000_000
LIMITS = {"narrow": 2, "wide": 4}


def test_nothing_speculates_without_a_policy_that_is_in_force() -> None:
    """Before the first round, after the overlay has expired, and where a guard turned it off, decoding is plain."""
    routes, now = RequestRoutes(lambda: 1.0, lambda: now_ns[0]), []
    now_ns = [0]
    now.append(routes.decide(live_request()).because)
    published(routes, until_ns=10)
    now.append(routes.decide(live_request()).because)
    now_ns[0] = 10
    now.append(routes.decide(live_request()).because)
    published(routes, on=False)
    now.append(routes.decide(live_request()).because)

    assert ["first round", "as certified", "overdue", "a guard was violated"] == [
        next(part for part in ("first round", "as certified", "overdue", "a guard was violated") if part in why)
        for why in now
    ]


def test_the_table_of_the_documentation_is_a_valid_one() -> None:
    """What docs/proxy.md shows can be copied into a policy, times with their units."""
    (table,) = re.findall(r"```toml\n(\[proxy\].*?)```", (ROOT / "docs" / "proxy.md").read_text(), re.DOTALL)

    proxy = Proxy.model_validate(tomllib.loads(table)["proxy"])

    assert (5.0, "reasoning", 2) == (proxy.resume_after, proxy.default, len(proxy.rule))


def test_a_key_in_the_place_of_its_digest_is_refused_and_not_shown() -> None:
    """Digits in upper case are the same digest; any other text may be the key, and stays out of the message."""
    upper = ProxyRule(workload="a", api_key_sha256="9F86D081884C7D65")
    with pytest.raises(ValidationError) as refused:
        ProxyRule(workload="a", api_key_sha256="sk-verysecret")

    assert "9f86d081884c7d65" == upper.api_key_sha256
    assert "hexadecimal digits" in refused.value.errors()[0]["msg"]
    assert "sk-verysecret" not in refused.value.errors()[0]["msg"]


def test_a_workload_without_a_route_decodes_plainly() -> None:
    """What the policy does not name is never speculated on, whatever the header says."""
    routes = RequestRoutes(lambda: 1.0)
    published(routes)

    decided = routes.decide(live_request(workload="secret"))

    assert ("unknown", False, None) == (decided.workload, decided.speculative, decided.arm)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_the_holdout_is_the_share_that_the_policy_says(share: float) -> None:
    """A draw below the share is decoded plainly and counted in the holdout; every other one speculates."""
    draws = iter([share - 1e-9, share])
    routes = RequestRoutes(lambda: next(draws))
    published(routes, of=live_policy(holdout=share))

    first, second = (routes.decide(live_request({"messages": []})) for _ in range(2))

    assert [(False, "holdout"), (True, "speculative")] == [
        (decision.speculative, decision.arm) for decision in (first, second)
    ]


def test_above_the_certified_concurrency_requests_decode_plainly_with_hysteresis() -> None:
    """Five requests where four are certified are too many; it takes three for five seconds to speculate again."""
    limit, proxy = ConcurrencyLimit(), Proxy()
    steps = [(4, 0), (5, 1), (4, 2), (3, 3), (4, 6), (3, 7), (2, 11), (3, 12), (4, 13)]

    crowded = [limit.update(count, 4, proxy, at * SECOND) for count, at in steps]

    assert [False, True, True, True, True, True, True, False, False] == crowded


def test_each_route_has_its_own_limit_and_its_own_way_back() -> None:
    """With three in flight a route for two decodes plainly and one for four does not; low load brings it back."""
    now_ns = [0]
    routes = RequestRoutes(lambda: 1.0, lambda: now_ns[0])
    policy = live_policy()
    base = policy.route_of("easy")
    both_routes = tuple(
        base.model_copy(update={"workload": name, "max_concurrency": most}) for name, most in LIMITS.items()
    )
    published(routes, of=policy.model_copy(update={"route": both_routes}), names=tuple(LIMITS))

    def speculating() -> list[bool]:
        return [routes.decide(live_request(workload=name)).speculative for name in LIMITS]

    for _ in range(3):
        routes.begin()
    states = [speculating()]
    routes.end()
    states.append(speculating())
    routes.end()
    for at in (4, 5):
        now_ns[0] = at * SECOND
        states.append(speculating())

    assert [[False, True], [False, True], [False, True], [True, True]] == states


def certified_for_two() -> RequestRoutes:
    """Return the routes of a workload that was certified with two streams."""
    routes = RequestRoutes(lambda: 1.0)
    published(routes, of=live_policy(concurrency=2))
    return routes


def decide(routes: RequestRoutes, request: LiveRequest) -> RequestDecision:
    """Decide on a request that is alone on the server, and end it."""
    routes.begin(request.answers)
    decision = routes.decide(request)
    routes.end(request.answers)
    return decision


def test_too_many_requests_never_reach_the_draft() -> None:
    """Above the certified number of streams a request is not sent to the draft where the plain server fails either."""
    routes = certified_for_two()
    routes.begin(3)

    decision = routes.decide(live_request())

    assert (False, False) == (decision.speculative, decision.may_speculate)


def test_a_body_that_cannot_be_read_decodes_plainly() -> None:
    """Nothing says of it at which temperature the server would answer."""
    unreadable = decide(certified_for_two(), read_request(CHAT, {}, b'{"temperature": 0, "temperature": 2}'))

    assert not unreadable.speculative
    says("proxy", "a body that cannot be read decodes plainly", unreadable.because)
