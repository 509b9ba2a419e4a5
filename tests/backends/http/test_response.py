"""HTTP responses: the same bytes give the same answer or fault, in whatever pieces they came."""

import json
from itertools import accumulate, pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gatekeeper.backends.http.chat_answer import read_answer
from gatekeeper.backends.http.response import parse_response
from gatekeeper.backends.http.stream import RawResponse
from tests.backends.fake_server import HEAD

CHUNKED = HEAD.replace(b"Connection", b"Transfer-Encoding: chunked\r\nConnection")


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice], **more}, ensure_ascii=False).encode() + b"\n\n"


USAGE = {"prompt_tokens": 7, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
STREAM = b"".join(
    [
        b": keepalive 0/7\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Grüße "}),
        b": ping\r\n\r\n",
        chunk({"content": "aus 東京 🏯"}).replace(b"\n", b"\r\n"),
        b"event: message\n",
        chunk({"content": " [DONE]\n\ndata: no end"}),
        chunk({}, "stop").replace(b', "choices"', b'\ndata: , "choices"'),
        b"data: " + json.dumps({"choices": [], "usage": USAGE, "timings": {"draft_n": 3}}).encode() + b"\n\n",
        b"data: [DONE]\n\n",
    ]
)
TEXT = "Grüße aus 東京 🏯 [DONE]\n\ndata: no end"


def response_in(pieces: list[bytes]) -> RawResponse:
    """Return a response whose pieces came at 1000, 1001, … ns."""
    return RawResponse(
        1, 5000, b"".join(pieces), tuple(range(1000, 1000 + len(pieces))), tuple(accumulate(map(len, pieces)))
    )


def framed(stream: bytes, sizes: list[int]) -> bytes:
    """Return *stream* as an HTTP/1.1 body in chunks of these sizes, and what is left."""
    out, start = b"", 0
    for size in [*sizes, len(stream)]:
        piece = stream[start : start + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b""
        start += len(piece)
    return out + b"0\r\n\r\n"


def cut(raw: bytes, sizes: list[int]) -> list[bytes]:
    """Cut *raw* into pieces of these sizes, and what is left."""
    starts = [0, *accumulate(sizes), len(raw)]
    return [piece for start, stop in pairwise(starts) if (piece := raw[start:stop])]


@example(cuts=[9, 16] + [40] * 10, frames=None)  # one cut lies between CR and the brace before it
@given(cuts=st.lists(st.integers(1, 40), max_size=60), frames=st.none() | st.lists(st.integers(1, 90), max_size=20))
def test_pieces_do_not_matter(cuts: list[int], frames: list[int] | None) -> None:
    """However bytes are cut, the answer is the same; each arrival has the time of the piece that completed it."""
    raw = HEAD + STREAM if frames is None else CHUNKED + framed(STREAM, frames)
    response = response_in(cut(raw, cuts))

    answer, chat = read_answer(response)

    expected = (TEXT, "stop", 4, 7, 2, None, {"timings": {"draft_n": 3}})
    fields = (answer.text, answer.finish, answer.output_tokens, answer.prompt_tokens, answer.claims.cached_tokens)
    assert expected == (*fields, answer.fault, chat.last)
    times = [arrival.at_ns for arrival in answer.arrivals]
    assert len(times) == 3
    if frames is None:
        ends = [raw.index(mark) + len(mark) for mark in (b'Gr\xc3\xbc\xc3\x9fe "}', b'\x8f\xaf"}', b'no end"}')]
        completed = [
            # The last byte of the event is the last of its line.
            next(
                at
                for at, end_of_piece in zip(response.times, response.ends, strict=True)
                if end_of_piece >= raw.index(b"}]}", end) + 3
            )
            for end in ends
        ]
        assert completed == times
    assert sorted(times) == times


@given(raw=st.binary(max_size=300))
def test_any_bytes_are_survived(raw: bytes) -> None:
    """No bytes make the parser raise, and only a complete answer has no fault."""
    for head in (b"", HEAD, CHUNKED, HEAD.replace(b"Connection", b"Content-Length: 9\r\nConnection")):
        response = response_in([head + raw])
        answer, chat = read_answer(response)
        received = parse_response(response)

        finished = received.done or (received.complete and chat.finish is not None)
        assert (answer.fault is None) == (finished and received.status == 200)


WORDS = "choices delta message content text tool_calls index function name arguments id usage model error done "
WORDS += "finish_reason completion_tokens prompt_tokens_details cached_tokens reasoning thinking eval_count done_reason"
NAMES = st.sampled_from(WORDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)
CHOICE = st.fixed_dictionaries({}, optional={"delta": JSON, "message": JSON, "finish_reason": JSON, "text": JSON})
CHUNK = st.fixed_dictionaries(
    {}, optional={"choices": JSON | st.lists(CHOICE, max_size=2), "message": JSON, "usage": JSON}
)


@given(chunks=st.lists(JSON | CHUNK, max_size=4))
def test_any_json_is_survived(chunks: list[Any]) -> None:
    """Any well-formed JSON gives an answer whose fields have the right types."""
    lines = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)

    answer, _ = read_answer(response_in([HEAD + lines + b"data: [DONE]\n\n"]))

    texts = (answer.text, answer.reasoning, answer.finish or "", answer.claims.model or "", answer.fault or "")
    assert all(isinstance(text, str) and text.encode() is not None for text in texts)
    assert all(count is None or count >= 0 for count in (answer.output_tokens, answer.prompt_tokens))
