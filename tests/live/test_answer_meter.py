"""What is measured of an answer while it passes."""

import pytest

from gatekeeper.live.answer_meter import MOST_USAGE, MOST_WHOLE, AnswerMeter

EVENTS = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"ab"}}],"usage":null}\n\n'
    b'data: {"choices":[{"delta":{"content":"c \\"d\\""}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_an_answer_is_measured_alike_however_its_bytes_are_cut(size: int) -> None:
    """Pieces may end anywhere: characters, usage and the digest are those of the whole, and a role alone is no text."""
    meter = AnswerMeter(0)
    for number, begin in enumerate(range(0, len(EVENTS), size)):
        meter.feed(EVENTS[begin : begin + size], number)

    assert {"prompt_tokens": 3, "completion_tokens": 2} == meter.finish()
    assert (9, len(EVENTS)) == (meter.chars, meter.size)
    assert meter.first_ns == (EVENTS.index(b'ab"') + 2 + EVENTS[EVENTS.index(b'ab"') :].index(b"\n") - 2) // size


def test_an_answer_that_is_not_streamed_is_counted_at_its_end() -> None:
    """A JSON answer has usage and characters, but no first token."""
    meter = AnswerMeter(0, streamed=False)
    meter.feed(b'{"choices":[{"message":{"content":"four"}}],"usage":{"completion_tokens":1}}', 5)

    assert ({"completion_tokens": 1}, 4, None) == (meter.finish(), meter.chars, meter.first_ns)


@pytest.mark.parametrize("streamed", [False, True])
def test_of_a_long_answer_only_the_usage_is_parsed(*, streamed: bool) -> None:
    """What is around a usage is not read, and of a usage no more than a length: lists would cost seconds."""
    usage, lists = b'"usage": {"completion_tokens": 7}', b"[" + b"[]," * MOST_USAGE + b"0]"
    meter, endless, broken = (AnswerMeter(0, streamed=streamed) for _ in range(3))
    meter.feed(b'{"a": %s, %s}\n' % (lists, usage), 1)
    endless.feed(b'{"usage": {"completion_tokens": 7, "a": %s}}\n' % lists, 1)
    broken.feed(b'{"no JSON, %s\n' % usage, 1)

    assert [{"completion_tokens": 7}, {}, {"completion_tokens": 7}] == [
        answer_meter.finish() for answer_meter in (meter, endless, broken)
    ]


def test_an_answer_that_is_not_streamed_is_counted_up_to_a_length() -> None:
    """Of a longer one nothing is kept, and so its speed is not known; its bytes are counted."""
    meter = AnswerMeter(0, streamed=False)
    for _ in range(3):
        meter.feed(b'"text": "%s"' % (b"x" * (MOST_WHOLE // 2)), 1)

    assert ({}, 0, True) == (meter.finish(), meter.chars, meter.size > MOST_WHOLE)
