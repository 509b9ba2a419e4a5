"""The little models in numpy: many answers at once, a row of each pass for every answer that goes on.

mlx-lm decodes one answer at a time, some hundred tokens a second; the table needs millions. A test holds that both
write the same tokens, with the same noise and the same defects.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.exactness.noise import Noise, Numbers

Floats = NDArray[np.float32]
SILENT = Noise(0.0)
MASKED = np.float32(-1e30)


def weights_of(folder: Path) -> dict[str, Floats]:
    """Return the float32 tensors of a model folder."""
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: its matrices as they are multiplied from the right."""

    into: Floats
    """Queries, keys and values side by side."""
    out: Floats
    gate_up: Floats
    down: Floats
    norms: tuple[Floats, Floats, Floats, Floats]
    """Before the attention, before the feed-forward part, of queries, of keys."""
    noisy: bool
    """The layer behind which inner noise enters."""


@dataclass(slots=True)
class Cache:
    """Keys and values, [layer, answer, head, position, value]."""

    keys: Floats
    values: Floats

    def take(self, rows: NDArray[np.int64]) -> "Cache":
        """Return the cache of some answers."""
        return Cache(self.keys[:, rows], self.values[:, rows])


class LittleModel:
    """A Qwen3 model of the little family."""

    def __init__(self, folder: Path) -> None:
        shape, tensors = json.loads((folder / "config.json").read_text()), weights_of(folder)
        self.heads, self.shared = shape["num_attention_heads"], shape["num_key_value_heads"]
        self.size, self.epsilon = shape["head_dim"], np.float32(shape["rms_norm_eps"])
        self.embedding, self.norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
        self.head = np.ascontiguousarray(self.embedding.T)
        count = shape["num_hidden_layers"]
        layers = [self._layer(tensors, f"model.layers.{number}.", number == count // 2 - 1) for number in range(count)]
        # Half of the target's layers add only cost: their output matrices are zero.
        self.layers = [layer for layer in layers if layer.out.any() or layer.down.any()]
        frequencies = 1.0 / shape["rope_theta"] ** (np.arange(0, self.size, 2) / self.size)
        angles = np.outer(np.arange(512), frequencies)
        self.cosines, self.sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    @staticmethod
    def _layer(tensors: dict[str, Floats], prefix: str, noisy: bool) -> Layer:
        def matrix(*names: str) -> Floats:
            return np.ascontiguousarray(np.concatenate([tensors[f"{prefix}{name}.weight"] for name in names]).T)

        norms = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
        before, after, queries, keys = (tensors[f"{prefix}{name}.weight"] for name in norms)
        return Layer(
            matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            matrix("self_attn.o_proj"),
            matrix("mlp.gate_proj", "mlp.up_proj"),
            matrix("mlp.down_proj"),
            (before, after, queries, keys),
            noisy,
        )

    def cache(self, answers: int, length: int) -> Cache:
        """Return an empty cache."""
        shape = (len(self.layers), answers, self.shared, length, self.size)
        return Cache(np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    def read(
        self,
        cache: Cache,
        tokens: Numbers,
        first: Numbers,
        widths: Numbers,
        kernel: tuple[Noise, NDArray[np.uint64]] | None = None,
    ) -> Floats:
        """Return the last hidden state at each row of one pass, [answer, row, value].

        *tokens* are [answer, row], *first* is the position of each answer's first row, *widths* how many rows are its
        own: those behind are read and count for nothing. *kernel* is the noise behind a layer, and the answers' hashes.
        What is in the cache behind a row is not seen.
        """
        answers, rows = tokens.shape
        positions = np.minimum(first[:, None] + np.arange(rows), cache.keys.shape[3] - 1)
        until = int(positions.max()) + 1
        hidden = np.arange(until)[None, None] > positions[:, :, None]  # [answer, row, position]
        turned = self.cosines[positions][:, None], self.sines[positions][:, None]
        states: Floats = self.embedding[tokens].reshape(answers * rows, -1)
        index = np.arange(answers)[:, None]
        for number, layer in enumerate(self.layers):
            projected = (self._normed(states, layer.norms[0]) @ layer.into).reshape(answers, rows, -1, self.size)
            parts = projected.transpose(0, 2, 1, 3)  # [answer, head, row, value]
            queries = self._turned(self._normed(parts[:, : self.heads], layer.norms[2]), *turned)
            keys = self._turned(self._normed(parts[:, self.heads : -self.shared], layer.norms[3]), *turned)
            cache.keys[number, index, :, positions] = keys.transpose(0, 2, 1, 3)
            cache.values[number, index, :, positions] = projected[:, :, -self.shared :]
            attended = self._attended(queries, cache, number, until, hidden)
            states = states + attended.reshape(answers * rows, -1) @ layer.out
            gate, up = np.split(self._normed(states, layer.norms[1]) @ layer.gate_up, 2, axis=-1)
            output = (gate / (1 + np.exp(-gate)) * up) @ layer.down
            if layer.noisy and kernel is not None and kernel[0].scale:
                size = np.sqrt(np.mean(np.square(output), axis=-1, keepdims=True))
                places = first[:, None] + np.arange(rows)
                noise = kernel[0].rows(widths[:, None], places, tokens, kernel[1][:, None], output.shape[-1])
                output = output + noise.reshape(output.shape) * size
            states = states + output
        return self._normed(states, self.norm).reshape(answers, rows, -1)

    def _attended(self, queries: Floats, cache: Cache, number: int, until: int, hidden: NDArray[np.bool_]) -> Floats:
        """Return what each row attends to, [answer, row, heads x value]."""
        keys, values = cache.keys[number, :, :, :until], cache.values[number, :, :, :until]
        answers, heads, rows, size = queries.shape
        grouped = queries.reshape(answers, self.shared, heads // self.shared * rows, size) * np.float32(size**-0.5)
        scores = (grouped @ keys.transpose(0, 1, 3, 2)).reshape(answers, heads, rows, until)
        np.copyto(scores, MASKED, where=hidden[:, None])
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        read = scores.reshape(answers, self.shared, -1, until) @ values
        by_row: Floats = np.ascontiguousarray(
            read.reshape(answers, heads, rows, size).transpose(0, 2, 1, 3), np.float32
        )
        return by_row.reshape(answers, rows, -1)

    def _normed(self, states: Floats, weight: Floats) -> Floats:
        mean = np.mean(np.square(states), axis=-1, keepdims=True)
        normed: Floats = states / np.sqrt(mean + self.epsilon) * weight
        return normed

    @staticmethod
    def _turned(heads: Floats, cosines: Floats, sines: Floats) -> Floats:
        """Return *heads* turned by their positions (rotary embedding, halves apart)."""
        left, right = np.split(heads, 2, axis=-1)
        return np.concatenate([left * cosines - right * sines, left * sines + right * cosines], axis=-1)

    def logits(self, states: Floats) -> Floats:
        """Return the logits of hidden states."""
        result: Floats = states @ self.head
        return result
