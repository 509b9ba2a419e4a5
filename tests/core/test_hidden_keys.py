"""Keys in commands: each is found by the name it is given to, and what only looks like one is left alone."""

from pathlib import Path

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.core.hidden_keys import key_in
from gatekeeper.core.system import inputs

KEY = "sk-8Xk2Qz71"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["serve", "--api-key", KEY], "--api-key"),
        (["serve", f"--hf-token={KEY}"], "--hf-token"),
        (["env", f"VLLM_API_KEY={KEY}", "serve"], "VLLM_API_KEY"),
        (["serve", "-H", f"Authorization: Bearer {KEY}"], "Authorization"),
        (["serve", "--config", f'{{"api_key": "{KEY}"}}'], "api_key"),
        (["sh", "-c", f"exec serve --api-key {KEY} --port {{port}}"], "--api-key"),
    ],
)
def test_a_key_in_a_command_is_named(words: list[str], name: str) -> None:
    """As an option's next word or value, a variable, a header, a field of JSON, and within a line for a shell."""
    assert name.strip("-") == (key_in(words) or "").strip("-")


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", 'exec serve --api-key "$KEY" -H "Authorization: Bearer ${KEY}" --port {port}'],
        ["serve", "--api-key-file", "/etc/serve/the-key", "--api-key", "{value}", "--api-key", "EMPTY"],
        ["serve", "--override-kv", "tokenizer.ggml.add_bos_token=bool:false", "--eos-token-id", "151645"],
        [
            "serve",
            "--max-tokens",
            "256000",
            "--eos-token",
            "<|im_end|>",
            "--cache-type-k",
            "q8_0",
            "--api-key",
            "--port",
        ],
        ["serve", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'],
    ],
)
def test_other_options_are_no_keys(words: list[str]) -> None:
    """Variables, files of keys, placeholders, numbers of tokens and special tokens are allowed."""
    assert key_in(words) is None


@pytest.mark.parametrize("option", ["command", "args"])
def test_an_slo_with_a_key_in_a_command_is_refused(tmp_path: Path, option: str) -> None:
    """A run directory keeps the file as it is written, so it is refused before a run, without naming the key."""
    path = tmp_path / "slo.toml"
    words = f'["serve", "--port", "{{port}}", "--api-key", "{KEY}"]'
    path.write_text(
        f'schema = 1\nname = "x"\n[subject]\nbackend = "openai"\ntarget = "t"\n{option} = {words}\n'
        '[[workload]]\nname = "json"\ncanaries = "json"\n'
        '[[objective]]\nmetric = "error_rate"\nat_most = 0\nwhy = "none may fail"\n'
    )

    with pytest.raises(InputError, match=f"subject.{option} gives --api-key a key") as refused:
        inputs.read(path)

    assert "api_key_env" in refused.value.hint
    assert KEY not in refused.value.message + refused.value.hint
