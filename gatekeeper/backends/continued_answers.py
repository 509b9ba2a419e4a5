"""Reading the beginning of an answer as a part of the prompt, where a server's chat API can be brought to do it.

A beginning that is sent as text is split into tokens again. So it counts only where the server reads as many tokens as
the answer had: otherwise the next token follows something else.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gatekeeper.backends.http.scores import Ask, Beginning
from gatekeeper.core.parse import json_object
from gatekeeper.core.records import Scored

ReadScored = Callable[[Ask, Mapping[str, Any]], Scored | None]
"""Requests an answer with log-probabilities, as a dialect's `scored` does."""
_TEMPLATE_BYTES = 1 << 20
_VARIABLE = "beginning_of_the_answer"
"""Of a chat template, for the beginning."""


def by_final_message(read: ReadScored, ask: Ask, beginning: Beginning, tokens: int) -> Scored | None:
    """Let the answer continue a last message that holds the beginning, as vLLM and SGLang do."""
    text, fields = _text_of(beginning), beginning.fields
    if text is None:
        return None
    messages = [*fields["messages"], {"role": "assistant", "content": text}]
    continues = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    return _if_read_alike(read(ask, {**fields, **continues, "max_tokens": tokens}), beginning)


def by_template(read: ReadScored, ask: Ask, beginning: Beginning, tokens: int) -> Scored | None:
    """Send the target's own chat template, which then writes the beginning, as mlx_lm.server takes one."""
    text, template = _text_of(beginning), chat_template(beginning.folder)
    if text is None or template is None:
        return None
    # A template ends without its last line break; what follows would keep it.
    continued = template.removesuffix("\n") + f"{{{{ {_VARIABLE} }}}}"
    options = {**(beginning.fields.get("chat_template_kwargs") or {}), "chat_template": continued, _VARIABLE: text}
    return _if_read_alike(
        read(ask, {**beginning.fields, "chat_template_kwargs": options, "max_tokens": tokens}), beginning
    )


def _text_of(beginning: Beginning) -> str | None:
    """Return the text of a beginning; None where it is unknown, or ends within a character."""
    spelled = beginning.answer.spelled
    text = "".join(spelled)
    return text if text and spelled[-1] and "\ufffd" not in text else None


def _if_read_alike(continued: Scored | None, beginning: Beginning) -> Scored | None:
    """Return what follows the beginning; None where the server read another number of tokens."""
    before, read = beginning.answer.prompt_tokens, None if continued is None else continued.prompt_tokens
    return continued if before is not None and read == before + len(beginning.answer.tokens) else None


def chat_template(folder: Path | None) -> str | None:
    """Return the chat template of a model's folder; None where it has none, or several."""
    for name in ("chat_template.jinja", "tokenizer_config.json") if folder is not None and folder.is_dir() else ():
        path = Path(folder or "") / name
        try:
            if not path.is_file() or path.stat().st_size > _TEMPLATE_BYTES:
                continue
            text = path.read_text(encoding="utf-8")
            template = text if path.suffix == ".jinja" else json_object(text).get("chat_template")
        except (OSError, ValueError):
            return None
        if template is not None:
            return template if isinstance(template, str) else None
    return None
