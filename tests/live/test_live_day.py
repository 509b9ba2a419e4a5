"""The last day of live requests, in parts of an hour."""

import pytest

from gatekeeper.live import proxy_page
from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.live_records import EndedRequest
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.proxy_page import DRAFTED, PLAIN, LiveDay
from gatekeeper.live.request_routes import RequestDecision
from tests.builders.pages import NOW, SECOND

HOUR = 3600 * SECOND


def ended(now_ns: int, target: str = PLAIN, tokens: int | None = 101, fault: str | None = None) -> EndedRequest:
    """Return a request whose answer took two seconds to decode."""
    meter = AnswerMeter(now_ns, first_ns=now_ns, last_ns=now_ns + 2 * SECOND)
    decision = RequestDecision("easy", "default", target == DRAFTED, "made")
    return EndedRequest("POST", NOW, meter, LiveRequest("/"), decision, target=target, tokens=tokens, fault=fault)


def test_speeds_are_of_all_tokens_after_the_first() -> None:
    """An answer of 301 tokens counts for more than one of 101, each server for itself; one without counts for none."""
    day = LiveDay(0)
    for tokens, target in ((101, PLAIN), (301, PLAIN), (401, DRAFTED), (None, DRAFTED)):
        day.add(ended(0, target, tokens), 0)
    day.add(ended(0, tokens=None, fault="client left"), 0)

    parts = day.of("easy", 0)
    assert (100.0, 200.0) == tuple(proxy_page.sum_decoding(parts, server).tok_s for server in (PLAIN, DRAFTED))
    assert (5, 1) == (proxy_page.count_requests(parts), sum(part.uncounted for part in parts))
    assert proxy_page.sum_decoding([], PLAIN).tok_s is None


@pytest.mark.parametrize(("hours", "remembered"), [(1, 2), (20, 21), (48, 24)])
def test_a_day_is_remembered(hours: int, remembered: int) -> None:
    """Of one request an hour those of the last 24 hours are left, however long the proxy runs."""
    day = LiveDay(0)
    for hour in range(hours + 1):
        day.add(ended(hour * HOUR), hour * HOUR)

    now_ns = hours * HOUR
    assert remembered == proxy_page.count_requests(day.of("easy", now_ns))
    assert 1 == proxy_page.count_requests(day.workloads["easy"].within(proxy_page.HOUR_S, now_ns))
    assert min(hours, 24) * 3600 == day.seconds(now_ns)
    assert [] == day.of("another", now_ns)


def test_a_part_is_a_quarter_of_an_hour() -> None:
    """Ninety requests a minute apart are six parts of fifteen."""
    day = LiveDay(0)
    for minute in range(90):
        day.add(ended(minute * 60 * SECOND), minute * 60 * SECOND)

    assert [15] * 6 == [part.requests for part in day.of("easy", 90 * 60 * SECOND)]
