"""The chat: what a server says in any of its dialects becomes the same answer, and tokens are counted or unknown."""

import json
from itertools import accumulate
from typing import Any

from gatekeeper.backends.chat import Said, TokensOf, understand
from gatekeeper.backends.stream import Heard
from gatekeeper.terms.records import Answer

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
NDJSON = SSE.replace(b"text/event-stream", b"application/x-ndjson")
DOCUMENT = SSE.replace(b"text/event-stream", b"application/json")
DONE = b"data: [DONE]\n\n"


def heard(*pieces: bytes) -> Heard:
    """Return what was heard had these pieces come at 0, 1, 2, … ns."""
    return Heard(0, 1000, b"".join(pieces), tuple(range(len(pieces))), tuple(accumulate(map(len, pieces))))


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def usage(tokens: int) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": tokens}}).encode() + b"\n\n"


def streamed(*pieces: bytes, tokens_of: TokensOf | None = None) -> tuple[Answer, Said]:
    return understand(heard(SSE, *pieces, DONE), tokens_of=tokens_of)


def predicted(said: Any) -> int | None:
    """Read the count llama-server puts into each chunk where it is asked to."""
    count = (said.get("timings") or {}).get("predicted_n")
    return count if isinstance(count, int) else None


def counted(text: str, count: int, finish: str | None = None) -> bytes:
    return chunk({"content": text} if text else {}, finish, timings={"predicted_n": count})


def tokens(answer: Answer) -> list[int | None]:
    return [arrival.tokens for arrival in answer.arrivals]


def test_lines_of_json_are_a_stream() -> None:
    """
    Ollama's dialect, one JSON object a line, gives text, thinking, calls, counts, and an arrival for each line that
    brings something.
    """
    call = {"function": {"name": "look", "arguments": {"at": 1}}}
    lines: list[dict[str, Any]] = [
        {"model": "m", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "ye"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "s", "tool_calls": [call]}, "done": False},
        {
            "model": "m",
            "done": True,
            "done_reason": "length",
            "prompt_eval_count": 7,
            "eval_count": 3,
            "eval_duration": 9,
        },
    ]

    answer, said = understand(heard(NDJSON, *(json.dumps(line).encode() + b"\n" for line in lines)))

    expected = (None, "yes", "hm", "length", 7, 3, "m")
    seen = (answer.fault, answer.text, answer.reasoning, answer.finish, answer.prompt_tokens, answer.output_tokens)
    assert expected == (*seen, answer.claims.model)
    assert [(1, 1), (2, 1), (3, 1)] == [(arrival.at_ns, arrival.tokens) for arrival in answer.arrivals]
    assert answer.tool_calls[0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert said.last["eval_duration"] == 9


def test_a_line_that_is_not_done_is_cut_off() -> None:
    """
    Lines that end before one says `done` are no whole answer.
    """
    answer, _ = understand(heard(NDJSON, b'{"message": {"content": "a"}, "done": false}\n'))

    assert answer.fault is not None
    assert answer.fault.startswith("cut off")


def test_a_document_arrives_as_one() -> None:
    """
    An answer that is not streamed has one arrival, when its last byte came, and no pace of tokens.
    """
    said_whole = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        "ddtree_stats": {"cycles": 2},
    }
    for indent in (None, 2):
        text = json.dumps(said_whole, indent=indent).encode()

        answer, said = understand(heard(DOCUMENT, text[:20], text[20:]))

        expected = (None, "yes", "stop", 3, {"ddtree_stats": {"cycles": 2}})
        assert expected == (answer.fault, answer.text, answer.finish, answer.output_tokens, said.last)
        assert [(2, None)] == [(arrival.at_ns, arrival.tokens) for arrival in answer.arrivals]


def test_counts_in_the_chunks_give_exact_tokens() -> None:
    """
    Where chunks carry a running count, each arrival has its own tokens; those of a chunk without text belong to the
    next arrival.
    """
    role = chunk({"role": "assistant", "content": None}, timings={"predicted_n": 0})
    pieces = [role, counted("a", 1), counted("bcd", 4), counted("", 5), counted("e", 6), chunk({}, "length"), usage(6)]

    answer, said = streamed(*pieces, tokens_of=predicted)

    assert [1, 3, 2] == tokens(answer)
    assert [(number, predicted(one)) for number, one, _ in said.chunks[:3]] == [(1, 0), (2, 1), (3, 4)]
    assert {"timings": {"predicted_n": 6}} == said.last


def test_counts_that_can_not_be_right_are_not_used() -> None:
    """
    A count that falls, one above the usage, and one that is missing for an arrival leave the tokens unknown.
    """
    falls = [counted("a", 2), counted("b", 1), usage(3)]
    above = [counted("a", 2), counted("b", 9), usage(3)]
    gap = [counted("a", 2), chunk({"content": "b"}), usage(3)]

    seen = [tokens(streamed(*pieces, tokens_of=predicted)[0]) for pieces in (falls, above, gap)]

    assert [[None, None]] * 3 == seen


def test_a_model_that_changes_is_named() -> None:
    """
    The answer claims the model its server names, and all of them where it changes in the middle.
    """
    same, _ = streamed(chunk({"content": "a"}, model="m"), chunk({}, "stop", model="m"))
    swapped, said = streamed(chunk({"content": "a"}, model="m", system_fingerprint="f1"), chunk({}, "stop", model="n"))

    assert ("m", "m, then n") == (same.claims.model, swapped.claims.model)
    assert said.system_fingerprint == "f1"
