"""The pass timer: how long mlx-lm's target takes for a token of plain decoding, a pass of each width, and a round.

The passes compute what `mlx_lm.generate.speculative_generate_step` computes of them: log-probabilities and samples at
every position. The tokens are consecutive ones of a prompt, since a mixture of experts loads more of them for more
different tokens.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

from gatekeeper.backends.workers.answer_parts import generation

PLAIN_TOKENS = 8
"""Tokens of plain decoding that are timed at once, twice a turn: mlx-lm computes the next one while it yields one."""
STEP = 512
"""Tokens of the beginning that are read at once."""


class PassTimer:
    """A loaded target, with or without a draft, after a beginning that its cache holds."""

    def __init__(
        self, model: Any, draft: Any, reading: dict[str, int], text: Sequence[int], context: int, beat: memoryview
    ) -> None:
        """Read the first *context* tokens of *text*, which is repeated where it is shorter."""
        self._model, self._draft, self._reading, self._beat = model, draft, reading, beat
        self.key = (tuple(text), context)
        self._text = [text[index % len(text)] for index in range(2 * context + 64)]
        self._next = context
        self._cache = self._read_beginning(model, context)
        self._draft_cache = None if draft is None else self._read_beginning(draft, context)

    def turn(self, widths: Sequence[int], *, drafting: bool) -> dict[str, Any]:
        """Time plain decoding, a pass of each of *widths*, the round of each if *drafting*, and plain decoding again.

        Each time is in seconds and comes with its width, or with its number of drafted tokens.
        """
        before = self._plain()
        passes = [(width, self._timed(partial(self._pass, width))) for width in widths]
        lengths = [width - 1 for width in widths if width > 1] if drafting else []
        rounds = [(length, self._timed(partial(self._round, length))) for length in lengths]
        return {"plain": (before + self._plain()) / 2, "passes": passes, "rounds": rounds}

    def _read_beginning(self, model: Any, context: int) -> list[Any]:
        cache: list[Any] = make_prompt_cache(model)
        if not can_trim_prompt_cache(cache):
            raise ValueError("the cache of this model cannot be rolled back, so mlx-lm cannot draft for it")
        most = self._reading.get("prefill_step_size", STEP)
        for begun in range(0, context, most):
            model(mx.array(self._text[begun : min(begun + most, context)])[None], cache=cache)
            self._quantise(cache)
            self._settle(cache)
        return cache

    def _timed(self, run: Callable[[], None]) -> float:
        begun = time.perf_counter_ns()
        with mx.stream(generation.generation_stream):
            run()
        seconds = (time.perf_counter_ns() - begun) / 1e9
        self._settle(self._cache)
        return seconds

    def _plain(self) -> float:
        """Return the seconds that plain decoding takes for a token."""
        options = {name: value for name, value in self._reading.items() if name != "prefill_step_size"}
        steps = generation.generate_step(
            mx.array(self._tokens(1)), self._model, max_tokens=2 * PLAIN_TOKENS, prompt_cache=self._cache, **options
        )
        next(steps)
        begun = time.perf_counter_ns()
        for _ in range(PLAIN_TOKENS):
            next(steps)
        seconds = (time.perf_counter_ns() - begun) / 1e9 / PLAIN_TOKENS
        steps.close()
        self._settle(self._cache)
        # It has read the token before the first that it yielded, each yielded one, and is one ahead.
        trim_prompt_cache(self._cache, PLAIN_TOKENS + 2)
        return seconds

    def _pass(self, width: int) -> None:
        tokens = self._sampled(self._model, self._cache, mx.array(self._tokens(width)))
        mx.eval(tokens)
        tokens.tolist()
        trim_prompt_cache(self._cache, width)

    def _round(self, length: int) -> None:
        last = mx.array(self._tokens(1))
        drafted, token = [], last
        for _ in range(length):
            token = self._sampled(self._draft, self._draft_cache, token)
            mx.async_eval(token)  # type: ignore[no-untyped-call]
            drafted.append(token)
        proposal = mx.concatenate(drafted)
        tokens = self._sampled(self._model, self._cache, mx.concatenate([last, proposal]))
        mx.eval(tokens, proposal)
        proposal.tolist(), tokens.tolist()
        trim_prompt_cache(self._cache, length + 1)
        trim_prompt_cache(self._draft_cache, length)

    def _sampled(self, model: Any, cache: Any, tokens: Any) -> Any:
        """Return the greedy token after each of *tokens*, as mlx-lm samples it."""
        logits = model(tokens[None], cache=cache)[0]
        self._quantise(cache)
        return mx.argmax(logits - mx.logsumexp(logits, axis=-1, keepdims=True), axis=-1)

    def _tokens(self, count: int) -> list[int]:
        """Return the next *count* tokens of the text after the beginning."""
        if self._next + count > len(self._text):
            self._next = len(self._text) // 2
        tokens = self._text[self._next : self._next + count]
        self._next += count
        return tokens

    def _settle(self, cache: list[Any]) -> None:
        """Wait until nothing that was begun is still being computed."""
        mx.eval([layer.state for layer in cache])
        self._beat[0] += 1

    def _quantise(self, cache: Any) -> None:
        if bits := self._reading.get("kv_bits"):
            generation.maybe_quantize_kv_cache(cache, quantized_kv_start=0, kv_group_size=64, kv_bits=bits)
