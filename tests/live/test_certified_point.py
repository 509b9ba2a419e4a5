# ruff: noqa: SIM117 (a server, then its proxy, then a request: one line each)
"""For which requests the draft is certified: by what certify sent, and over real sockets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gatekeeper.core.policy import CertifiedRequest, Policy
from gatekeeper.live.live_request import LiveRequest, read_request
from gatekeeper.live.prompt_tokens import LIMIT_S
from gatekeeper.live.request_routes import RequestDecision, RequestRoutes
from tests.builders.live_server import ASKED, CHAT, LiveServer, listening, live_policy, live_request, proxied, published

LONGEST = 1000
"""Tokens of the longest certified prompt."""
TOOL = {"type": "function", "function": {"name": "book_room", "parameters": {"type": "object"}}}
OTHER_TOOL = {"type": "function", "function": {"name": "find_train", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
OTHER_SCHEMA = {"type": "json_schema", "json_schema": {"name": "b", "schema": {"type": "array"}}}
CERTIFIED = (
    CertifiedRequest(),
    CertifiedRequest(tools=True, tool_choice="auto"),
    CertifiedRequest(response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
    CertifiedRequest(stop=("END",), frequency_penalty=0.5, logit_bias={"7": -100.0}),
    CertifiedRequest(thinking=False),
    CertifiedRequest(grammar="root ::= [0-9]+"),
    CertifiedRequest(structured_outputs={"json": {}}),
    CertifiedRequest(regex="[0-9]+"),
)
NOT_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
CALLING = {"tools": [TOOL], "tool_choice": "auto"}
PENALIZED = {"stop": "END", "frequency_penalty": 0.5, "logit_bias": {"7": -100}}


def prompt(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text, **more}]}


INSIDE: dict[str, dict[str, Any]] = {
    "as certified": {},
    "a prompt as long as the longest certified one": prompt("x" * LONGEST),
    "the temperature as a float": {"temperature": 0.0},
    "fields that change nothing": {
        "user": "me", "metadata": {"a": 1}, "stream": True, "stream_options": {"include_usage": True}, "seed": 3,
        "n": 1, "store": False, "service_tier": "auto", "max_completion_tokens": 9,
    },
    "a limit above the longest certified answer": {"max_tokens": 100_000},
    "null for what it leaves to the server": {"top_p": None, "tools": None, "response_format": None, "stop": None},
    "text as the response format, and no tools": {"response_format": {"type": "text"}, "tools": []},
    "tools": CALLING,
    "other tools": {**CALLING, "tools": [OTHER_TOOL, TOOL]},
    "a schema": {"response_format": SCHEMA},
    "another schema": {"response_format": OTHER_SCHEMA},
    "penalties, a bias and an end": PENALIZED,
    "an end in a list": {**PENALIZED, "stop": ["END"]},
    "without thinking": NOT_THINKING,
    "the grammar": {"grammar": "root ::= [0-9]+"},
    "another schema of vLLM": {"structured_outputs": {"json": {"type": "array"}}},
    "the expression": {"regex": "[0-9]+"},
    "a prompt that is as long in bytes": prompt("x" * (LONGEST - 8)),
    "sevens": prompt("7 " * ((LONGEST - 8) // 2)),
    "control characters": prompt("\x01" * (LONGEST - 8)),
    "dashes of three bytes": prompt("\u2e3b" * ((LONGEST - 8) // 3)),
    "text in parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
    "the field of the cache as certified": {"cache_field": 1},
}  # fmt: skip
"""Requests as some certified one."""
OUTSIDE: dict[str, tuple[dict[str, Any], str]] = {
    "another temperature": ({"temperature": 0.7}, "'temperature' of the request is 0.7, certified with 0"),
    "no temperature": ({"temperature": None}, "no 'temperature', certified with 0"),
    "false as the temperature": ({"temperature": False}, "'temperature' of the request is false, certified with 0"),
    "a temperature as text": ({"temperature": "0"}, "'temperature' of the request is another value"),
    "a temperature in the options too": ({"options": {"temperature": 0.7}}, "had 'options.temperature'"),
    "a temperature that moves": ({"dynatemp_range": 0.5}, "had 'dynatemp_range'"),
    "top-p": ({"top_p": 0.9}, "had 'top_p'"),
    "min-p": ({"min_p": 0.1}, "had 'min_p'"),
    "thinking": ({"chat_template_kwargs": {"enable_thinking": True}}, "had 'chat_template_kwargs.enable_thinking'"),
    "thinking by another name": ({"enable_thinking": False}, "had 'enable_thinking'"),
    "an effort": ({"reasoning_effort": "low"}, "had 'reasoning_effort'"),
    "a grammar": ({"grammar": 'root ::= "a"'}, "had 'grammar'"),
    "a regular expression": ({"guided_regex": "a+"}, "had 'guided_regex'"),
    "another expression": ({"regex": "[a-z]+"}, "had 'regex'"),
    "choices in place of a schema": ({"structured_outputs": {"choice": ["a"]}}, "had 'structured_outputs'"),
    "another response format": ({"response_format": {"type": "json_object"}}, "'response_format'"),
    "a response format with more": ({"response_format": {**SCHEMA, "schema": {}}}, "'response_format'"),
    "tools without the choice": ({"tools": [TOOL]}, "'tools'"),
    "a tool that is demanded": (
        {**CALLING, "tool_choice": "required"},
        "'tool_choice' of the request is another value",
    ),
    "a tool by name": ({**CALLING, "tool_choice": {"type": "function", "function": {"name": "a"}}}, "'tool_choice'"),
    "a choice without tools": ({"tool_choice": "auto"}, "'tool_choice'"),
    "tools that are called beside each other": ({**CALLING, "parallel_tool_calls": True}, "had 'parallel_tool_calls'"),
    "tools with the end of another request": ({**CALLING, "stop": ["END"]}, "had 'stop'"),
    "a schema without thinking": ({"response_format": SCHEMA, **NOT_THINKING}, "had "),
    "another end": ({**PENALIZED, "stop": ["STOP"]}, "'stop' of the request is another value"),
    "one more bias": ({**PENALIZED, "logit_bias": {"7": -100, "8": 1}}, "'logit_bias' of the request is another value"),
    "another penalty": ({**PENALIZED, "frequency_penalty": 0.6}, "is 0.6, certified with 0.5"),
    "another grammar": ({"grammar": "root ::= [a-z]+"}, "had 'grammar'"),
    "a penalty of its own": ({"presence_penalty": 0.1}, "had 'presence_penalty'"),
    "another model": ({"model": "other/70b"}, "names another model"),
    "no model": ({"model": None}, "names no model"),
    "a model that is no name": ({"model": ["t"]}, "names another model"),
    "an adapter": ({"adapters": "x"}, "had 'adapters'"),
    "an adapter of another server": ({"lora": [{"id": 0}]}, "had 'lora'"),
    "a template": ({"chat_template": "{{ messages }}"}, "had 'chat_template'"),
    "a smaller cache": ({"kv_bits": 4}, "had 'kv_bits'"),
    "a cache of prompts": ({"cache_prompt": True}, "had 'cache_prompt'"),
    "the field of the cache with another value": ({"cache_field": 2}, "'cache_field' of the request is not"),
    "several answers": ({"n": 3}, "had 'n'"),
    "true answers": ({"n": True}, "had 'n'"),
    "answers in the options": ({"options": {"n": 64}}, "had 'options.n'"),
    "tokens that are demanded": ({"min_tokens": 9}, "had 'min_tokens'"),
    "probabilities": ({"logprobs": True}, "had 'logprobs'"),
    "another spelling": ({"Temperature": 2}, "had 'Temperature'"),
    "a dotted name": ({"temperature": None, ".temperature": 0}, "had a field"),
    "a name that may be a prompt": ({"tell me a secret": 1}, "had a field"),
    "many fields": ({f"field{number}": number for number in range(9999)}, "had 'field0'"),
    "a text to complete": ({"messages": None, "prompt": "a"}, "'messages' of the request is not as canaries have it"),
    "an input": ({"input": "a"}, "had 'input'"),
    "a system prompt of its own": ({"system": "a"}, "had 'system'"),
    "documents": ({"documents": [{"text": "x"}]}, "had 'documents'"),
    "messages that are a text": ({"messages": "x"}, "'messages'"),
    "a message that is a text": ({"messages": ["x"]}, "'messages'"),
    "a role of its own": ({"messages": [{"role": "poet", "content": "a"}]}, "'messages.role'"),
    "images beside the text": (prompt("x", images=["aGk="]), "'messages.images'"),
    "an image": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "cannot be bounded"),
    "an image with a text": ({"messages": [{"role": "user", "content": [{"type": "image", "text": "a"}]}]}, "bounded"),
    "a longer prompt": (prompt("x" * (LONGEST + 1)), f"may have {LONGEST + 1} tokens, certified up to {LONGEST}"),
    "more sevens": (prompt("7 " * (LONGEST // 2 + 1)), "may have"),
    "more control characters": (prompt("\x01" * (LONGEST + 1)), "may have"),
    "more dashes": (prompt("\u2e3b" * (LONGEST // 3 + 1)), "may have"),
    "letters that a tokenizer takes apart": (prompt("\u0958" * (LONGEST // 4 + 1)), "may have"),
    "a lone surrogate too many": (prompt("\ud800" * (LONGEST // 3 + 1)), "may have"),
    "many messages": ({"messages": [{"role": "user", "content": ""}] * (LONGEST // 8 + 2)}, "may have"),
    "a longer call of a tool": (prompt("x", tool_calls=["y" * LONGEST]), "may have"),
    "longer tools": ({**CALLING, "tools": [{**TOOL, "description": "x" * LONGEST}]}, "may have"),
    "a longer schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"description": "x" * 2 * LONGEST}}}},
        "may have",
    ),
}
"""Requests that no certified one is like, and why they are decoded plainly."""


def certified(**changes: Any) -> Policy:
    """Return a policy whose route was certified for some kinds of requests."""
    policy = live_policy(concurrency=64)
    limits = {"longest_prompt": LONGEST, "longest_format": 120, "request": CERTIFIED, **changes}
    conditions = policy.conditions.model_copy(update={"request": {"cache_field": 1}})
    return policy.model_copy(update={"conditions": conditions, "route": (policy.route[0].model_copy(update=limits),)})


def decide(request: LiveRequest, backend: str = "openai", /, **changes: Any) -> RequestDecision:
    routes = RequestRoutes(lambda: 1.0)
    published(routes, of=certified(**changes), backend=backend)
    routes.begin(request.answers)
    return routes.decide(request)


@pytest.mark.parametrize("name", INSIDE)
def test_a_request_as_a_certified_one_gets_the_draft(name: str) -> None:
    """What some certified request asked for, by all its fields, and a prompt up to the longest certified one."""
    decision = decide(live_request(INSIDE[name]))

    assert (True, "speculative") == (decision.speculative, decision.arm), decision.because
    assert {"cache_field": 1} == decision.fields == decision.plain_fields


@pytest.mark.parametrize("name", OUTSIDE)
def test_any_other_request_is_decoded_plainly(name: str) -> None:
    """With one field that no certified request had, or another value, it gets no draft; the reason quotes no text."""
    body, reason = OUTSIDE[name]

    decision = decide(live_request(body))

    assert (False, False, None) == (decision.speculative, decision.may_speculate, decision.arm)
    assert reason in decision.because
    assert "secret" not in decision.because


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"request": ()}, "does not say what the certified requests asked for"),
        ({"models": ()}, "names another model"),
        ({"longest_prompt": None}, "does not say how long the certified prompts were"),
    ],
)
def test_what_the_policy_does_not_say_is_not_certified(changes: dict[str, Any], reason: str) -> None:
    """A route without requests, without a model or without the length of prompts gets no draft."""
    decision = decide(live_request(), **changes)

    assert not decision.speculative
    assert reason in decision.because


OLLAMA = {"model": "t", "messages": [{"role": "user", "content": "a"}], "options": {"temperature": 0}}


@pytest.mark.parametrize(
    ("backend", "path", "body", "inside"),
    [
        ("ollama", "/api/chat", OLLAMA, True),
        ("ollama", "/api/chat", {**OLLAMA, "model": "t:latest"}, True),
        ("ollama", "/api/chat", {**OLLAMA, "think": False}, True),
        ("ollama", "/api/chat", {**OLLAMA, "think": True}, False),
        ("ollama", "/api/chat", {**OLLAMA, "format": {"type": "array"}}, True),
        ("ollama", "/api/chat", {**OLLAMA, "format": "json"}, False),
        ("ollama", "/api/chat", {**OLLAMA, "options": {"temperature": 0, "num_predict": 9, "seed": 1}}, True),
        ("ollama", "/api/chat", {**OLLAMA, "options": {"temperature": 0, "num_ctx": 9}}, False),
        ("ollama", "/api/chat", {**OLLAMA, "options": {}, "options.temperature": 0}, False),
        ("ollama", "/api/generate", {"model": "t", "prompt": "a", "options": {"temperature": 0}}, False),
        ("llama-server", CHAT, {**ASKED, "cache_prompt": False}, True),
        ("llama-server", CHAT, {**ASKED, "cache_prompt": True}, False),
        ("llama-server", CHAT, {**ASKED, "model": None}, True),
        ("llama-server", CHAT, {**ASKED, "id_slot": 1}, False),
        ("sglang", CHAT, ASKED, True),
        ("mtplx", CHAT, {**ASKED, "generation_mode": "mtp", "depth": 9}, True),
        ("mlx-server", CHAT, {**ASKED, "adapters": "x"}, False),
    ],
)
def test_each_server_has_its_own_fields(backend: str, path: str, body: dict[str, Any], *, inside: bool) -> None:
    """A request is compared with what certify sends to that kind of server; fields of a draft are the proxy's own."""
    decision = decide(read_request(path, {}, json.dumps(body).encode()), backend)

    assert inside == decision.speculative, decision.because


@pytest.mark.parametrize(("cache", "sent"), [("off", False), ("on", True)])
def test_the_prompt_cache_is_used_as_it_was_certified(cache: str, *, sent: bool) -> None:
    """llama-server caches prompts unless a request says otherwise: both arms say what canaries said."""
    routes = RequestRoutes(lambda: 1.0)
    published(routes, of=live_policy(cache=cache), backend="llama-server")

    decision = routes.decide(live_request())

    assert {"cache_prompt": sent} == decision.fields == decision.plain_fields


async def test_the_reason_is_in_the_header_and_in_the_log(tmp_path: Path) -> None:
    """A request inside goes to the server that drafts, any other to the plain one; answer and record say why."""
    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            published(proxy.routes, of=certified())
            for body in [*INSIDE.values()][::4]:
                _, _, headers = await proxy.chat(body)
                assert "speculative" == headers["x-gatekeeper-route"], headers["x-gatekeeper-because"]
            for name, (body, reason) in [*OUTSIDE.items()][::8]:
                _, _, headers = await proxy.chat(body)
                assert "plain" == headers["x-gatekeeper-route"], name
                assert reason in headers["x-gatekeeper-because"]
                assert reason in proxy.records[-1]["because"]
            assert len([*INSIDE][::4]) == len(server.requests)
            assert {1} == {body["cache_field"] for body in server.bodies}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a tokenizer with a token for each word count; return the texts that it was asked about."""
    texts: list[str] = []

    def count(_target: Path, text: str) -> int:
        texts.append(text)
        return len(text.split())

    monkeypatch.setattr("gatekeeper.live.prompt_tokens._count_here", count)
    return texts


async def test_the_tokenizer_decides_where_bytes_do_not(tmp_path: Path, counting: list[str]) -> None:
    """A prompt that is short in bytes, outside by its fields or far too long is not counted; any other one is."""
    words = {"short": "a", "counted": "word " * 900, "too long": "word " * 1001, "far too long": "word " * 9000}

    async with listening(LiveServer()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            published(proxy.routes, of=certified(), target=tmp_path)
            routes = [(await proxy.chat(prompt(text)))[2]["x-gatekeeper-route"] for text in words.values()]
            await proxy.chat({**prompt(words["counted"]), "temperature": 0.7})

            assert ["speculative", "speculative", "plain", "plain"] == routes
            assert "has about 1001 tokens" in proxy.records[2]["because"]

    assert [4500, 5005] == [len(text.strip("\n")) for text in counting]


@pytest.mark.parametrize(("tokens", "route"), [(1000, "speculative"), (1001, "plain"), (None, "plain")])
async def test_a_server_that_counts_is_asked(tmp_path: Path, tokens: int | None, route: str) -> None:
    """llama-server tells the tokens of a text; where it does not answer, a byte is a token."""

    class Counting(LiveServer):
        async def answer(self, request: Any) -> Any:
            if request.path != "/tokenize":
                return await super().answer(request)
            self.pieces = (json.dumps({"tokens": [1] * tokens} if tokens else {}).encode(),)
            self.headers = {"Content-Type": "application/json"}
            return await super().answer(request)

    async with listening(Counting()) as server, listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            published(proxy.routes, of=certified(), backend="llama-server")
            _, _, headers = await proxy.chat(prompt("word " * 900))

            assert route == headers["x-gatekeeper-route"]
            assert "/tokenize" == server.requests[0][0]


class Misleading(LiveServer):
    """Answers what a test wants where tokens are counted; nothing at all where that is None."""

    counted: bytes | None = None
    counts = 0

    async def answer(self, request: Any) -> Any:
        if request.path != "/tokenize":
            return await super().answer(request)
        self.counts += 1
        if self.counted is None:
            await asyncio.sleep(LIMIT_S + 1)
        return web.Response(body=self.counted, content_type="application/json")


async def test_a_server_that_counts_too_few_is_not_believed(tmp_path: Path, counting: list[str]) -> None:
    """Where the target's tokenizer is here, the server is not requested to count: its figure would choose the route."""
    server = Misleading()
    server.counted = b'{"tokens": [1]}'

    async with listening(server), listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            published(proxy.routes, of=certified(), target=tmp_path, backend="llama-server")
            _, _, headers = await proxy.chat(prompt("word " * 1001))

            assert ("plain", 0) == (headers["x-gatekeeper-route"], server.counts)

    assert 1 == len(counting)


@pytest.mark.parametrize(
    "counted",
    [
        b'{"tokens": [' + b"1," * (1 << 20) + b"1]}",
        b'{"tokens": ' + b"[" * 50_000,
        b'{"tokens": {"length": 3}}',
        b"data: [DONE]",
        b"\xff",
    ],
    ids=["longer than the prompt", "nested", "an object", "a stream", "no text"],
)
async def test_an_answer_that_is_no_count_counts_nothing(tmp_path: Path, counted: bytes) -> None:
    """Whatever stands in its place, a byte is a token then, and the request is answered."""
    server = Misleading()
    server.counted = counted

    async with listening(server), listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            published(proxy.routes, of=certified(), backend="llama-server")
            status, _, headers = await proxy.chat(prompt("word " * 900))

            assert (200, "plain", 1) == (status, headers["x-gatekeeper-route"], server.counts)


async def test_a_server_that_counts_too_slowly_is_left_alone(tmp_path: Path) -> None:
    """One prompt waits for it; those after it are decoded plainly without being counted."""
    server = Misleading()

    async with listening(server), listening(LiveServer()) as plain:
        async with proxied(tmp_path, server, plain) as proxy:
            published(proxy.routes, of=certified(), backend="llama-server")
            routes = [(await proxy.chat(prompt("word " * 900)))[2]["x-gatekeeper-route"] for _ in range(4)]

            assert (["plain"] * 4, 1) == (routes, server.counts)
