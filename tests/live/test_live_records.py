"""What is recorded of a request that has ended, and whether it is evidence."""

import json
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
    observation,
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


def test_a_record_holds_no_text() -> None:
    """The line in live.jsonl has times and counts, and neither the prompt nor the answer."""
    line = record_line(ended(b"on Monday"))

    assert (1.0, 2.0, 7, 3) == tuple(
        line[name] for name in ("ttft_s", "duration_s", "prompt_tokens", "completion_tokens")
    )
    assert ("json", "speculative", 200, None) == tuple(line[name] for name in ("workload", "route", "status", "fault"))
    assert not [text for text in ("Friday", "Monday") if text in json.dumps(line)]


def test_a_whole_answer_is_kept_with_its_record() -> None:
    """With --keep-prompts the same id names the record and the texts; an answer that failed or was not kept has no
    texts.
    """
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


def test_evidence_is_of_the_setting_that_was_drawn() -> None:
    """An answer counts for the arm and the epoch of its draw; it failed where a server that was tried failed."""
    answer = observation(replace(ended(b"on Monday"), failed="speculative server: status 503"))

    assert ("json", "speculative", 2, len(SECRET), True) == (
        answer.workload,
        answer.arm,
        answer.epoch,
        answer.prompt_chars,
        answer.failed,
    )
