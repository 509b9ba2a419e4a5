"""The measured stream: whatever bytes come, in whatever pieces, an answer or an honest fault."""

import json
import re
import socket
import threading
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.asked import settle
from gatekeeper.backends.chat import Said, body, understand
from gatekeeper.backends.received import take_apart
from gatekeeper.backends.stream import Heard, hear
from gatekeeper.terms.records import Answer
from tests.backends.conftest import DRAFTING, ask
from tests.backends.fake_server import HEAD, Act, FakeServer


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice], **more}, ensure_ascii=False).encode() + b"\n\n"


def usage(tokens: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": 7, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 2}}
    return b"data: " + json.dumps({"choices": [], "usage": counts, **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAM = b"".join(
    [
        b": keepalive 0/7\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Grüße "}),
        b": ping\r\n\r\n",
        chunk({"content": "aus 東京 🏯"}).replace(b"\n", b"\r\n"),
        b"event: message\n",
        chunk({"content": " [DONE]\n\ndata: no end"}),
        chunk({}, "stop"),
        usage(4, timings={"draft_n": 3}),
        DONE,
    ]
)
TEXT = "Grüße aus 東京 🏯 [DONE]\n\ndata: no end"


def listened(*script: bytes | Act, timeout: float = 5.0) -> tuple[Answer, Said]:
    with FakeServer(script) as server:
        return understand(hear(server.url, b"{}", headers={}, timeout=timeout))


def heard_in(pieces: list[bytes]) -> Heard:
    """Return what was heard had these pieces come at 1000, 1001, … ns."""
    return Heard(1, 5000, b"".join(pieces), tuple(range(1000, 1000 + len(pieces))), tuple(accumulate(map(len, pieces))))


def framed(stream: bytes, sizes: list[int]) -> bytes:
    """Return *stream* as an HTTP/1.1 body in chunks of these sizes, and what is left."""
    out, start = b"", 0
    for size in [*sizes, len(stream)]:
        piece = stream[start : start + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b""
        start += len(piece)
    return out + b"0\r\n\r\n"


@given(cuts=st.lists(st.integers(1, 40), max_size=60), frames=st.none() | st.lists(st.integers(1, 90), max_size=20))
def test_pieces_do_not_matter(cuts: list[int], frames: list[int] | None) -> None:
    """
    The same bytes give the same answer however they were cut into pieces: inside characters, inside lines, inside the
    frames of HTTP chunks. Each arrival has the time of the piece that completed it.
    """
    head = HEAD if frames is None else HEAD.replace(b"Connection", b"Transfer-Encoding: chunked\r\nConnection")
    raw = head + (STREAM if frames is None else framed(STREAM, frames))
    pieces, start = [], 0
    for size in [*cuts, len(raw)]:
        pieces += [piece] if (piece := raw[start : start + size]) else []
        start += size
    heard = heard_in(pieces)

    answer, said = understand(heard)

    expected = (TEXT, "stop", 4, 7, None, {"timings": {"draft_n": 3}})
    assert expected == (answer.text, answer.finish, answer.output_tokens, answer.prompt_tokens, answer.fault, said.last)
    times = [arrival.at_ns for arrival in answer.arrivals]
    assert sorted(times) == times
    ends = [raw.index(mark) for mark in (b"Gr\xc3\xbc", b"aus", b"data: no")] if frames is None else []
    arrived = [next(at for at, came in zip(heard.times, heard.ends, strict=True) if came > end) for end in ends]
    assert all(seen >= at for seen, at in zip(times, arrived, strict=False))


def test_a_stream_is_heard_over_a_socket() -> None:
    """
    Over a real connection the role alone is no arrival, comments are none, and times are in order.
    """
    with FakeServer([HEAD, *(STREAM[start : start + 11] for start in range(0, len(STREAM), 11))]) as server:
        heard = hear(server.url, b'{"a": 1}', headers={"X-Id": "7"}, timeout=5)
        request = server.requests[0]
    answer, _ = understand(heard)

    arrivals = 3
    assert arrivals == len(answer.arrivals)
    assert answer.text == TEXT
    assert answer.claims.cached_tokens == 2
    assert all(before <= after for before, after in pairwise([heard.sent_ns, *heard.times]))
    assert request.endswith(b'\r\n\r\n{"a": 1}')
    assert b"\r\nX-Id: 7\r\n" in request


def test_chunks_are_tokens_only_if_the_numbers_say_so() -> None:
    """
    Each arrival counts one token where chunks and usage agree; else none carries a number and usage keeps the total.
    """
    two = chunk({"content": "a"}) + chunk({"content": "b"}, "stop")

    same, _ = listened(HEAD, two + usage(2) + DONE)
    other, _ = listened(HEAD, two + usage(5) + DONE)
    untold, _ = listened(HEAD, two + DONE)

    seen = [([arrival.tokens for arrival in one.arrivals], one.output_tokens) for one in (same, other, untold)]
    expected = [([1, 1], 2), ([None, None], 5), ([None, None], None)]
    assert expected == seen


def test_usage_may_ride_on_a_chunk_with_choices() -> None:
    """
    Some servers repeat the last choice beside the usage; it is no further arrival.
    """
    last = chunk({}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 1})

    answer, _ = listened(HEAD, chunk({"content": "a"}) + last + DONE)

    expected = (1, 1, "stop", None)
    assert expected == (len(answer.arrivals), answer.output_tokens, answer.finish, answer.fault)


def test_tool_calls_are_put_together() -> None:
    """
    Calls that come in fragments are joined by their index; whole ones stay whole; each delta is an arrival.
    """
    parts = [
        {"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"at": '}},
        {"index": 1, "id": "b", "function": {"name": "go", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]
    stream = b"".join(chunk({"tool_calls": [part]}) for part in parts)

    answer, _ = listened(HEAD, stream + chunk({}, "tool_calls") + DONE)

    wanted = [("look", '{"at": 1}'), ("go", "{}")]
    assert wanted == [(call["function"]["name"], call["function"]["arguments"]) for call in answer.tool_calls]
    assert len(answer.arrivals) == len(parts)


def test_reasoning_arrives_and_is_no_text() -> None:
    """
    Reasoning under either of its names is an arrival; the text is what is said after it.
    """
    stream = chunk({"reasoning": "hm"}) + chunk({"reasoning_content": "ah"}) + chunk({"content": "yes"}, "stop")

    answer, _ = listened(HEAD, stream + DONE)

    expected = (3, "yes")
    assert expected == (len(answer.arrivals), answer.text)


HALF = chunk({"content": "a"}) + b'data: {"choices": [{"del'
NOT_FOUND = b'HTTP/1.0 404 Not Found\r\nContent-Type: application/json\r\n\r\n{"error": "no such model"}'
WRONG = [
    pytest.param([HEAD], "empty answer", id="200-without-body"),
    pytest.param([HEAD, chunk({"content": "a"})], "cut off", id="no-done"),
    pytest.param([HEAD, HALF], "garbled stream", id="half-json"),
    pytest.param([HEAD, b"<html><body>Bad gateway</body></html>"], "not an event stream: <html>", id="html"),
    pytest.param([HEAD, chunk({"content": "a"}), Act.RESET], "connection broken", id="reset"),
    pytest.param([Act.RESET], "connection broken", id="reset-at-once"),
    pytest.param([], "cut off", id="closed-at-once"),
    pytest.param([NOT_FOUND], "HTTP 404: .*no such model", id="404"),
    pytest.param([HEAD, b'data: {"error": {"message": "out of memory"}}\n\n' + DONE], "out of memory", id="error"),
    pytest.param([HEAD, b"data: 17\n\n" + DONE], "garbled stream", id="json-of-another-kind"),
    pytest.param([HEAD, b'data: {"choices": [17]}\n\n' + DONE], "garbled stream", id="choices-of-another-kind"),
]


@pytest.mark.parametrize(("script", "fault"), WRONG)
def test_what_is_wrong_is_a_fault(script: list[bytes | Act], fault: str) -> None:
    """
    A stream that is not a whole answer ends with a fault that says why, and never as an exception.
    """
    answer, _ = listened(*script)

    assert answer.fault is not None
    assert re.search(fault, answer.fault)


@pytest.mark.parametrize(
    "script",
    [
        [Act.HANG],
        [HEAD, Act.HANG],
        [HEAD, chunk({"content": "a"}), Act.HANG],
        [HEAD, chunk({"content": "a"}), *([b": keep-alive\n\n"] * 50), Act.HANG],
    ],
)
def test_silence_has_a_limit(script: list[bytes | Act]) -> None:
    """
    A stall at any point ends with a timeout; comments are signs of life, but no piece of an answer.
    """
    answer, _ = listened(*script, timeout=0.2)

    assert answer.fault is not None
    assert answer.fault.startswith("timeout")


def test_pings_do_not_prolong_the_silence() -> None:
    """
    A server that only pings, forever, still runs into the limit.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def ping() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(HEAD)
                while not over.wait(0.02):
                    try:
                        connection.sendall(b": ping\n\n")
                    except OSError:
                        return

        thread = threading.Thread(target=ping)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        heard = hear(url, b"{}", headers={}, timeout=0.3)
        over.set()
        thread.join()

    assert heard.broken is not None
    assert heard.broken.startswith("timeout")


def test_no_server_is_a_fault() -> None:
    """
    Where nothing listens the answer says so.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    answer, _ = understand(hear(f"http://127.0.0.1:{port}/", b"{}", headers={}, timeout=1))

    assert answer.fault is not None
    assert answer.fault.startswith("no connection")


@given(raw=st.binary(max_size=300))
def test_any_bytes_are_survived(raw: bytes) -> None:
    """
    No bytes at all make the parser raise, and none but a whole stream make an answer without fault.
    """
    for head in (b"", HEAD, HEAD.replace(b"Connection", b"Transfer-Encoding: chunked\r\nConnection")):
        heard = heard_in([head + raw])
        answer, _ = understand(heard)
        received = take_apart(heard)

        assert (answer.fault is None) == (received.done and received.status == 200)


def test_no_seed_at_temperature_zero() -> None:
    """
    A seed takes some servers out of batching: none is sent where it draws nothing, and usage is always asked for.
    """
    greedy = body(settle(ask("json", DRAFTING, seed=7)))
    drawn = body(settle(ask("json", DRAFTING, seed=7, temperature=0.7, top_p=0.9)))

    assert "seed" not in greedy
    expected = (7, 0.7, 0.9, {"include_usage": True})
    assert expected == (drawn["seed"], drawn["temperature"], drawn["top_p"], drawn["stream_options"])
