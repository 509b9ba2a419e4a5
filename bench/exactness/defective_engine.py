"""Speculative decoding for MLX with a planted defect; it takes the place of mlx-lm's `speculative_generate_step`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

from bench.exactness.defects import ROLLBACKS, TIE, Defect, Kind, hash_of

Step = Callable[..., Iterator[tuple[int, Any, bool]]]
DRAFT_TOKENS = 2
"""mlx-lm's default draft length."""


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
