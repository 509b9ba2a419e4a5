"""The little vocabulary: how a chat becomes text, and text becomes tokens."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from models.corpus import TOOLS, training_examples

CHAT_TEMPLATE = """\
{%- if tools -%}
{{- '<|im_start|>system\\ntools:' -}}
{%- for tool in tools -%}
{{- '\\n' ~ tool.function.name ~ '(' ~ tool.function.parameters.properties | join(', ') ~ ')' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') -}}
{%- for entry in message.tool_calls or [] -%}
{%- set tool_call = entry.function or entry -%}
{{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' \
~ tool_call.arguments | tojson ~ '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Whole words without their space, so that a word copied from a sentence into JSON stays one and the same token;
# capitals and digits alone, so that a random code cannot be shortened; punctuation together with the spaces around it.
WORDS = r"[A-Z0-9]|[a-z_]+|\n *|(?: ?[^\w\s]+)+(?: (?=\S))?| +"


def build_tokenizer(limit: int, seed: str, examples: int = 4000) -> Any:
    """Build a byte-level BPE of at most *limit* entries for the dialect, the same way each time."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tags = [AddedToken(tag, special=False, normalized=False) for tag in ("<tool_call>", "</tool_call>")]
    source = training_examples(seed, {})
    texts = [f"{example.prompt}\n{example.answer}" for example, _ in zip(source, range(examples), strict=False)]
    frame = "system\ntools:\nuser\nassistant\n" + "\n".join(
        f"{tool['function']['name']}({', '.join(tool['function']['parameters']['properties'])})" for tool in TOOLS
    )
    trainer = trainers.BpeTrainer(
        vocab_size=limit - len(tags),
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, *[frame] * 50], trainer)
    # Not special, as in Qwen's vocabularies: they stay in the decoded text, where a server looks for them.
    tokenizer.add_tokens(tags)
    return tokenizer


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the three files by which transformers knows a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
