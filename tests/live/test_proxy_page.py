"""The proxy's page: what was certified beside what live requests show, and why drafting is off."""

import html
import re

from gatekeeper.live import proxy_page
from gatekeeper.live.proxy_page import LiveDay
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.report import phrases
from tests.builders.live_server import published
from tests.builders.pages import proxied


def test_each_route_shows_certified_against_live() -> None:
    """A card has both ratios with their intervals, both speeds and the requests; one that is off has the reason."""
    routes, day, now_ns = proxied()
    text = proxy_page.render(routes, day, now_ns)
    cards = dict(zip(routes.routes, re.findall(r"<article.*?</article>", text), strict=True))
    benefit = routes.evidence.benefit("json")
    assert routes.policy is not None
    assert benefit is not None
    certified = routes.policy.route_of("json").measured.throughput_ratio

    ratios = [f"certified {phrases.ratio(certified)}", f"live {phrases.ratio(benefit.speed)}"]  # type: ignore[arg-type]
    assert [] == [ratio for ratio in ratios if ratio not in cards["json"]]
    assert re.search(r"4\d(\.\d)? → 7\d(\.\d)? tok/s", cards["json"])
    assert re.search(r"\d+ in the last 9 h", cards["json"])
    assert 2 == cards["json"].count('class="area"')
    assert "no proof yet" in cards["tools"]
    assert html.escape(routes.routes["random"].because) in cards["random"]
    assert "live" not in cards["random"]


def test_requests_without_a_route_are_counted() -> None:
    """What no route of the policy serves is a row of its own, with what sorted it there."""
    routes, day, now_ns = proxied()
    count = day.workloads["unknown"].rules["header"]

    assert f"header ({count})" in proxy_page.render(routes, day, now_ns)
    del day.workloads["unknown"]
    assert 'id="unrouted"' not in proxy_page.render(routes, day, now_ns)


def test_what_the_watch_has_not_decided_is_plain() -> None:
    """Before the first round, and once the next one is overdue, the page says that nothing speculates."""
    routes = RequestRoutes()
    waiting = proxy_page.render(routes, LiveDay(0), 1)
    published(routes, until_ns=0)
    overdue = proxy_page.render(routes, LiveDay(0), 1)

    kinds = [re.findall(r'<header class="([^"]*)"', page) for page in (waiting, overdue)]
    assert [["hero unproven"]] * 2 == kinds
    assert "drafting on" not in waiting + overdue
