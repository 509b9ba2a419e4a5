"""What is measured of an answer while it passes."""

import pytest

from gatekeeper.proxy.answer_meter import AnswerMeter

EVENTS = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"ab"}}],"usage":null}\n\n'
    b'data: {"choices":[{"delta":{"content":"c \\"d\\""}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_an_answer_is_measured_alike_however_its_bytes_are_cut(size: int) -> None:
    """
    Pieces may end anywhere: characters, usage and the digest are those of the whole, and a role alone is no text.
    """
    meter = AnswerMeter(0)
    for number, begin in enumerate(range(0, len(EVENTS), size)):
        meter.feed(EVENTS[begin : begin + size], number)

    assert {"prompt_tokens": 3, "completion_tokens": 2} == meter.finish()
    assert (9, len(EVENTS)) == (meter.chars, meter.size)
    assert meter.first_ns == (EVENTS.index(b'ab"') + 2 + EVENTS[EVENTS.index(b'ab"') :].index(b"\n") - 2) // size


def test_the_first_text_has_no_speed() -> None:
    """
    Speed counts what came after the first text, over the time from there to the last.
    """
    meter = AnswerMeter(0)
    for at, text in enumerate((b"aaaa", b"bb", b"cc"), start=1):
        meter.feed(b'data: {"delta":{"content":"%s"}}\n\n' % text, at * 10**9)

    assert 2.0 == meter.chars_per_s


def test_an_answer_that_is_not_streamed_is_counted_at_its_end() -> None:
    """
    A JSON answer has usage and characters, but no first token.
    """
    meter = AnswerMeter(0, streamed=False)
    meter.feed(b'{"choices":[{"message":{"content":"four"}}],"usage":{"completion_tokens":1}}', 5)

    assert ({"completion_tokens": 1}, 4, None) == (meter.finish(), meter.chars, meter.first_ns)
