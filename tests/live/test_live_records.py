"""What is recorded of a request that has ended, and whether it is evidence."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.live_records import (
    CLIENT_LEFT,
    OWN_LIMIT,
    UNREADABLE,
    EndedRequest,
    completion,
    record_line,
)
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.request_routes import RequestDecision

SECRET = "the launch is on Friday"
DRAWN = RequestDecision("json", "rule 1", True, "speculative", arm="speculative", epoch=2)


def ended(answer: bytes = b"", *, keeps: bool = True) -> EndedRequest:
    """Return a streamed answer of status 200 that took two seconds."""
    meter = AnswerMeter(0, keeps=keeps)
    meter.feed(b'data: {"delta":{"content":"%s"}}\n\n' % answer, 10**9)
    meter.feed(b'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n', 2 * 10**9)
    request = LiveRequest("/v1/completions", prompt_chars=len(SECRET), body={"prompt": SECRET})
    ended_request = EndedRequest("POST", datetime.now(UTC), meter, request, DRAWN, "speculative", status=200)
    ended_request.measure(2 * 10**9, None)
    return ended_request


def test_a_whole_answer_is_kept_with_its_record() -> None:
    """With --keep-prompts one id names record and texts; an answer that failed or was not kept has none."""
    answered = ended(b"on Monday")
    texts = completion(answered)

    assert texts is not None
    assert (record_line(answered)["id"], {"prompt": SECRET}) == (texts["id"], texts["request"])
    assert completion(ended(b"on Monday", keeps=False)) is None
    assert completion(replace(answered, fault="the server broke off")) is None


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"fault": "the server broke off", "status": None}, True),
        ({"fault": "status 500", "status": 500}, True),
        ({"status": 404}, False),
        ({"fault": CLIENT_LEFT}, False),
        ({"fault": UNREADABLE, "status": 400}, False),
        ({"failed": OWN_LIMIT}, False),
        ({"decision": replace(DRAWN, arm=None)}, False),
    ],
)
def test_only_what_a_server_did_to_a_drawn_request_is_evidence(changes: dict[str, object], counts: bool) -> None:
    """What the client or the proxy did, and a request whose arm was not drawn, say nothing about speculation."""
    assert counts == replace(ended(), **changes).is_evidence  # type: ignore[arg-type]
