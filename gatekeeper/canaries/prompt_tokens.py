"""The length of prompts in tokens, by a model's own tokenizer and chat template."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError


def prompt_counter(folder: Path) -> Callable[[Canary], int]:
    """Return a function that counts a canary's prompt as the model in *folder* reads it; nothing is downloaded."""
    if not (folder / "tokenizer_config.json").is_file():
        raise InputError(
            f"{folder} has no tokenizer_config.json", hint="name the folder of a model: --tokenizer FOLDER"
        )
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it would advise to install PyTorch
    try:
        from jinja2 import TemplateError  # noqa: PLC0415 (both come with mlx-lm)
        from transformers import AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"--tokenizer needs the package transformers: {error}", hint="pip install 'gatekeeper-slo[mlx]'"
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: its tokenizer cannot be loaded: {error}", hint="check the folder") from error

    def count(canary: Canary) -> int:
        if tokenizer.chat_template is None:
            return len(tokenizer.encode("\n".join(str(message.get("content") or "") for message in canary.messages)))
        messages = [_as_template_reads(message) for message in canary.messages]
        tools = list(canary.tools) or None
        try:
            text = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        except TemplateError as error:
            raise InputError(f"canary {canary.id}: the chat template refuses it: {error}", hint="remove it") from error
        return len(tokenizer.encode(text, add_special_tokens=False))

    return count


def _as_template_reads(message: dict[str, object]) -> dict[str, object]:
    """Return a message whose calls have their arguments as objects, as chat templates expect them."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    template_calls = []
    for call in calls:
        function = dict(call["function"])
        if isinstance(arguments := function.get("arguments"), str):
            function["arguments"] = json.loads(arguments)
        template_calls.append({**call, "function": function})
    return {**message, "tool_calls": template_calls}
