"""Values that servers write: whatever they are, an answer can be recorded and read back, or it is a fault."""

import json
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.server_claims import claimed_rounds
from gatekeeper.backends.counters import spec_decode
from gatekeeper.backends.dialect import Dialect, ServerRequest
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.http.chat_answer import read_answer
from gatekeeper.backends.http.chat_request import resolve
from gatekeeper.backends.http.refusal_hints import models_in
from gatekeeper.backends.http.stream import RawResponse, post
from gatekeeper.backends.server_process import version_in
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.system.record_files import ANSWERS
from tests.backends.conftest import DRAFTING, make_request
from tests.backends.fake_server import HEAD, FakeServer
from tests.backends.http.test_response import chunk

DONE = b"data: [DONE]\n\n"
WHOLE = chunk({"content": "a"}) + chunk({}, "stop", usage={"completion_tokens": 1}) + DONE
DIGITS = "1" * 401


def received(*pieces: bytes, head: bytes = HEAD) -> RawResponse:
    """Return a response whose pieces came at 1, 2, 3 … ns."""
    parts = (head, *pieces)
    return RawResponse(0, 1000, b"".join(parts), range(len(parts)), tuple(accumulate(map(len, parts))))


def recorded(answer: Answer) -> Answer:
    """Write an answer as a record, and read it back."""
    generation = Generation("t", "k", "w", "c", "candidate", DRAFTING, Role.MEASURED, 0, "", 1, answer)
    claimed_rounds(answer)
    return ANSWERS.validate_json(ANSWERS.dump_json(generation)).answer


CRLF = WHOLE.replace(b"\n", b"\r\n")
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nContent-Length: 3\r\n\r\n"
ODD_TIMINGS = b'"timings": {"tps": NaN, "ms": -Infinity}, "usage"'
LEGAL = {
    "lines end in CR alone": [HEAD, WHOLE.replace(b"\n", b"\r")],
    "lines end in CR LF": [HEAD, CRLF],
    "CR LF is cut in two": [HEAD, *(part + b"\r" for part in CRLF.split(b"\r")[:-1]), b"\n"],
    "100 Continue comes first": [b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, WHOLE],
    "103 Early Hints comes first": [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + HEAD, WHOLE],
    "two interim heads": [INTERIM, HEAD, WHOLE],
    "the head ends in LF LF": [HEAD.replace(b"\r\n", b"\n"), WHOLE],
    "data without a space": [HEAD, WHOLE.replace(b"data: ", b"data:")],
    "NaN in the server's timings": [HEAD, WHOLE.replace(b'"usage"', ODD_TIMINGS)],
    "HTTP chunks with extensions": [
        HEAD.replace(b"Connection", b"Transfer-Encoding: chunked\r\nConnection"),
        b"%x;name=value\r\n%s\r\n0\r\n\r\n" % (len(WHOLE), WHOLE),
    ],
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_legal_is_no_fault(name: str) -> None:
    """Odd but legal HTTP and event streams are complete answers."""
    with FakeServer(LEGAL[name]) as server:
        answer, _ = read_answer(post(server.url, b"{}", headers={}, timeout=5))

    assert (None, "a", "stop", 1) == (answer.fault, answer.text, answer.finish, answer.output_tokens)


NUMBERS = {
    "401 digits": DIGITS, "5,000 digits": "1" * 5000, "401 digits below zero": "-" + DIGITS, "beyond a float": "1e999",
    "below a float": "-1e400", "20 digits": "1" * 20, "64 bits": str(2**64 - 1), "NaN": "NaN", "Infinity": "Infinity",
    "negative": "-1", "a fraction": "0.5", "true": "true", "text": '"7"', "null": "null", "a list": "[1]",
    "an object": '{"a": 1}', "3,000 brackets": "[" * 3000, "two exponents": "1e1e1", "hexadecimal": "0x10",
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("where", ["usage", "timings", "index"])
def test_impossible_numbers_are_faults_or_unknown(where: str, name: str) -> None:
    """A number that no server can mean is a fault or unknown, and its record can be read back."""
    number = NUMBERS[name]
    names = {
        "usage": ("completion_tokens", "prompt_tokens"),
        "timings": ("draft_n", "cache_n", "prompt_ms"),
        "index": (),
    }
    fields = "{" + ", ".join(f'"{key}": {number}' for key in names[where]) + "}"
    last = b'data: {"choices": [], "%s": %s}\n\n' % (where.encode(), fields.encode())
    if where == "index":
        call = b'{"choices": [{"delta": {"tool_calls": [{"index": %s, "function": {"name": "f"}}]}}]}'
        last = b"data: " + call % number.encode() + b"\n\n"

    answer, response = read_answer(received(chunk({"content": "a"}), last, chunk({}, "stop"), DONE))
    answer = dialect_of("llama-server").read(answer, response) if answer.fault is None else answer

    assert answer == recorded(answer)
    assert answer.fault is None or answer.fault.startswith("garbled stream: ")
    for count in (answer.output_tokens, answer.prompt_tokens, answer.claims.drafted, answer.claims.cached_tokens):
        assert count is None or 0 <= count < 2**64


HALF = "\ud83c"
HALVES: dict[str, dict[str, Any]] = {
    "finish_reason": {"choices": [{"delta": {}, "finish_reason": HALF}]},
    "model": {"choices": [], "model": HALF},
    "reasoning": {"choices": [{"delta": {"reasoning": HALF}}]},
    "tool-call": {"choices": [{"delta": {"tool_calls": [{"function": {"name": HALF, "arguments": HALF}}]}}]},
    "call-id": {"choices": [{"delta": {"tool_calls": [{"id": HALF, "function": {"name": "f"}}]}}]},
    "error": {"error": {"message": HALF}},
    "done_reason": {"done": True, "done_reason": HALF},
}


@pytest.mark.parametrize("name", HALVES)
def test_half_a_character_spoils_no_record(name: str) -> None:
    """Half of a surrogate pair, which UTF-8 cannot hold, is replaced wherever a server may write a text."""
    half = b"data: " + json.dumps(HALVES[name]).encode() + b"\n\n"

    answer, _ = read_answer(received(chunk({"content": "a"}), half, chunk({}, "stop"), DONE))

    assert answer == recorded(answer)
    assert HALF not in repr(answer)


def test_a_model_that_changes_with_each_chunk_is_named_in_bounds() -> None:
    """Of ten thousand names in one answer the first few are kept, on one line and cut to a length."""
    chunks = [chunk({"content": "a"}, model=f"m{number}\n" + "x" * 1000) for number in range(10_000)]

    answer, _ = read_answer(received(*chunks, chunk({}, "stop"), DONE))

    assert answer.claims.model is not None
    assert len(answer.claims.model) < 1000
    assert "\n" not in answer.claims.model


# What any dialect reads, of anything

WORDS = """
timings draft_n draft_n_accepted draft_rounds draft_kind prompt_ms predicted_ms predicted_n cache_n stats
total_draft_tokens_count accepted_draft_tokens_count generation_time time_to_first_token mtplx_stats
drafted_tokens accepted_drafts verify_calls drafted_by_depth accepted_by_depth cached_tokens prompt_eval_time_s
mtp_depth requested_mtp_depth ddtree_stats cycles avg_acceptance metrics speculative_decoding num_draft_tokens
num_accepted_draft_tokens num_spec_steps generation_metadata mtp_drafts mtp_accepted load_duration
prompt_eval_duration eval_duration last_request generated_tokens acceptance_rate cache_hit_tokens prefill_s
decode_s speculative tokens rounds drafted accepted tried_by_position accepted_by_position
"""
NAMES = st.sampled_from(WORDS.split())
SCALARS = st.none() | st.booleans() | st.integers(-3, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.sampled_from([2**63, 1e308, -1e308, 12, "7"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=25,
)
CLAIMS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=6)


def asked_of(dialect: Dialect) -> ServerRequest:
    knobs = {"block_size": 5, "num_draft_tokens": 4}
    return ServerRequest(resolve(make_request("list", DRAFTING)), knobs, None, dialect.name, cache=False)


@pytest.mark.parametrize("name", sorted(SERVERS))
@given(claims=CLAIMS, page=CLAIMS | VALUES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_claim_of_any_server_can_be_recorded(name: str, claims: dict[str, Any], page: Any) -> None:
    """Whatever a server writes under the names that its dialect reads, its answer is recorded and read back."""
    dialect = dialect_of(name)
    last = chunk({}, "stop", usage={"completion_tokens": 1, "speculative": claims}, **claims)
    answer, response = read_answer(received(chunk({"content": "a"}), last, DONE), tokens_of=dialect.tokens_of)
    assert answer.fault is None

    answer = dialect.read(answer, response)
    if dialect.after_answer is not None:
        answer = dialect.after_answer(lambda _: json.dumps(page), asked_of(dialect), answer)
    if dialect.corrected is not None:
        answer = dialect.corrected(asked_of(dialect), answer)

    assert answer == recorded(answer)


# Counters and versions

SAMPLES = {
    "NaN": "NaN", "infinite": "+Inf", "infinite below zero": "-Inf", "two exponents": "1e1e1", "negative": "-3",
    "5,000 digits": "1" * 5000, "beyond a float": "1e400", "hexadecimal": "0x1", "nothing": "", "an exponent": "1.5e3",
    "a number": "7",
}  # fmt: skip


def metrics(value: str, position: str = "0") -> str:
    """Return the counters of a server that drafts, one of them with *value*."""
    name = "vllm:spec_decode_num_"
    lines = [f"{name}draft_tokens_total 12", f"{name}accepted_tokens_total {value}", f"{name}drafts_total {value}"]
    lines += [f'{name}accepted_tokens_per_pos_total{{position="{position}"}} {value}']
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", SAMPLES)
def test_impossible_counters_are_unknown(name: str) -> None:
    """A counter that is no count, in total or per position, is unknown; the others are read."""
    counters = spec_decode(metrics(SAMPLES[name]), "vllm:")

    expected = {"an exponent": 1500, "a number": 7}.get(name)
    assert counters is not None
    assert (12, expected, expected) == (counters.drafted, counters.accepted, counters.rounds)
    assert (() if expected is None else (expected,)) == counters.accepted_by_position


@pytest.mark.parametrize("position", ["9" * 5000, "1", "-1", "٣"], ids=["5,000 digits", "a gap", "negative", "Arabic"])
def test_impossible_positions_are_unknown(position: str) -> None:
    """A position that is no small number, or that leaves out one before it, gives no counts by position."""
    counters = spec_decode(metrics("7", position), "vllm:")

    assert counters is not None
    assert (7, ()) == (counters.accepted, counters.accepted_by_position)


@given(
    text=st.text(st.sampled_from('vllm:spec_decode_num_draft_tokens_total{}position="01 9.eE+-NaIf\n\t#'), max_size=300)
)
@settings(max_examples=40, deadline=None)
def test_any_text_of_counters_is_survived(text: str) -> None:
    """Any text under /metrics gives counters or none."""
    for page in (text, metrics("1") + text):
        counters = spec_decode(page, "vllm:")
        assert counters is None or (counters.drafted or 0) >= 0


LISTS = {
    "5,000 brackets": "[" * 5000,
    "401 digits": DIGITS,
    "no list": '{"data": 7}',
    "half a character": '{"data": [{"id": "\\ud800"}]}',
    "lists in a list": '{"data": [[]]}',
    "NUL": "\x00",
}


@pytest.mark.parametrize("name", LISTS)
def test_any_list_of_models_and_any_version_is_survived(name: str) -> None:
    """A list of models that is none is empty, and a version is one line without control characters."""
    text = LISTS[name]

    assert [] == models_in(text)
    assert version_in(text, "build_info") == "unknown"
    assert version_in(f"\x1b[31m{text}\n" * 3).isprintable()


def test_a_version_is_the_line_that_names_it() -> None:
    """A banner, and a sentence about a version without a number, are passed over."""
    printed = "A beta version of the video understanding.\n\n✨ a server ✨\n🚀 Version: 1.6.3\n"

    assert "1.6.3" == version_in(printed).rpartition(" ")[2]


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"], ids=["LF", "CR", "CR LF"])
def test_a_stream_that_is_cut_anywhere_is_a_fault(ending: str) -> None:
    """Wherever a stream breaks off before its finish reason, whatever its line ends, the answer is a fault."""
    stream = chunk({"content": "a"}) + chunk({"content": "b"}) + chunk({"content": "c"})

    raw = stream.replace(b"\n", ending.encode())
    answers = [read_answer(received(raw[:end]))[0] for end in range(0, len(raw), 7)]

    assert all(answer.fault is not None for answer in answers)
    assert [] == [answer for answer in answers if replace(answer, fault=None) != replace(recorded(answer), fault=None)]
