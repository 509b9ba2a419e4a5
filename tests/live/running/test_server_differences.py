"""The check of a running server against a policy: what it tells, what contradicts, and what it leaves open."""

import json
from typing import Any

import pytest

from gatekeeper.core.policy import Policy
from gatekeeper.core.records import Answer, Claims, Rounds
from gatekeeper.live.running import server_differences
from gatekeeper.live.running.server_differences import SeenProcess, ServerConditions

CERTIFIED = ("python", "-P", "-m", "gatekeeper.backends.workers.mlx_tap", "--model", "big", "--port", "{port}")
DRAFTED = (*CERTIFIED, "--draft-model", "small", "--prompt-cache-size", "0")


def policy(**conditions: Any) -> Policy:
    certified_conditions = {
        "backend": "mlx-server",
        "target": "big",
        "prompt_cache": "off",
        "concurrency": 1,
        "max_tokens": 64,
    }
    document: dict[str, Any] = {
        "schema": 1,
        "slo": "made",
        "grade": "demo",
        "manifest_sha256": "a",
        "verdict_sha256": "b",
        "issued": "2026-01-01T00:00:00Z",
        "expires": "2026-02-01T00:00:00Z",
        "conditions": {**certified_conditions, "longest_prompt": 200, **conditions},
        "launch": [{"workloads": ["chat"], "speculation": True, "command": DRAFTED}],
        "route": [{"workload": "chat", "speculation": True, "setting": {"draft": "small"}}],
    }
    return Policy.model_validate(document)


def found(argv: str | None, documents: dict[str, Any] | None = None, **conditions: Any) -> dict[str, tuple[str, str]]:
    process = None if argv is None else SeenProcess(tuple(argv.split()), {})
    parts = server_differences.compare(
        policy(**conditions), process, lambda path: json.dumps((documents or {})[path]) if documents else None
    )
    return {part.part: (part.outcome, part.detail) for part in parts}


@pytest.mark.parametrize(
    "argv",
    [
        (
            "/bin/python3 -P -m gatekeeper.backends.workers.mlx_tap --model /m/big --draft-model /m/small "
            "--prompt-cache-size 0"
        ),
        "/bin/python3 /bin/mlx_lm.server --draft-model=/m/s --model=/m/b --prompt-cache-size=0 --log-level DEBUG",
        "mlx_lm.server --model /m/big --draft-model /m/small --prompt-cache-size 0",
    ],
)
def test_the_same_options_are_as_certified(argv: str) -> None:
    """How a program is found, where it listens and what it logs changes nothing; models are compared elsewhere."""
    assert ("as certified", "its options") == found(argv)["launch line"]


@pytest.mark.parametrize(
    ("argv", "difference"),
    [
        (
            "mlx_lm.server --model big --draft-model small",
            "certified with --prompt-cache-size 0, running without it",
        ),
        ("mlx_lm.server --model big --prompt-cache-size 0", "certified with --draft-model small, running without it"),
        (
            "mlx_lm.server --model big --draft-model small --prompt-cache-size 10",
            "--prompt-cache-size is 10, certified 0",
        ),
        (
            "mlx_lm.server --model big --draft-model small --prompt-cache-size 0 --kv-bits 4",
            "running with --kv-bits 4, certified without it",
        ),
    ],
)
def test_another_option_is_named(argv: str, difference: str) -> None:
    """An option that was certified and is missing, or differs, or came in addition, is a contradiction."""
    assert ("differs", difference) == found(argv)["launch line"]


def test_another_variable_is_named() -> None:
    """A variable that servers read and that was not set at the certification is a contradiction."""
    parts = server_differences.compare(policy(), SeenProcess(DRAFTED, {"MLX_METAL_JIT": "1"}), lambda _: None)

    assert "MLX_METAL_JIT" in server_differences.differences(parts)


PROPS = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4}
SLOTS = [{"id": 0, "speculative": True}, {"id": 1, "speculative": True}]


@pytest.mark.parametrize(
    ("props", "slots", "differing"),
    [
        (PROPS, SLOTS, set()),
        ({**PROPS, "default_generation_settings": {"n_ctx": 256}}, SLOTS, {"context"}),
        ({**PROPS, "total_slots": 1}, SLOTS, {"concurrency"}),
        (PROPS, [{"id": 0, "speculative": False}], {"drafting"}),
        ([], {}, set()),
        ({"default_generation_settings": 7}, [3], set()),
    ],
)
def test_what_llama_server_tells_of_itself_is_compared(props: Any, slots: Any, differing: set[str]) -> None:
    """A context too short for the certified prompts, fewer slots than certified, and no draft are contradictions."""
    parts = found(None, {"/props": props, "/slots": slots}, backend="llama-server", concurrency=2)

    assert differing == {part for part, (outcome, _) in parts.items() if outcome == "differs"}


def window(backend: str, path: str, document: Any) -> tuple[str, str]:
    """Return what is said of the window of a server that has one *document*, at *path*."""
    certified = policy(backend=backend, longest_prompt=8000)
    parts = server_differences.compare(
        certified, None, lambda requested: json.dumps(document) if requested == path else None
    )
    (outcome_and_detail,) = ((part.outcome, part.detail) for part in parts if part.part == "context")
    return outcome_and_detail


@pytest.mark.parametrize(
    ("backend", "path", "document", "outcome"),
    [
        ("llama-server", "/props", {"default_generation_settings": {"n_ctx": 4096}}, "differs"),
        ("sglang", "/v1/models", {"data": [{"id": "big", "max_model_len": 8064}]}, "as certified"),
        ("ollama", "/api/ps", {"models": [{"name": "big:latest", "context_length": 4096}]}, "differs"),
        ("lmstudio", "/api/v0/models", {"data": [{"id": "big", "loaded_context_length": 4096}]}, "differs"),
        ("openai", "/v1/models", {"data": [{"id": "big", "max_model_len": 4096}]}, "differs"),
        ("mlx-server", "/v1/models", {"data": [{"id": "big"}]}, "not checked"),
        # Several models: the one that was certified counts, and without its name none.
        (
            "lmstudio",
            "/api/v0/models",
            {"data": [{"id": "big", "loaded_context_length": 8064}, {"id": "x"}]},
            "as certified",
        ),
        (
            "vllm",
            "/v1/models",
            {"data": [{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 1}]},
            "not checked",
        ),
        # What is no length is not stated.
        ("vllm", "/v1/models", {"data": [{"id": "big", "max_model_len": True}]}, "not checked"),
        ("vllm", "/v1/models", {"data": [{"id": "big", "max_model_len": 0}]}, "not checked"),
        ("vllm", "/v1/models", {"data": {"id": "big"}}, "not checked"),
        ("vllm", "/v1/models", [], "not checked"),
        ("vllm", "/nowhere", {}, "not checked"),
    ],
)
def test_each_server_states_its_window_in_its_own_place(backend: str, path: str, document: Any, outcome: str) -> None:
    """A window that is stated is compared; one that is not, or that may be another model's, is named as not stated."""
    result, detail = window(backend, path, document)

    assert outcome == result
    assert ("not stated" in detail) == (outcome == "not checked")
    assert "8064" in detail


def answer(cached: int | None = 0, drafted: int | None = 8, fault: str | None = None) -> Answer:
    rounds = None if drafted is None else Rounds(2, drafted, 0)
    claims = Claims(cached_tokens=cached)
    return Answer(0, 1, prompt_tokens=20, output_tokens=8, rounds=rounds, claims=claims, fault=fault)


@pytest.mark.parametrize(
    ("answers", "outcomes"),
    [
        ([answer(), answer()], {"prompt cache": "as certified", "drafted tokens": "as certified"}),
        ([answer(), answer(19)], {"prompt cache": "differs", "drafted tokens": "as certified"}),
        ([answer(None, None)], {"prompt cache": "not checked", "drafted tokens": "not checked"}),
        ([answer(drafted=0)], {"prompt cache": "as certified", "drafted tokens": "differs"}),
        ([answer(), answer(fault="timeout")], {"answers": "differs"}),
    ],
)
def test_two_answers_show_the_cache_and_the_draft(answers: list[Answer], outcomes: dict[str, str]) -> None:
    """Tokens from a prompt cache contradict a certificate without one; an answer that tells nothing proves nothing."""
    parts = server_differences.compare_answers(policy().conditions, answers, speculating=True)

    assert outcomes == {part.part: part.outcome for part in parts}


@pytest.mark.parametrize(
    ("certified", "running", "outcome"),
    [
        ({"mlx-lm": "0.32.2"}, {"mlx-lm": "0.32.2"}, "as certified"),
        ({"mlx-lm": "0.32.2"}, {"mlx-lm": "0.33.0"}, "differs"),
        ({"llama-server": "version: 5873 (0c1e570)"}, {"llama-server": "b5873-0c1e570"}, "as certified"),
        ({"llama-server": "version: 5873 (0c1e570)"}, {"llama-server": "b6000-aaaaaaa"}, "differs"),
        ({"openai": "unknown"}, {"openai": "unknown"}, "not checked"),
        ({"mlx-lm": "0.32.2"}, {}, "not checked"),
    ],
)
def test_versions_are_compared_by_what_identifies_them(
    certified: dict[str, str], running: dict[str, str], outcome: str
) -> None:
    """A program prints its version in one form and its server in another: numbers and commits decide."""
    assert outcome == server_differences.compare_versions(certified, running).outcome


def test_what_differs_ends_with_the_command_that_mends_it() -> None:
    """It is the certified command at the running port, or the running one with its prompt cache switched off."""
    running = SeenProcess(("mlx_lm.server", "--model", "my models/big", "--port", "8080"), {})
    in_process = policy(backend="mlx").model_copy(update={"launch": ()})
    mended = []
    for watched, process in ((policy(), running), (in_process, running), (in_process, None)):
        conditions = ServerConditions()
        conditions.check(watched, process, lambda _: None)
        conditions.add_answer(answer(19))
        mended.append((conditions.difference or "").partition("start it as certified: ")[2])

    certified, same, unseen = mended
    assert "--port 8080 --draft-model small --prompt-cache-size 0" in certified
    assert "mlx_lm.server --model 'my models/big' --port 8080 --prompt-cache-size 0" == same
    assert not unseen
