"""Which workload a live request belongs to."""

import json
from typing import Any

import pytest

from gatekeeper.core.policy import Proxy, digest
from gatekeeper.proxy.live_request import generates, read, sort
from tests.builders.live_server import CHAT

SYSTEM = "You answer in JSON."
KEY = "sk-live-key-of-a-customer"


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
        ({"prompt_chars_at_least": 100}, {}, {"body": b'{"prompt": "short"}'}),
        ({"prompt_chars_at_most": 99}, {"body": b'{"prompt": "short"}'}, {}),
        ({"system_sha256": digest(SYSTEM)}, {}, {"body": chat(messages=[])}),
    ],
)
def test_each_rule_chooses_the_workload_of_the_requests_it_describes(
    rule: dict[str, Any], fits: dict[str, Any], misses: dict[str, Any]
) -> None:
    """
    A request with the property belongs to the rule's workload; one without it goes on to the next rule.
    """
    proxy = Proxy.model_validate({"default": "rest", "rule": [{"workload": "mine", **rule}]})
    usual = {"path": CHAT, "headers": {"Authorization": f"Bearer {KEY}"}, "body": chat()}

    def sorted_as(given: dict[str, Any]) -> tuple[str, str]:
        made = {**usual, **given}
        return sort(read(made["path"], made["headers"], made["body"]), proxy, ["mine", "rest"])

    assert (("mine", "rule 1"), ("rest", "default")) == (sorted_as(fits), sorted_as(misses))


def test_the_header_decides_before_the_rules() -> None:
    """
    The header names the workload; a name that the policy does not have is a workload without a route.
    """
    proxy = Proxy.model_validate({"rule": [{"workload": "mine", "path": "*"}]})

    named, other = (
        sort(read(CHAT, {"x-gatekeeper-workload": name}, chat()), proxy, ["mine", "rest"]) for name in ("rest", "no")
    )

    assert (("rest", "header"), ("unknown", "header")) == (named, other)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"messages": 5, "prompt": {}, "model": null}', b"[" * 9999])
def test_a_body_that_cannot_be_read_has_no_properties(body: bytes) -> None:
    """
    What is no chat request is sorted like one without properties; the server refuses it, not the proxy.
    """
    assert ("default", "default") == sort(read(CHAT, {}, body), Proxy(), [])


def test_only_requests_that_generate_are_routed() -> None:
    """
    Chat and text completions are routed; lists of models and embeddings are passed through.
    """
    posts = [generates("POST", path) for path in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/models")]

    assert [True, True, False, False] == posts
    assert not generates("GET", CHAT)
