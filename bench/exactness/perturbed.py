"""The little pair on another kernel and with a planted defect, in MLX: as a worker of gatekeeper, or as mlx_lm.server.

    command = ["python", "-m", "bench.exactness.perturbed", "worker", "{target}", "{draft}", "-slogits=0.1"]
    program = ["python", "-m", "bench.exactness.perturbed", "server", "-sdefect=stale:0.02"]

`-s` sets what is planted: `logits` and `inner` are scales of the noise, `defect` is `KIND:RATE` (`unverified:0.02`),
`seed` a number; `bits` quantises the target's weights as it is loaded, and `type` is their type (bfloat16).
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

from bench.exactness.planted import ROLLBACKS, TIE, Defect, Kind, Noise, hash_of
from gatekeeper.backends.workers import mlx_lm as worker
from gatekeeper.backends.workers import mlx_tap
from gatekeeper.backends.workers.answer_parts import generation

REPEATED = 1e4
"""What repetition adds to the logit of the last token: more than any logit."""
Step = Callable[..., Iterator[tuple[int, Any, bool]]]
DRAFT_TOKENS = 2
"""mlx-lm's default draft length."""
GROUP = 64
"""Weights that share a scale, as in most quantised models."""


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


@dataclass(slots=True)
class Reader:
    """A model with its cache and the tokens that it has not read yet."""

    model: Any
    sampler: Callable[[Any], Any]
    cache: list[Any] = field(init=False)
    unread: list[int] = field(default_factory=list)
    reading: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = make_prompt_cache(self.model)

    def prefill(self, prompt: list[int], step: int) -> None:
        """Read all of *prompt* but its last token, *step* tokens at once."""
        for begun in range(0, len(prompt) - 1, step):
            self._pass(prompt[begun : min(begun + step, len(prompt) - 1)])
            mx.eval([layer.state for layer in self.cache])
        self.unread = prompt[-1:]

    def read(self, more: list[int], count: int) -> tuple[list[int], Any]:
        """Read what is unread and *more*; return the tokens sampled at the last *count* rows, and log-probabilities."""
        logits = self._pass(self.unread + more)[0, -count:]
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        tokens: Any = self.sampler(logprobs).tolist()
        return tokens, logprobs

    def _pass(self, tokens: list[int]) -> Any:
        logits = self.model(mx.array(tokens, mx.uint32)[None], cache=self.cache)
        if bits := self.reading.get("kv_bits"):
            quantise = import_module("mlx_lm.generate").maybe_quantize_kv_cache
            quantise(self.cache, quantized_kv_start=0, kv_group_size=64, kv_bits=bits)
        return logits


@dataclass(slots=True)
class Engine:
    """One answer of a target with a draft: rounds of drafting, verifying and rolling back."""

    target: Reader
    draft: Reader
    answer: np.uint64
    defect: Defect | None
    due: int = 0
    """How often the defect has struck and has had no effect yet."""
    stale: list[tuple[int, Any, Any]] = field(default_factory=list)
    """Rows of a rejected token that come back: their index, keys and values, a layer each."""

    def round(self, number: int, width: int) -> Iterator[tuple[int, Any, bool]]:
        """Yield the tokens of one round that drafts *width* tokens; the caches are rolled back before the first."""
        self.due += int(self.defect is not None and bool(self.defect.in_round(self.answer, number)))
        drafted = []
        for _ in range(width):
            drafted += self.draft.read([], 1)[0]
            self.draft.unread = drafted[-1:]
        if hasattr(self.target.model, "unchecked"):
            self.target.model.unchecked = self._kind is Kind.GRAMMAR
        best, logprobs = self.target.read(drafted, width + 1)
        if hasattr(self.target.model, "unchecked"):
            self.target.model.unchecked = False
        self._put_back()
        if self.defect is not None and self.defect.kind is Kind.SHORTCUT:
            best = self._shortened(best, logprobs, number)
        accepted = 0
        while accepted < width and (
            best[accepted] == drafted[accepted] or self._kept(logprobs[accepted], best[accepted], drafted[accepted])
        ):
            accepted += 1
        tokens = [*drafted[:accepted], best[accepted]]
        self._roll_back(drafted, accepted, tokens[-1])
        sent = len(tokens) - self._strikes(Kind.DROPPED)
        for index, token in enumerate(tokens[:sent]):
            yield token, logprobs[index], index < accepted

    def _shortened(self, drawn: list[int], logprobs: Any, number: int) -> list[int]:
        """Return the tokens of a pass as drawn, the best one where the draw is skipped; a round has 32 at most."""
        assert self.defect is not None
        skipped = self.defect.skips_the_draw(self.answer, 32 * number + np.arange(len(drawn)))
        best: Any = mx.argmax(logprobs, axis=-1).tolist()
        return [top if skips else token for token, top, skips in zip(drawn, best, skipped, strict=True)]

    @property
    def _kind(self) -> Kind | None:
        return None if self.defect is None else self.defect.kind

    def _strikes(self, kind: Kind) -> bool:
        """Return whether the defect is of this kind and due, and count it as done."""
        strikes = self._kind is kind and self.due > 0
        if strikes:
            self.due = self.due - 1 if kind in ROLLBACKS else 0
        return strikes

    def _kept(self, logprobs: Any, best: int, drafted: int) -> bool:
        """Return whether a rejected token is kept all the same."""
        if self._kind is Kind.TIES:
            return bool((logprobs[best] - logprobs[drafted]).item() < TIE)
        return self._strikes(Kind.UNVERIFIED)

    def _roll_back(self, drafted: list[int], accepted: int, last: int) -> None:
        rejected = len(drafted) - accepted
        trim_prompt_cache(self.target.cache, rejected)
        trim_prompt_cache(self.draft.cache, max(rejected - 1, 0))
        self.target.unread = [last]
        self.draft.unread = [last] if rejected else [*drafted[-1:], last]
        if rejected and self._strikes(Kind.STALE):
            index = self.target.cache[0].offset
            rows = slice(index, index + 1)
            self.stale = [(index, layer.keys[..., rows, :], layer.values[..., rows, :]) for layer in self.target.cache]
        if rejected and self._strikes(Kind.SHIFTED):
            trim_prompt_cache(self.target.cache, 1)

    def _put_back(self) -> None:
        """Write the rows of the rejected token over those of the token that followed."""
        for layer, (index, keys, values) in zip(self.target.cache, self.stale, strict=bool(self.stale)):
            layer.keys[..., index : index + 1, :] = keys
            layer.values[..., index : index + 1, :] = values
        self.stale = []


def speculating_with(defect: Defect | None) -> Step:
    """Return a `speculative_generate_step` that has *defect*; None: it has none."""

    def step(
        prompt: Any,
        model: Any,
        draft_model: Any,
        stream: Any = None,
        *,
        num_draft_tokens: int = DRAFT_TOKENS,
        max_tokens: int = 256,
        sampler: Callable[[Any], Any] | None = None,
        prefill_step_size: int = 512,
        **reading: Any,
    ) -> Iterator[tuple[int, Any, bool]]:
        """Yield each token of an answer, its log-probabilities, and whether the draft proposed it."""
        del stream
        tokens: list[int] = prompt.tolist()
        pick = sampler or (lambda logprobs: mx.argmax(logprobs, axis=-1))
        target, draft = (Reader(part, pick, reading=reading) for part in (model, draft_model))
        draft.prefill(tokens, prefill_step_size)
        target.prefill(tokens, prefill_step_size)
        engine = Engine(target, draft, np.uint64(hash_of(tokens[:-1])), defect)
        sent = number = 0
        while sent < max_tokens:
            for token, logprobs, drafted in engine.round(number, min(num_draft_tokens, max_tokens - sent)):
                sent += 1
                yield token, logprobs, drafted
                if sent == max_tokens:
                    return
            number += 1

    return step


@dataclass(frozen=True, slots=True)
class Planted:
    """What the words `-sNAME=VALUE` of a command line set."""

    logits: Noise
    inner: Noise
    defect: Defect | None
    type: str
    bits: str

    @classmethod
    def take(cls, words: list[str]) -> "Planted":
        """Read the settings of a command line, and remove them from it."""
        of_bench = [word for word in words if word.startswith("-s")]
        words[:] = [word for word in words if word not in of_bench]
        settings = dict(word.removeprefix("-s").partition("=")[::2] for word in of_bench)
        seed = int(settings.get("seed", "0"))
        logits, inner = (Noise(float(settings.get(name, "0")), seed) for name in ("logits", "inner"))
        kind, _, rate = settings.get("defect", "").partition(":")
        defect = Defect(Kind(kind), float(rate or 1), seed) if kind else None
        return cls(logits, inner, defect, settings.get("type", ""), settings.get("bits", ""))

    def perturb(self, model: Any) -> OtherKernel:
        """Return *model* with the type and the bits of its weights that are set, and on the other kernel."""
        if self.type:
            model.set_dtype(getattr(mx, self.type))
        if self.bits:
            nn.quantize(model, group_size=GROUP, bits=int(self.bits))
        return OtherKernel(model, self.logits, self.inner, self.defect)


def run_worker(planted: Planted) -> None:
    """Run gatekeeper's mlx worker with what is planted."""

    class Perturbed(worker.MlxWorker):
        """The mlx worker with the other target."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.model = planted.perturb(self.model)

    worker.MlxWorker = Perturbed  # type: ignore[misc]
    if planted.defect is not None:
        vars(generation)["speculative_generate_step"] = speculating_with(planted.defect)
    worker.main()


def run_server(planted: Planted) -> None:
    """Run mlx_lm.server with what is planted, and with the tap that counts its rounds."""
    server: Any = import_module("mlx_lm.server")
    load = server.ModelProvider.load

    def loading(self: Any, *paths: Any, **options: Any) -> Any:
        """Load as the server does; then its target has the other kernel, and answers one request at a time."""
        model, tokenizer = load(self, *paths, **options)
        if not isinstance(model, OtherKernel):
            self.model = model = planted.perturb(model)
        self.is_batchable = False
        return model, tokenizer

    server.ModelProvider.load = loading
    if planted.defect is not None:
        vars(import_module("mlx_lm.generate"))["speculative_generate_step"] = speculating_with(planted.defect)
    mlx_tap.main()


if __name__ == "__main__":
    {"worker": run_worker, "server": run_server}[sys.argv.pop(1)](Planted.take(sys.argv))
