"""Reading the beginning of an answer as a part of the prompt, where a server's chat API can be brought to do it.

A beginning that is sent as text is split into tokens again. So it counts only where the server reads as many tokens as
the answer had: otherwise the next token follows something else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatekeeper.backends.http.scores import Ask, Beginning, choice_of, lead_in, places_of, with_scores
from gatekeeper.core.parse import json_object

Lead = tuple[float | None, str | None]
CHAT = "/v1/chat/completions"
UNREAD: Lead = (None, None)
_TEMPLATE_BYTES = 1 << 20
_VARIABLE = "beginning_of_the_answer"
"""Of a chat template, for the beginning."""


def by_final_message(ask: Ask, beginning: Beginning) -> Lead:
    """Let the answer continue a last message that holds the beginning, as vLLM and SGLang do."""
    text, fields = _text_of(beginning), beginning.fields
    if text is None:
        return UNREAD
    messages = [*fields["messages"], {"role": "assistant", "content": text}]
    continues = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    return _next_token(ask, {**fields, **continues}, beginning)


def by_template(ask: Ask, beginning: Beginning) -> Lead:
    """Send the target's own chat template, which then writes the beginning, as mlx_lm.server takes one."""
    text, template = _text_of(beginning), chat_template(beginning.folder)
    if text is None or template is None:
        return UNREAD
    # A template ends without its last line break; what follows would keep it.
    continued = template.removesuffix("\n") + f"{{{{ {_VARIABLE} }}}}"
    options = {**(beginning.fields.get("chat_template_kwargs") or {}), "chat_template": continued, _VARIABLE: text}
    return _next_token(ask, {**beginning.fields, "chat_template_kwargs": options}, beginning)


def _text_of(beginning: Beginning) -> str | None:
    """Return the text of a beginning; None where it is unknown, or ends within a character."""
    spelled = beginning.answer.spelled
    text = "".join(spelled)
    return text if text and spelled[-1] and "\ufffd" not in text else None


def _next_token(ask: Ask, fields: Mapping[str, Any], beginning: Beginning) -> Lead:
    document, answer = ask(CHAT, {**with_scores(fields), "max_tokens": 1}), beginning.answer
    usage = document.get("usage") if isinstance(document, Mapping) else None
    read = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    if answer.prompt_tokens is None or read != answer.prompt_tokens + len(answer.tokens):
        return UNREAD
    return lead_in(places_of(choice_of(document)))


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
