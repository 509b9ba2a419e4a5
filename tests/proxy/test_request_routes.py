"""The route of a live request: the policy, the load, the holdout."""

import json
import re
import tomllib
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from gatekeeper.core.policy import Proxy, ProxyRule, RouteRegion
from gatekeeper.deploy.watch.overlay import Overlay, OverlayRoute
from gatekeeper.proxy.live_evidence import LiveEvidence
from gatekeeper.proxy.live_request import LiveRequest, read_request
from gatekeeper.proxy.request_routes import ConcurrencyLimit, RequestRoutes
from tests.builders.golden_words import says
from tests.builders.live_server import CHAT, live_policy, published
from tests.builders.project_folder import ROOT

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


def test_the_table_of_the_documentation_is_a_valid_one() -> None:
    """
    What docs/proxy.md shows can be copied into a policy, times with their units.
    """
    (table,) = re.findall(r"```toml\n(\[proxy\].*?)```", (ROOT / "docs" / "proxy.md").read_text(), re.DOTALL)

    proxy = Proxy.model_validate(tomllib.loads(table)["proxy"])

    assert (5.0, "reasoning", 2) == (proxy.resume_after, proxy.default, len(proxy.rule))


def test_a_key_in_the_place_of_its_digest_is_refused_and_not_shown() -> None:
    """
    Digits in upper case are the same digest; any other text may be the key, and stays out of the message.
    """
    upper = ProxyRule(workload="a", api_key_sha256="9F86D081884C7D65")
    with pytest.raises(ValidationError) as refused:
        ProxyRule(workload="a", api_key_sha256="sk-verysecret")

    assert "9f86d081884c7d65" == upper.api_key_sha256
    assert "hexadecimal digits" in refused.value.errors()[0]["msg"]
    assert "sk-verysecret" not in refused.value.errors()[0]["msg"]


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

    assert [(False, "holdout"), (True, "speculative")] == [
        (decision.speculative, decision.arm) for decision in (first, second)
    ]


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
    both_routes = tuple(
        base.model_copy(update={"workload": name, "max_concurrency": most}) for name, most in LIMITS.items()
    )
    published(routes, of=policy.model_copy(update={"route": both_routes}), names=tuple(LIMITS))

    def speculating() -> list[bool]:
        return [routes.decide(LiveRequest(CHAT, workload=name)).speculative for name in LIMITS]

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


REGION = RouteRegion.model_validate(
    {
        "temperature": {
            "certified": 0.0,
            "at_least": 0.0,
            "at_most": 0.7,
            "together_at_least": 0.0,
            "together_at_most": 0.3,
        },
        "context": {"certified": 100, "at_most": 1000, "together_at_most": 500, "tokens_per_byte": 0.5},
        "concurrency": {"certified": 1, "at_most": 2, "together_at_most": 1},
        "max_tokens": {"certified": 256, "at_most": 512, "together_at_most": 512},
    }
)


@pytest.mark.parametrize(
    ("body", "in_flight", "why"),
    [
        ({}, 1, None),
        ({"temperature": 0.7}, 1, None),
        ({"temperature": 0.8}, 1, "temperature 0.8 is outside"),
        ({"max_tokens": None, "max_completion_tokens": 512}, 1, None),
        ({"max_tokens": 10, "options": {"num_predict": 600}}, 1, "max_tokens 600 is outside"),
        ({"temperature": None}, 1, "does not say its temperature"),
        ({"temperature": "0"}, 1, "does not say its temperature"),
        ({"max_tokens": None}, 1, "does not say its max_tokens"),
        ({"messages": [{"role": "user", "content": "x" * 1900}]}, 1, None),
        ({"messages": [{"role": "user", "content": "x" * 2100}]}, 1, "context 1058 is outside"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": ["y" * 2100]}]}, 1, "context 1061 is outside"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 1, "does not say its context"),
        ({}, 2, None),
        ({}, 3, "concurrency 3 is outside"),
        ({"temperature": 0.3, "max_tokens": 512}, 1, None),
        ({"temperature": 0.7, "max_tokens": 512}, 1, "temperature and max_tokens were not certified together"),
        ({"temperature": 0.3}, 2, "temperature and concurrency were not certified together"),
        ({"n": 3}, 1, "concurrency 3 is outside"),
        ({"prompt": ["a", "b", "c"]}, 1, "concurrency 3 is outside"),
        ({"top_p": 0.9, "seed": 1, "stop": ["x"], "user": "me"}, 1, None),
        ({"answer_length": 4096}, 1, "field 'answer_length' is not known"),
        ({"mirostat": 2}, 1, "field 'mirostat' is not known"),
        ({"adapters": "x"}, 1, "field 'adapters' is not known"),
        ({"Max_Tokens": 4096}, 1, "field 'Max_Tokens' is not known"),
        ({"tell me a secret": 1}, 1, "the effect of a field of the request is not known"),
        ({"options": {"num_ctx": 9}}, 1, "field 'options.num_ctx' is not known"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, 1, "'messages.images' is not known"),
        ({"messages": [{"role": "user", "content": [{"text": "a", "image_url": "x"}]}]}, 1, "not say its context"),
        ({"certified_with": 1}, 1, None),
    ],
)
def test_a_request_outside_of_the_region_decodes_plainly(body: dict[str, Any], in_flight: int, why: str | None) -> None:
    """
    Each axis alone up to its end, several together up to the box; a value that the request does not say is outside.
    """
    routes = RequestRoutes(LiveEvidence(), lambda: 1.0)
    policy = live_policy()
    carried = policy.conditions.model_copy(update={"request": {"certified_with": 1}})
    published(routes, region=REGION, of=policy.model_copy(update={"conditions": carried}))
    request_body = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 100, **body}
    request = read_request(CHAT, {}, json.dumps(request_body).encode())
    routes.begin(in_flight + request.answers - 1)

    decided = routes.decide(request)

    assert (why is None) == decided.speculative
    assert (why or "") in decided.because
    assert decided.may_speculate == decided.speculative


TEXT = "x" * 2100
STRANGE: dict[str, tuple[dict[str, Any], str]] = {
    "a certified field with another value": ({"certified_with": 2}, "field 'certified_with' is not known"),
    "no tokens": ({"max_tokens": 0}, "does not say its max_tokens"),
    "no tokens in the options": ({"options": {"num_predict": 0}}, "does not say its max_tokens"),
    "prompts as tables": ({"prompt": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}, "concurrency 3 is outside"),
    "answers in the options": ({"options": {"n": 64}}, "field 'options.n' is not known"),
    "a prompt in the options": ({"options": {"system": TEXT}}, "field 'options.system' is not known"),
    "messages that are a text": ({"messages": TEXT}, "field 'messages' is not known"),
    "a message that is a text": ({"messages": [TEXT]}, "field 'messages' is not known"),
    "a role of its own": ({"messages": [{"role": TEXT, "content": "a"}]}, "field 'messages.role' is not known"),
    "an image with a text": (
        {"messages": [{"role": "user", "content": [{"type": "image", "text": "a"}]}]},
        "not say its context",
    ),
    "a long effort": ({"reasoning_effort": TEXT}, "context 1"),
    "a long choice": ({"tool_choice": {"function": {"name": TEXT}}}, "context 1"),
    "a long number": ({"instructions": int("9" * 2100)}, "context 1"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_a_server_may_take_in_another_way_is_outside(name: str) -> None:
    """
    A text that may be a part of the prompt, a limit that may be none, and another value than the certified one.
    """
    fields, why = STRANGE[name]
    routes = RequestRoutes(LiveEvidence(), lambda: 1.0)
    policy = live_policy()
    carried = policy.conditions.model_copy(update={"request": {"certified_with": 1}})
    published(routes, region=REGION, of=policy.model_copy(update={"conditions": carried}))
    usual = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 100, "min_tokens": 0}

    inside, outside = (read_request(CHAT, {}, json.dumps(body).encode()) for body in (usual, usual | fields))
    routes.begin(outside.answers)

    assert why in routes.decide(outside).because
    routes.end(outside.answers - 1)
    assert routes.decide(inside).speculative


def test_a_body_that_cannot_be_read_is_outside_of_every_region() -> None:
    """
    Also of a region that has only the requests in flight, which are known of any request.
    """
    routes = RequestRoutes(LiveEvidence(), lambda: 1.0)
    published(routes, region=RouteRegion.model_validate({"concurrency": {"certified": 1, "at_most": 2}}))

    readable, unreadable = (routes.decide(read_request(CHAT, {}, body)) for body in (b"{}", b'{"a": 1, "a": 2}'))

    assert (True, False) == (readable.speculative, unreadable.speculative)
    says("proxy", "a body that cannot be read is outside of every region", unreadable.because)


def test_a_lower_step_speculates_at_the_certified_point_alone() -> None:
    """
    What was explored is the certified setting: of a ladder step nothing around the point is known.
    """
    assert REGION.point.beyond({"temperature": 0, "context": 90, "concurrency": 1, "max_tokens": 256}) is None
    assert REGION.point.beyond({"temperature": 0.3, "context": 90, "concurrency": 1, "max_tokens": 256}) is not None


def test_the_overlay_carries_the_region() -> None:
    """
    Who reads the overlay gets the conditions with the route; who does not know of them refuses its schema.
    """
    route = OverlayRoute("easy", True, "as certified", (("draft", "heavy"),), region=REGION)
    now = datetime(2026, 1, 1, tzinfo=UTC)

    text = Overlay("s", "p", "v", now, now, (route,)).text()

    assert 2 == tomllib.loads(text)["schema"]
    assert REGION == RouteRegion.model_validate(tomllib.loads(text)["route"][0]["region"])
    assert text.index("[route.setting]") < text.index("[route.region")
