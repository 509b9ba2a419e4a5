"""How a little model learns: batches of answers, the loss on them, and Muon, with matrix products done by numpy."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx import nn
from numpy.typing import NDArray

BATCH = 16
POOL = 16 * BATCH  # sorted by length inside a pool: little padding, and still every workload in every pool
LEARNING_RATE = 1e-2  # Muon's; its updates have unit scale, so it is this large
ADAM_SHARE = 0.3  # of that rate, for embeddings and norms


@dataclass(frozen=True, slots=True)
class Tokens:
    """An example as token ids; only the answer (with its end) is learned."""

    prompt: list[int]
    answer: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded sequences, and where in them (counted over the flattened batch) which token of an answer must follow."""

    tokens: mx.array
    places: mx.array
    followers: mx.array


def _batch(rows: list[Tokens]) -> Batch:
    tokens = np.zeros((len(rows), max(map(len, rows)) - 1), np.int32)
    places: list[int] = []
    followers: list[int] = []
    for line, row in enumerate(rows):
        tokens[line, : len(row) - 1] = (row.prompt + row.answer)[:-1]
        begin = line * tokens.shape[1] + len(row.prompt) - 1  # the last token of the prompt predicts the first answered
        places.extend(range(begin, begin + len(row.answer)))
        followers.extend(row.answer)
    return Batch(mx.array(tokens), mx.array(places), mx.array(followers))


def batches(rows: list[Tokens], chance: np.random.Generator) -> Iterator[Batch]:
    """Endless batches of near-equal lengths; *rows* must hold at least one pool."""
    while True:
        order = chance.permutation(len(rows))
        for begin in range(0, len(rows) - POOL + 1, POOL):
            pool = sorted(order[begin : begin + POOL].tolist(), key=lambda row: len(rows[row]))
            for slot in chance.permutation(POOL // BATCH).tolist():
                yield _batch([rows[row] for row in pool[slot * BATCH : (slot + 1) * BATCH]])


def _flat(values: mx.array) -> NDArray[np.float32]:
    return np.asarray(values).reshape(-1, values.shape[-1])


@mx.custom_function
def product(inputs: mx.array, weight: mx.array) -> mx.array:
    """Compute what a linear layer does, by numpy's BLAS.

    MLX's CPU wheel for Linux carries the unoptimised reference BLAS, twenty times slower; training would take an hour.
    """
    return mx.array(_flat(inputs) @ np.asarray(weight).T).reshape(*inputs.shape[:-1], weight.shape[0])


@product.vjp
def _product_vjp(
    primals: tuple[mx.array, mx.array], cotangent: mx.array, _output: mx.array
) -> tuple[mx.array, mx.array]:
    inputs, weight = primals
    change = _flat(cotangent)
    return mx.array(change @ np.asarray(weight)).reshape(inputs.shape), mx.array(change.T @ _flat(inputs))


class NumpyLinear(nn.Linear):  # type: ignore[misc]
    """A linear layer, in training only: same weights, faster product."""

    def __call__(self, inputs: mx.array) -> mx.array:
        """Multiply by the transposed weight."""
        return cast("mx.array", product(inputs, self.weight))


def orthogonal(matrix: NDArray[np.float32], steps: int = 5) -> NDArray[np.float32]:
    """Pull all singular values towards one, by the Newton-Schulz iteration with the coefficients of Jordan's Muon."""
    tall = matrix.shape[0] > matrix.shape[1]
    turned = matrix.T if tall else matrix
    turned = turned / (np.linalg.norm(turned) + np.float32(1e-7))
    for _ in range(steps):
        square = turned @ turned.T
        turned = (
            np.float32(3.4445) * turned + (np.float32(2.0315) * square @ square - np.float32(4.775) * square) @ turned
        )
    return turned.T if tall else turned


class Muon(optim.Muon):  # type: ignore[misc]
    """Nesterov momentum made orthogonal, as in MLX, with the products done by numpy."""

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, mx.array]) -> mx.array:
        """Take one step."""
        state["v"] = self.momentum * state["v"] + (1 - self.momentum) * gradient
        update = (1 - self.momentum) * gradient + self.momentum * state["v"]
        rows, columns = update.shape
        rate: mx.array = self.learning_rate * max(1.0, rows / columns) ** 0.5
        return parameter - rate * mx.array(orthogonal(np.asarray(update)))


def _schedule(peak: float, steps: int) -> Any:
    """Rise to *peak* over a twentieth of the steps, then fall along a cosine to two hundredths of it."""
    warm_up = max(10, steps // 20)
    rise = optim.linear_schedule(peak * 0.05, peak, warm_up)
    return optim.join_schedules([rise, optim.cosine_decay(peak, steps - warm_up, peak * 0.02)], [warm_up])


def _loss(model: Any, batch: Batch) -> mx.array:
    """Mean cross-entropy of the answers' tokens; prompts and padding are not learned."""
    hidden = model.model(batch.tokens)
    answered = hidden.reshape(-1, hidden.shape[-1])[batch.places]
    logits = product(answered, model.model.embed_tokens.weight)  # the embeddings are tied
    return cast("mx.array", nn.losses.cross_entropy(logits, batch.followers, reduction="mean"))


def fit(model: Any, source: Iterator[Batch], steps: int, name: str) -> None:
    """Train with Muon for the matrices and Adam for embeddings and norms, and say every hundred steps how it goes."""
    for _, module in model.named_modules():
        if type(module) is nn.Linear:
            module.__class__ = NumpyLinear
    optimizer = optim.MultiOptimizer(
        [
            Muon(learning_rate=_schedule(LEARNING_RATE, steps), momentum=0.95),
            optim.AdamW(_schedule(ADAM_SHARE * LEARNING_RATE, steps), betas=[0.9, 0.95], weight_decay=0.0),
        ],
        [lambda path, value: value.ndim == 2 and "embed" not in path],
    )
    gradient = nn.value_and_grad(model, _loss)
    started, losses = time.monotonic(), []
    for step, batch in enumerate(islice(source, steps), start=1):
        loss, change = gradient(model, batch)
        change, _ = optim.clip_grad_norm(change, 1.0)
        optimizer.update(model, change)
        mx.eval(loss, model.state, optimizer.state)
        losses.append(loss.item())
        if step % 100 == 0 or step == steps:
            print(
                f"{name}: step {step}, loss {np.mean(losses[-100:]):.4f}, {time.monotonic() - started:.0f} s",
                flush=True,
            )
