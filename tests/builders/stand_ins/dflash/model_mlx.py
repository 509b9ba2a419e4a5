"""dflash.model_mlx as version 0.1.0 offers it, quirks included; the target's own tokens stand for the draft's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

generation = import_module("mlx_lm.generate")


def snapshot_download(name: str, **_: Any) -> str:
    """The hub takes no folder for a repository's name."""
    raise ValueError(f"not a repository: {name}")


def load_draft(name: str) -> Any:
    folder = Path(snapshot_download(name, allow_patterns=["*.safetensors", "*.json"]))
    config = json.loads((folder / "config.json").read_text())
    return SimpleNamespace(config=SimpleNamespace(block_size=config.get("block_size", 4)))


class Hook:
    """Wraps a layer of the target to read its states, and stays until it is removed."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __call__(self, *words: Any, **more: Any) -> Any:
        return self._layer(*words, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def _get_layers(model: Any) -> Any:
    return model.model.layers


def _patch_model(model: Any) -> None:
    if hasattr(model, "_hidden_states"):
        return
    model._hidden_states = [None]
    layers = _get_layers(model)
    layers[1] = Hook(layers[1])


@dataclass
class GenerationResponse:
    text: str
    tokens: list[int]
    accepted: int | None
    finish_reason: str | None = None


def stream_generate(
    model: Any,
    draft: Any,
    tokenizer: Any,
    prompt: Any,
    block_size: int | None = None,
    max_tokens: int = 256,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
) -> Iterator[GenerationResponse]:
    """Yield the prefill's token, then a round at a time: round n accepts n modulo the block's length drafted tokens."""
    del temperature, top_p, top_k
    _patch_model(model)
    block_size = block_size if block_size is not None else draft.config.block_size
    target_steps = generation.generate_step(mx.array(prompt), model, max_tokens=max_tokens)
    tokens: list[int] = []
    for token, _ in target_steps:
        tokens.append(int(token))
        if tokens[-1] in tokenizer.eos_token_ids:
            break
    stopped = tokens[-1] in tokenizer.eos_token_ids
    if stopped and len(tokens) == 1:
        yield GenerationResponse("", tokens, None, "stop")
        return
    yield GenerationResponse("", tokens[:1], None)
    sent = 1
    for number in count(1):
        size = min(block_size, max_tokens - sent + 1)
        if sent >= max_tokens or size <= 1:
            break
        fresh = tokens[sent : sent + number % size + 1]
        sent += len(fresh)
        yield GenerationResponse("", fresh, len(fresh), "stop" if stopped and sent == len(tokens) else None)
        if stopped and sent == len(tokens):
            return
    yield GenerationResponse("", [], None, "length")
