"""The target, with mlx-lm's model inside."""

from importlib import import_module
from typing import Any

from mlx_lm import load

generation = import_module("mlx_lm.generate")


class Model:
    def __init__(self, folder: str) -> None:
        self.inner = load(folder)[0]

    def set_dtype(self, dtype: Any) -> None:
        self.dtype = dtype

    def greedy(self, prompt: Any, limit: int) -> list[int]:
        """Return the target's own tokens, as many as requested, a stop token or not."""
        steps = generation.generate_step(prompt, self.inner, max_tokens=limit)
        return [int(token) for token, _ in steps]


def load_model(folder: str) -> Model:
    return Model(folder)
