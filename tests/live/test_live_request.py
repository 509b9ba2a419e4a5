"""Which workload a live request belongs to."""

import json
from typing import Any

import pytest

from gatekeeper.core.policy import Proxy, digest
from gatekeeper.live.live_request import MOST_ANSWERS, choose_workload, generates, merge_patches, read_request
from gatekeeper.live.request_fields import RequestConditions
from tests.builders.live_server import CHAT

SYSTEM = "You answer in JSON."
KEY = "sk-live-key-of-a-customer"


def conditions(body: dict[str, Any]) -> RequestConditions:
    request_conditions = read_request(CHAT, {}, json.dumps(body).encode()).conditions()
    assert request_conditions is not None
    return request_conditions


def chat(**more: Any) -> bytes:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": "x" * 81}]},
    ]
    return json.dumps({"model": "team/qwen", "messages": messages, **more}).encode()


@pytest.mark.parametrize(
    ("rule", "fits", "misses"),
    [
        ({"path": "/v1/chat/*"}, {}, {"path": "/v1/completions"}),
        ({"model": "team/*"}, {}, {"body": chat(model="other")}),
        ({"api_key_sha256": digest(KEY)[:16]}, {}, {"headers": {"Authorization": "Bearer another"}}),
        ({"tools": True}, {"body": chat(tools=[{"type": "function"}])}, {}),
        ({"response_format": "json_object"}, {"body": chat(response_format={"type": "json_object"})}, {}),
        ({"response_format": "grammar"}, {"body": chat(grammar="root ::= x")}, {}),
        ({"response_format": "grammar"}, {"body": chat(regex="a+")}, {"body": chat(guided_json={"type": "object"})}),
        (
            {"response_format": "json_schema"},
            {"body": chat(structured_outputs={"json": {"type": "object"}})},
            {"body": chat(structured_outputs={"choice": ["a", "b"]})},
        ),
        ({"thinking": False}, {"body": chat(chat_template_kwargs={"enable_thinking": False})}, {}),
        ({"thinking": True}, {"body": chat(think=True)}, {"body": chat(think=False)}),
        ({"penalties": True}, {"body": chat(presence_penalty=0.5)}, {"body": chat(repetition_penalty=1.0)}),
        ({"penalties": False}, {"body": chat(frequency_penalty=0)}, {"body": chat(options={"repeat_penalty": 1.1})}),
        ({"prompt_chars_at_least": 100}, {}, {"body": b'{"prompt": "short"}'}),
        ({"prompt_chars_at_most": 99}, {"body": b'{"prompt": "short"}'}, {}),
        ({"system_sha256": digest(SYSTEM)}, {}, {"body": chat(messages=[])}),
    ],
)
def test_each_rule_chooses_the_workload_of_the_requests_it_describes(
    rule: dict[str, Any], fits: dict[str, Any], misses: dict[str, Any]
) -> None:
    """A request with the property belongs to the rule's workload; one without it goes on to the next rule."""
    proxy = Proxy.model_validate({"default": "rest", "rule": [{"workload": "mine", **rule}]})
    usual = {"path": CHAT, "headers": {"Authorization": f"Bearer {KEY}"}, "body": chat()}

    def sorted_as(changes: dict[str, Any]) -> tuple[str, str]:
        request = {**usual, **changes}
        return choose_workload(
            read_request(request["path"], request["headers"], request["body"]), proxy, ["mine", "rest"]
        )

    assert (("mine", "rule 1"), ("rest", "default")) == (sorted_as(fits), sorted_as(misses))


def test_the_header_decides_before_the_rules() -> None:
    """The header names the workload; a name that the policy does not have is a workload without a route."""
    proxy = Proxy.model_validate({"rule": [{"workload": "mine", "path": "*"}]})

    known_workload, unknown_workload = (
        choose_workload(read_request(CHAT, {"x-gatekeeper-workload": name}, chat()), proxy, ["mine", "rest"])
        for name in ("rest", "no")
    )

    assert (("rest", "header"), ("unknown", "header")) == (known_workload, unknown_workload)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"messages": 5, "prompt": {}, "model": null}', b"[" * 9999])
def test_a_body_that_cannot_be_read_has_no_properties(body: bytes) -> None:
    """What is no chat request is sorted like one without properties; the server refuses it, not the proxy."""
    assert ("default", "default") == choose_workload(read_request(CHAT, {}, body), Proxy(), [])


def test_only_requests_that_generate_are_routed() -> None:
    """Chat and text completions are routed; embeddings and counts of tokens are passed through."""
    posts = [generates("POST", path) for path in (CHAT, "/v1/completions", "/v1/embeddings", "/tokenize")]

    assert [True, True, False, False] == posts
    assert [False, True] == [generates("GET", CHAT), generates("PUT", "/generate")]


@pytest.mark.parametrize(
    "path",
    [
        "/completion",
        "/infill",
        "/generate",
        "/inference/v1/generate",
        "/api/generate",
        "/v1/responses",
        "/v1/chat/completions/.",
        "/v1/chat/completions;x",
        "/v1/chat/Completions",
        "//v1//chat//completions",
        "/v1/chat/completions%2Ftokenize",
        "/v1/chat/completions;/tokenize",
        "/tokenize/../completion",
        "/completion?x=/tokenize",
        "/v1/chat/completions/tokenize",
        "/generate/embeddings",
        "/new",
    ],
)
def test_a_post_of_any_spelling_is_routed(path: str) -> None:
    """A path that the proxy does not know may make a model write, so its request has a route like any other."""
    assert generates("POST", path)


LONG_TEXT = "x" * 100_000


@pytest.mark.parametrize(
    "field",
    [
        {"tools": [{"name": LONG_TEXT}]},
        {"tool_choice": {"type": "function", "function": {"name": LONG_TEXT}}},
        {"response_format": {"type": "json_schema", "json_schema": {"description": LONG_TEXT}}},
        {"format": {"description": LONG_TEXT}},
        {"messages": [{"role": "user", "content": "a", "reasoning_content": LONG_TEXT}]},
        {"messages": [{"role": "user", "content": "a", "name": LONG_TEXT}]},
    ],
    ids=lambda field: next(iter(field)),
)
def test_all_texts_that_may_differ_count_as_the_prompt(field: dict[str, Any]) -> None:
    """A server may put tools, a schema and any field of a message into the prompt: their text counts."""
    body = {"messages": [{"role": "user", "content": "a"}]} | field

    tokens = conditions(body).most_prompt_tokens(0, None)

    assert tokens is not None
    assert tokens >= len(LONG_TEXT)


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({}, 1),
        ({"n": 64}, 64),
        ({"best_of": 64, "n": 2}, 64),
        ({"n": "64"}, MOST_ANSWERS),
        ({"n": 10**400}, MOST_ANSWERS),
        ({"n": -1}, MOST_ANSWERS),
        ({"prompt": ["a", "b"], "n": 3}, 6),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": [1, 2, 3]}, 1),
    ],
)
def test_several_answers_at_once_are_several_requests(fields: dict[str, Any], answers: int) -> None:
    """With n = 64 a server decodes 64 answers beside each other, and so it does for 64 prompts."""
    assert answers == read_request(CHAT, {}, json.dumps({"messages": [], **fields}).encode()).answers


def test_a_name_that_comes_twice_is_ambiguous() -> None:
    """Servers differ in which of the two they take, and Go's merge them, so the body has no properties."""
    twice = read_request(CHAT, {}, b'{"max_tokens": 4096, "max_tokens": 16}')

    assert (None, None) == (twice.body, twice.conditions())


def test_a_patch_leaves_no_other_spelling_of_its_fields() -> None:
    """Ollama takes `Options` for `options`, and the last one wins: the proxy's field must be the only one."""
    body = {"Options": {"draft_num_predict": 8}, "options": {"seed": 1, "DRAFT_NUM_PREDICT": 9}, "model": "m"}

    patched = merge_patches(body, {"options": {"draft_num_predict": 0}})

    assert {"options": {"seed": 1, "draft_num_predict": 0}, "model": "m"} == json.loads(patched)
