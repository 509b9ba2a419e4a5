"""The target reader: mlx-lm's target reads an answer again, round by round, at two widths, or in one pass.

A sampled token is scored by the target's own sampling distribution, in a pass that verified it.

Nothing here is timed. Every pass computes what mlx-lm computes of it: the same steps for the prompt, log-probabilities
in the precision of the model, and of equal ones the first.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p

from gatekeeper.backends.workers.answer_parts import generation

PLAIN_STEP, SPECULATIVE_STEP = 2048, 512
"""Tokens of a prompt that mlx-lm reads at once, in plain and in speculative decoding."""
REPLAY_KEYS = ("temperature", "top_p", "min_p", "top_k")
NOT_BEST = 4e-5
"""Above what the reader of the rows takes for the same log-probability."""


class TargetReader:
    """A loaded target that reads given tokens after a prompt."""

    def __init__(self, model: Any, reading: Mapping[str, int], beat: memoryview) -> None:
        self._model, self._reading, self._beat = model, reading, beat

    def gap(self, prompt: list[int]) -> float | None:
        """Return how far the best logit lies above the second after *prompt*."""
        _, logprobs = next(generation.generate_step(mx.array(prompt), self._model, max_tokens=1))
        top: Any = mx.sort(logprobs.astype(mx.float32).flatten())[-2:].tolist()
        return _finite_or_none(top[1] - top[0])

    def find_partings(self, prompt: list[int], tokens: Sequence[int], width: int) -> list[list[Any]]:
        """Return where the greedy token is another than in *tokens*: the position, that token and its lead.

        *width* positions are read at once.
        """
        parted: list[list[Any]] = []
        for position, logits, expected in self._passes(prompt, tokens, _even_rounds(len(tokens), width), PLAIN_STEP):
            parted += _partings(position, _logprobs(logits), expected)
        return parted

    def replay(self, request: Mapping[str, Any], prompt: list[int], rounds: list[list[int]]) -> dict[str, Any]:
        """Read an answer in the *rounds* that verified it; return its partings, its likelihood, and its scores.

        Rounds are those of `core.interfaces.RoundPasses`. With `twice` in *request* all is read again and compared.
        """
        tokens = request["replay"]
        first = self._read_rounds(request, prompt, tokens, rounds)
        steady = self._read_rounds(request, prompt, tokens, rounds) == first if request.get("twice") else None
        parted, nll, scores, _ = first
        return {"parted": parted, "steady": steady, "nll": nll, "scores": scores}

    def _read_rounds(
        self, request: Mapping[str, Any], prompt: list[int], tokens: Sequence[int], rounds: list[list[int]]
    ) -> tuple[list[list[Any]], float, list[list[float | None]], list[int]]:
        """Return partings, negative log-likelihood and scores; and the sum of the bits of each pass's logits."""
        parted: list[list[Any]] = []
        scores: list[list[float | None]] = []
        bits: list[int] = []
        nll = 0.0
        sampled = request["temperature"] > 0
        for position, logits, emitted in self._passes(prompt, tokens, rounds, SPECULATIVE_STEP):
            logprobs = _logprobs(logits)
            if sampled:
                scores += score_rows(logprobs, emitted, *(request[key] for key in REPLAY_KEYS))
            else:
                parted += _partings(position, logprobs, emitted)
            nll += _nll(logits, emitted)
            bits.append(_bits(logits))
        return parted, nll, scores, bits

    def widths(self, prompt: list[int], tokens: Sequence[int], width: int) -> dict[str, Any]:
        """Read *tokens* one by one and *width* at once; return what the lead of the best token is in both."""
        pairs: list[list[int]] = []
        gaps: list[float | None] = []
        nll, unit = 0.0, 0.0
        for _, logits, emitted in self._passes(prompt, tokens, _even_rounds(len(tokens), 1), PLAIN_STEP):
            precise = _logprobs(logits)[0].astype(mx.float32)
            order = mx.argpartition(-precise, 2)[:2]
            pair: Any = order[mx.argsort(-precise[order])].tolist()
            best: Any = precise[mx.array(pair)].tolist()
            pairs.append(pair)
            gaps.append(_finite_or_none(best[0] - best[1]))
            nll += _nll(logits, emitted)
            unit = max(unit, _unit(logits))
        wide_gaps: list[float | None] = []
        for position, logits, emitted in self._passes(prompt, tokens, _even_rounds(len(tokens), width), PLAIN_STEP):
            logprobs, ids = _logprobs(logits), pairs[position : position + len(emitted)]
            chosen: Any = mx.take_along_axis(logprobs.astype(mx.float32), mx.array(ids), axis=-1).tolist()
            winners: Any = mx.argmax(logprobs, axis=-1).tolist()
            for winner, pair, (first, second) in zip(winners, ids, chosen, strict=True):
                wide_gaps.append(_finite_or_none(first - second) if winner in pair else None)
        return {"gaps": gaps, "wide_gaps": wide_gaps, "unit": unit, "nll": nll}

    def _passes(
        self, prompt: list[int], tokens: Sequence[int], rounds: Sequence[Sequence[int]], step: int
    ) -> Iterator[tuple[int, Any, list[int]]]:
        """Yield the position of each pass, the logits of its emitted tokens [emitted, vocabulary], and those tokens."""
        cache = make_prompt_cache(self._model)
        self._read_prompt(prompt[:-1], cache, step)
        last, position = prompt[-1], 0
        for emits, *rejected in rounds:
            emitted = list(tokens[position : position + emits])
            read = mx.array([last, *emitted[:-1], *rejected])
            logits = self._model(read[None], cache=cache)[0]
            self._quantise(cache)
            mx.eval(logits)
            yield position, logits[:emits], emitted
            trim_prompt_cache(cache, len(rejected))
            last, position = emitted[-1], position + emits
            self._beat[0] += 1

    def _read_prompt(self, tokens: list[int], cache: list[Any], step: int) -> None:
        """Let the target read *tokens* into *cache*, in the steps that mlx-lm takes for a prompt."""
        most = self._reading.get("prefill_step_size", step)
        for begun in range(0, len(tokens), most):
            self._model(mx.array(tokens[begun : begun + most])[None], cache=cache)
            self._quantise(cache)
            mx.eval([layer.state for layer in cache])
            self._beat[0] += 1

    def _quantise(self, cache: list[Any]) -> None:
        """Quantise the cache as both arms do, where kv_bits is set."""
        if bits := self._reading.get("kv_bits"):
            generation.maybe_quantize_kv_cache(cache, quantized_kv_start=0, kv_group_size=64, kv_bits=bits)


def score_rows(
    logprobs: Any, tokens: list[int], temperature: float, top_p: float | None, min_p: float | None, top_k: int | None
) -> list[list[float | None]]:
    """Return a row a token of a pass: log p(token), log p(best), log sum p^2 and log sum p^(1/2).

    p is the distribution that mlx-lm samples from: its filters in its order, then the temperature. None in the first
    place is a token to which it gives no probability. Logits of half precision tie often: only the token that greedy
    decoding takes may equal the best, or the ratio of a greedy shortcut would have a mean above 1 at each tie. Any
    other one has its best raised by a hair.
    """
    filtered = logprobs
    if top_p and 0 < top_p < 1:
        filtered = apply_top_p(filtered, top_p)
    if min_p:
        filtered = apply_min_p(filtered, min_p, 1)
    if top_k:
        filtered = apply_top_k(filtered, top_k)
    scaled = filtered.astype(mx.float32) / temperature
    log_p = scaled - mx.logsumexp(scaled, axis=-1, keepdims=True)
    sampled = mx.array(tokens)
    chances, best = mx.take_along_axis(log_p, sampled[:, None], axis=-1)[:, 0], mx.max(log_p, axis=-1)
    columns = [
        chances,
        mx.where(sampled == mx.argmax(filtered, axis=-1), best, mx.maximum(best, chances + NOT_BEST)),
        mx.logsumexp(2 * log_p, axis=-1),
        mx.logsumexp(log_p / 2, axis=-1),
    ]
    rows: Any = mx.stack(columns, axis=-1).tolist()
    return [[round(value, 6) if math.isfinite(value) else None for value in row] for row in rows]


def _even_rounds(length: int, width: int) -> list[list[int]]:
    """Return rounds of *width* tokens each without a draft; the last may be shorter."""
    return [[min(width, length - begun)] for begun in range(0, length, width)]


def _logprobs(logits: Any) -> Any:
    """Return log-probabilities as mlx-lm computes them for its samplers: in the precision of the model."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def _partings(position: int, logprobs: Any, expected: list[int]) -> list[list[Any]]:
    best = mx.argmax(logprobs, axis=-1)
    pairs = mx.stack([best.astype(mx.int32), mx.array(expected, mx.int32)], axis=-1)
    chosen: Any = mx.take_along_axis(logprobs.astype(mx.float32), pairs, axis=-1).tolist()
    winners: Any = best.tolist()
    return [
        [index, winner, _finite_or_none(most - given)]
        for index, (winner, token, (most, given)) in enumerate(zip(winners, expected, chosen, strict=True), position)
        if winner != token
    ]


def _nll(logits: Any, emitted: list[int]) -> float:
    """Return the sum of the negative log-likelihoods of *emitted*, in nats."""
    precise = logits.astype(mx.float32)
    chosen = mx.take_along_axis(precise, mx.array(emitted)[:, None], axis=-1)[:, 0]
    total: Any = (mx.logsumexp(precise, axis=-1) - chosen).sum().item()
    return float(total)


def _unit(logits: Any) -> float:
    """Return the unit in the last place of the largest of *logits*, in their type."""
    best: Any = mx.max(mx.abs(mx.max(logits, axis=-1))).astype(mx.float32).item()
    usable = bool(best) and math.isfinite(best)
    return float(mx.finfo(logits.dtype).eps * 2.0 ** math.floor(math.log2(best))) if usable else 0.0


def _bits(logits: Any) -> int:
    """Return the sum of the numbers that the bits of *logits* spell: no rounding hides a change."""
    words: Any = logits.view(mx.uint16 if logits.dtype.size == 2 else mx.uint32).astype(mx.uint64).sum().item()
    return int(words)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
