"""A target of MLX whose passes of several tokens take another kernel than those of one."""

from typing import Any

import mlx.core as mx
import numpy as np

from bench.exactness.defects import Defect, hash_of
from bench.exactness.noise import Noise

REPEATED = 1e4
"""What repetition adds to the logit of the last token: more than any logit."""


class OtherKernel:
    """A target with noise in its logits, or behind one of its layers; everything else is the target's own."""

    def __init__(self, target: Any, logits: Noise, inner: Noise, defect: Defect | None = None) -> None:
        self._target, self._logits, self._inner, self._defect = target, logits, inner, defect
        self.answer, self._prompt_tokens = np.uint64(0), 0
        self.unchecked = False
        """The grammar is not applied: the engine verifies without it."""
        self.rows: tuple[int, Any, Any] = (1, np.zeros(1, np.int64), np.zeros(1, np.int64))
        """Of the pass that is under way: its width, positions and tokens."""
        if inner.scale:
            layer = target.layers[len(target.layers) // 2 - 1]
            layer.mlp.down_proj = NoisyLayer(layer.mlp.down_proj, inner, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __call__(self, inputs: Any, cache: Any = None, **more: Any) -> Any:
        """Return the logits of one pass, [1, rows, words]."""
        width, first = inputs.shape[1], 0 if cache is None else cache[0].offset
        if width < 2 and (self._defect is None or self.unchecked):
            self.rows = (1, self.rows[1], self.rows[2])
            return self._target(inputs, cache=cache, **more)
        tokens = np.array(inputs[0]).astype(np.int64)
        positions = first + np.arange(width)
        self.rows = (width, positions, tokens)
        if first == 0:
            # A prompt longer than a step of reading has a shorter first pass: the little prompts are shorter.
            self.answer, self._prompt_tokens = np.uint64(hash_of(tokens.tolist())), width
        logits = self._target(inputs, cache=cache, **more)
        if self._logits.scale and width > 1:
            noise = self._logits.rows(width, positions, tokens, self.answer, logits.shape[-1])
            logits = logits + mx.array(noise)[None].astype(logits.dtype)
        return logits if self._defect is None else self._defective(logits, self._defect)

    def _defective(self, logits: Any, defect: Defect) -> Any:
        """Apply the grammar, or repeat tokens."""
        width, positions, tokens = self.rows
        words = mx.arange(logits.shape[-1])
        if not self.unchecked and (forbidden := defect.forbids(self.answer, positions, tokens)).any():
            best = mx.argmax(logits[0], axis=-1)[:, None] == words[None]
            logits = mx.where((mx.array(forbidden)[:, None] & best)[None], -mx.inf, logits)
        if width > 1 and (repeated := defect.repeats(self.answer, positions - self._prompt_tokens)).any():
            last = mx.array(tokens)[:, None] == words[None]
            logits = logits + (mx.array(repeated)[:, None] & last)[None].astype(logits.dtype) * REPEATED
        return logits


class NoisyLayer:
    """A linear layer whose output depends on how many rows are read at once."""

    def __init__(self, layer: Any, noise: Noise, target: OtherKernel) -> None:
        self._layer, self._noise, self._target = layer, noise, target

    def __call__(self, rows: Any) -> Any:
        """Return the output for *rows*, [1, rows, values]."""
        output = self._layer(rows)
        width, positions, tokens = self._target.rows
        if width < 2:
            return output
        noise = mx.array(self._noise.rows(width, positions, tokens, self._target.answer, output.shape[-1]))[None]
        size = mx.sqrt(mx.mean(mx.square(output.astype(mx.float32)), axis=-1, keepdims=True))
        return output + (noise * size).astype(output.dtype)
