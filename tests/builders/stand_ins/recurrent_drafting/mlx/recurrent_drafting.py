"""The model that drafts: whole token arrays, one a verify step."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import mlx.core as mx


@dataclass
class SamplingArgs:
    temperature: float
    greedy: bool


@dataclass
class SpecialTokens:
    pad: int
    eos: int | None = 1


class ReDrafterModel:
    def __init__(self, llm: Any, drafter: Any) -> None:
        self.llm, self.drafter = llm, drafter

    def generate(
        self, input_ids: Any, max_length: int, beam_shape: Any, sampling_args: SamplingArgs, special_tokens: Any
    ) -> Iterator[Any]:
        """Step n accepts n modulo the beam's length drafted tokens; what follows a stop token is not cut off."""
        assert beam_shape.length > 1
        assert sampling_args.greedy
        prompt = input_ids[0].tolist()
        target_tokens = self.llm.greedy(input_ids[0], max_length - len(prompt) + beam_shape.length)
        sent = 1
        for number in count(1):
            sent += number % beam_shape.length + 1
            yield mx.array([(prompt + target_tokens[:sent])[:max_length]])
            if special_tokens.eos in target_tokens[:sent] or len(prompt) + sent >= max_length:
                return
