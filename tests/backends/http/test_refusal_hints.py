"""Why a running server refuses its first request."""

import pytest

from gatekeeper.backends.http.refusal_hints import certain_mistake

LISTED = ("qwen3-8b", "llama-3")


@pytest.mark.parametrize(
    ("fault", "model", "key", "hint"),
    [
        ("HTTP 401: no", None, None, "set api_key_env in [subject]"),
        ("HTTP 403: no", None, "MY_KEY", "refuses the key in MY_KEY"),
        ("HTTP 404: no such model", "qwen3-8B", None, "did you mean 'qwen3-8b'?"),
        ("HTTP 404: no such model", "other", None, "it lists qwen3-8b, llama-3"),
        ("not an event stream: <!doctype html>", None, None, "a web page answers"),
    ],
)
def test_a_wrong_key_model_or_address_is_named(fault: str, model: str | None, key: str | None, hint: str) -> None:
    """What no draft can cause is a mistake of the SLO file, with what to write there."""
    assert hint in certain_mistake(fault, model, LISTED, key)


@pytest.mark.parametrize("fault", ["HTTP 404: generation failed", "HTTP 500: <html>", "not an event stream: {}"])
def test_what_a_draft_may_cause_is_left_to_the_run(fault: str) -> None:
    """A server that lists the model and fails is a result."""
    assert "" == certain_mistake(fault, "llama-3", LISTED, None)


def test_no_name_that_a_server_lists_is_a_line_of_its_own() -> None:
    """Names with line breaks or escape sequences, and names that fill the screen, are not shown."""
    names = ["good", "x\nhint: run this", "\x1b[31mred", "A" * 3000]

    hint = certain_mistake("HTTP 404: none", "llama-3", names, None)

    assert hint.endswith("it lists good")
    assert certain_mistake("HTTP 404: none", "llama-3", names[1:], None).isprintable()
    assert len(certain_mistake("HTTP 404: none", "llama-3", names[1:], None)) < 200
