"""Scores of sampled tokens: what the target's own sampling distribution makes of each, in a pass that verified it."""

import math
from typing import Any

import mlx.core as mx
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p

NOT_BEST = 4e-5
"""Above what the reader of the rows takes for the same log-probability."""


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
