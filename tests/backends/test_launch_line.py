"""Launch lines: what a policy shows of how a server was started, and what it hides."""

import json
from pathlib import Path

import pytest

from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.launch_line import shown_command, shown_environment
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.slo.subject_table import Subject
from tests.builders.golden_words import says

KEY = "s3cr3t-5Lm9Qx"


@pytest.mark.parametrize(
    "words",
    [
        ["server", "--api-key", KEY],
        ["server", f"--api-key={KEY}"],
        ["server", "--hf-token", KEY, "--port", "{port}"],
        ["env", f"OPENAI_API_KEY={KEY}", "server"],
        ["server", "-H", f"Authorization: Bearer {KEY}"],
        ["server", "--headers", f"X-Api-Key: {KEY}"],
        ["server", "--extra", json.dumps({"apiKey": KEY, "model": "x"})],
        ["server", "--extra", f"model=x,password={KEY}"],
        ["sh", "-c", f"API_TOKEN={KEY} exec server --api-key {KEY}"],
        ["server", "--proxy", f"http://user:{KEY}@proxy:3128"],
        ["server", "--upstream", f"https://host/v1?key={KEY}"],
    ],
)
def test_a_key_is_hidden(words: list[str]) -> None:
    """However a command carries a key, the launch line does not."""
    command = shown_command(words, {})

    assert KEY not in " ".join(command)
    assert words[0] == command[0]


def test_the_value_of_a_secret_variable_is_hidden_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that stands in the environment is known, and hidden in any word of the command."""
    monkeypatch.setenv("MY_SERVER_KEY", KEY)

    assert ["server", "--thing", "hidden"] == shown_command(["server", "--thing", KEY], {})


def test_what_decides_about_decoding_is_shown() -> None:
    """Numbers of tokens are no keys, and models have the names of the SLO."""
    words = ["llama-server", "--model", "/home/me/big.gguf", "--max-tokens", "64", "--num-draft-tokens=4"]

    command = shown_command(words, {"big.gguf": Path("/home/me/big.gguf")})

    assert ["llama-server", "--model", "big.gguf", "--max-tokens", "64", "--num-draft-tokens=4"] == command


def test_only_variables_that_change_decoding_are_shown() -> None:
    """Of the environment a policy shows what servers read, keys hidden."""
    environment = shown_environment({"HOME": "/home/me", "LLAMA_ARG_API_KEY": KEY, "VLLM_USE_V1": "1", "MY_KEY": KEY})

    assert {"LLAMA_ARG_API_KEY": "hidden", "VLLM_USE_V1": "1"} == environment


def test_a_server_tells_how_it_is_launched(tmp_path: Path) -> None:
    """The launch line of a setting has its draft and, with the cache off, the option that agreement demands."""
    models = {"big": tmp_path / "big", "small": tmp_path / "small"}
    subject = Subject(
        backend="mlx-server", target="big", drafts=("small",), program=("mlx_lm.server",), args=("--pipeline",)
    )
    backend = ServerBackend(subject, models, tmp_path, dialect_of("mlx-server"))
    line = backend.launch((("draft", "small"), ("num_draft_tokens", 4)))

    assert line is not None
    says("backends", "a server tells how it is launched", " ".join(line["command"]))
    assert {} == backend.required_fields()


def test_a_cache_that_requests_switch_is_a_field_of_every_request(tmp_path: Path) -> None:
    """llama-server switches its prompt cache with each request: the policy names the field that clients must send."""
    subject = Subject(backend="llama-server", target="big.gguf", url="http://127.0.0.1:1")
    backend = ServerBackend(subject, {}, tmp_path, dialect_of("llama-server"))

    assert {"cache_prompt": False} == backend.required_fields()
    assert backend.launch((("draft", None),)) is None
