"""Chat responses: any dialect gives the same answer, and tokens are counted or unknown."""

import json
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from gatekeeper.backends.dialect import ServerRequest
from gatekeeper.backends.dialects import dialect_of, llama_server, ollama
from gatekeeper.backends.http.chat_answer import ChatResponse, TokensOf, read_answer
from gatekeeper.backends.http.chat_request import request_fields, resolve
from gatekeeper.backends.http.stream import RawResponse
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer
from tests.backends.conftest import DRAFTING, make_request

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
NDJSON = SSE.replace(b"text/event-stream", b"application/x-ndjson")
DOCUMENT = SSE.replace(b"text/event-stream", b"application/json")
DONE = b"data: [DONE]\n\n"


def response_of(*pieces: bytes) -> RawResponse:
    """Return a response whose pieces came at 0, 1, 2, … ns."""
    return RawResponse(0, 1000, b"".join(pieces), tuple(range(len(pieces))), tuple(accumulate(map(len, pieces))))


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def usage(tokens: int) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": tokens}}).encode() + b"\n\n"


def streamed(*pieces: bytes, tokens_of: TokensOf | None = None) -> tuple[Answer, ChatResponse]:
    return read_answer(response_of(SSE, *pieces, DONE), tokens_of=tokens_of)


def predicted(chat: Any) -> int | None:
    """Read the count llama-server puts into each chunk where it is asked to."""
    count = (chat.get("timings") or {}).get("predicted_n")
    return count if isinstance(count, int) else None


def counted(text: str, count: int, finish: str | None = None) -> bytes:
    return chunk({"content": text} if text else {}, finish, timings={"predicted_n": count})


def tokens(answer: Answer) -> list[int | None]:
    return [arrival.tokens for arrival in answer.arrivals]


@pytest.mark.parametrize(
    "stated",
    [{"completion_tokens_details": {"reasoning_tokens": 300}}, {"reasoning_tokens": 300}],
    ids=["as OpenAI", "as SGLang"],
)
def test_reasoning_that_is_counted_and_not_shown_is_no_part_of_the_answer(stated: dict[str, Any]) -> None:
    """Two tokens after 300 of reasoning that is not shown: two are the answer's; a count above the whole is not."""
    two = chunk({"content": "a"}) + chunk({"content": "b"}, "stop")

    def ended(count: int) -> bytes:
        return (
            b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": count, **stated}}).encode() + b"\n\n"
        )

    (hidden, _), (shown, _), (inline, _), (odd, _) = (
        streamed(*pieces)
        for pieces in (
            (two, ended(302)),
            (chunk({"reasoning_content": "hm"}), two, ended(302)),
            (chunk({"content": "<think>hm</think>"}), two, ended(302)),
            (two, ended(20)),
        )
    )

    assert (2, [1, 1], 302) == (hidden.output_tokens, tokens(hidden), hidden.generated_tokens)
    assert (302, 302, 20) == (shown.output_tokens, inline.output_tokens, odd.output_tokens)


def test_chunks_are_tokens_only_if_the_numbers_say_so() -> None:
    """An arrival is one token where chunks and usage agree, but for a stop token; else none has a number."""
    two = chunk({"content": "a"}) + chunk({"content": "b"})
    cases = [
        ("length", usage(2), [1, 1], 2),
        ("stop", usage(2), [1, 1], 2),
        ("stop", usage(3), [1, 1], 3),
        ("length", usage(3), [None, None], 3),
        ("stop", usage(5), [None, None], 5),
        ("stop", usage(1), [None, None], 1),
        ("stop", b"", [None, None], None),
    ]

    answers = [streamed(two, chunk({}, finish), counts)[0] for finish, counts, _, _ in cases]

    assert [case[2:] for case in cases] == [(tokens(answer), answer.output_tokens) for answer in answers]
    assert {None} == {answer.fault for answer in answers}


def test_tool_calls_are_put_together() -> None:
    """Calls that come in fragments are joined by their index; whole ones stay whole; each delta is an arrival."""
    parts = [
        {"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"at": '}},
        {"index": 1, "id": "b", "function": {"name": "go", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]

    answer, _ = streamed(*(chunk({"tool_calls": [part]}) for part in parts), chunk({}, "tool_calls"))

    calls = [("look", '{"at": 1}'), ("go", "{}")]
    assert calls == [(call["function"]["name"], call["function"]["arguments"]) for call in answer.tool_calls]
    assert len(answer.arrivals) == len(parts)


def test_no_seed_at_temperature_zero() -> None:
    """A seed takes some servers out of batching: it is sent only above temperature 0; usage is always requested."""
    greedy = request_fields(resolve(make_request("json", DRAFTING, seed=7)))
    drawn = request_fields(resolve(make_request("json", DRAFTING, seed=7, temperature=0.7, top_p=0.9)))

    assert "seed" not in greedy
    expected = (7, 0.7, 0.9, {"include_usage": True})
    assert expected == (drawn["seed"], drawn["temperature"], drawn["top_p"], drawn["stream_options"])


def test_options_of_a_canary_are_sent_as_they_are() -> None:
    """Response format, penalties and tool choice are in the request; Ollama's API has other places for them."""
    options: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": {"type": "object"}}},
        "tool_choice": "auto",
        "stop": ("###",),
        "logit_bias": {"7": -100.0},
        "frequency_penalty": 0.5,
        "presence_penalty": 0.25,
        "repetition_penalty": 1.1,
    }
    request = make_request("json", DRAFTING)
    resolved = resolve(replace(request, canary=request.canary.model_copy(update=options)))

    sent = ollama.body(ServerRequest(resolved, {}, None, None, cache=False))

    assert options.items() <= request_fields(resolved).items()
    assert {"type": "object"} == sent["format"]
    assert {"stop": ("###",), "frequency_penalty": 0.5, "presence_penalty": 0.25, "repeat_penalty": 1.1}.items() <= (
        sent["options"].items()
    )
    assert {"tool_choice", "logit_bias"} == set(options) - ollama.DIALECT.options
    native = llama_server.body(ServerRequest(resolved, {}, None, None, cache=False))
    assert (1.1, None) == (native["repeat_penalty"], native.get("repetition_penalty"))


@pytest.mark.parametrize(
    ("field", "value", "servers"),
    [
        ("grammar", 'root ::= "a"', {"llama-server"}),
        ("json_schema", {"type": "object"}, {"llama-server"}),
        ("structured_outputs", {"choice": ["a", "b"]}, {"vllm"}),
        ("regex", "a+", {"sglang"}),
        ("ebnf", 'root ::= "a"', {"sglang"}),
        ("guided_json", {"type": "object"}, set()),
    ],
)
def test_a_form_is_sent_to_servers_that_have_a_field_for_it(field: str, value: Any, servers: set[str]) -> None:
    """A server takes its own fields with a request, and any server may; others would ignore them, and are refused."""
    request = make_request("json", DRAFTING)
    canary = Canary.model_validate({"id": "a", "messages": [{"role": "user", "content": "hi"}], field: value})

    sent = request_fields(resolve(replace(request, canary=canary)))

    assert value == sent[field]
    assert servers | {"openai"} == {name for name in SERVERS if field in dialect_of(name).options}


def test_lines_of_json_are_a_stream() -> None:
    """Ollama's lines of JSON give text, thinking, calls and counts; a line that brings something is an arrival."""
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

    answer, chat = read_answer(response_of(NDJSON, *(json.dumps(line).encode() + b"\n" for line in lines)))

    expected = (None, "yes", "hm", "length", 7, 3, "m")
    fields = (answer.fault, answer.text, answer.reasoning, answer.finish, answer.prompt_tokens, answer.output_tokens)
    assert expected == (*fields, answer.claims.model)
    assert [(1, 1), (2, 1), (3, 1)] == [(arrival.at_ns, arrival.tokens) for arrival in answer.arrivals]
    assert answer.tool_calls[0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert chat.last["eval_duration"] == 9


def test_a_line_that_is_not_done_is_cut_off() -> None:
    """Lines that end before `done` are an incomplete answer."""
    answer, _ = read_answer(response_of(NDJSON, b'{"message": {"content": "a"}, "done": false}\n'))

    assert answer.fault is not None
    assert answer.fault.startswith("cut off")


def test_a_document_arrives_as_one() -> None:
    """An answer that is not streamed has one arrival, when its last byte came, and no pace of tokens."""
    document = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        "ddtree_stats": {"cycles": 2},
    }
    for indent in (None, 2):
        text = json.dumps(document, indent=indent).encode()

        answer, chat = read_answer(response_of(DOCUMENT, text[:20], text[20:]))

        expected = (None, "yes", "stop", 3, {"ddtree_stats": {"cycles": 2}})
        assert expected == (answer.fault, answer.text, answer.finish, answer.output_tokens, chat.last)
        assert [(2, None)] == [(arrival.at_ns, arrival.tokens) for arrival in answer.arrivals]


def test_counts_in_the_chunks_give_exact_tokens() -> None:
    """Where chunks carry a running count, tokens of a chunk without text belong to the next arrival."""
    role = chunk({"role": "assistant", "content": None}, timings={"predicted_n": 0})
    pieces = [role, counted("a", 1), counted("bcd", 4), counted("", 5), counted("e", 6), chunk({}, "length"), usage(6)]

    answer, chat = streamed(*pieces, tokens_of=predicted)

    assert [1, 3, 2] == tokens(answer)
    assert [(number, predicted(message)) for number, message in chat.chunks[:3]] == [(1, 0), (2, 1), (3, 4)]
    assert {"timings": {"predicted_n": 6}} == chat.last


def test_contradictory_counts_are_not_used() -> None:
    """A count that falls, is above the usage, missing or of another kind leaves the tokens unknown."""
    falls = [counted("a", 2), counted("b", 1), usage(3)]
    above = [counted("a", 2), counted("b", 9), usage(3)]
    gap = [counted("a", 2), chunk({"content": "b"}), usage(3)]

    kind = [chunk({"content": "a"}, timings=[2]), chunk({"content": "b"}, timings=3), usage(3)]

    tokens_read = [tokens(streamed(*pieces, tokens_of=predicted)[0]) for pieces in (falls, above, gap, kind)]

    assert [[None, None]] * 4 == tokens_read


def test_a_model_that_changes_is_named() -> None:
    """The answer claims the model its server names, and all of them where it changes in the middle."""
    steady, _ = streamed(chunk({"content": "a"}, model="m"), chunk({}, "stop", model="m"))
    swapped, _ = streamed(chunk({"content": "a"}, model="m"), chunk({}, "stop", model="n"))

    assert ("m", "m, then n") == (steady.claims.model, swapped.claims.model)
