"""A greedy shortcut above temperature 0: how often it is found, and how often a sound draft is taken for one.

    python -m bench.exactness.sampled
    python -m bench.exactness.sampled --runs 500 --shares 0     # false alarms alone

Tokens are drawn at places of the little pair's answers from the target's own distribution, or the best one is taken in
a share of them. Each run is judged as `sampled_tokens_p_value` is: in process by what the target drew in its pass,
which the worker keeps, so that one token that is another is enough; elsewhere by the tokens alone.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.exactness.evidence import LittlePair
from gatekeeper.analysis.metrics.words.sampled_tokens import e_value
from gatekeeper.analysis.stats import intervals

TEMPERATURE = 0.7
ALARM = 0.001
"""The implicit objective on the p-value."""
TOKENS = (2000, 10_000)
"""Tokens of a workload in one run: 50 canaries of 40 tokens, answered once or five times."""
SHARES = (0.0, 0.01, 0.02, 0.05)
"""Of tokens that are the best one without a draw."""

LIKELIEST = 128
"""Tokens of a place that are drawn from: the others have less than a millionth together."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Places:
    """Distributions at places of answers."""

    chances: Floats
    """[place, token], in falling order, of the likeliest tokens."""
    squares: Floats
    roots: Floats
    """By place: the logarithms of the sums of p^2 and of p^(1/2)."""


def places_of(pair: LittlePair, workload: str | None) -> Places:
    """Return the distributions at the places of plain decoding's answers to a workload; None: to all."""
    answers = [answer for (name, _), answer in zip(pair.canaries, pair.plain, strict=True) if workload in {None, name}]
    logits = pair.target.logits(np.concatenate([np.stack(answer.places) for answer in answers])) / TEMPERATURE
    chances = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    return Places(
        -np.sort(-chances, axis=-1)[:, :LIKELIEST], np.log(np.square(chances).sum(-1)), np.log(np.sqrt(chances).sum(-1))
    )


def draw(places: Places, tokens: int, share: float, generator: np.random.Generator) -> tuple[Floats, bool]:
    """Return the rows of one run's tokens, the best one in *share* of them; and whether one is not the drawn one."""
    chosen = generator.integers(len(places.chances), size=tokens)
    chances = places.chances[chosen]
    drawn = (chances.cumsum(axis=-1) < generator.random((tokens, 1))).sum(axis=-1).clip(max=chances.shape[1] - 1)
    sent = np.where(generator.random(tokens) < share, 0, drawn)
    token = chances[np.arange(tokens), sent]
    rows = np.stack([np.log(token), np.log(chances[:, 0]), places.squares[chosen], places.roots[chosen]], axis=-1)
    return rows, bool((sent != drawn).any())


def rows(runs: int, shares: Sequence[float]) -> Iterator[tuple[str, ...]]:
    """Yield a row a workload and number of tokens: in how many runs each share is seen, in process and by tokens."""
    pair, generator = LittlePair(), np.random.default_rng(0)
    for workload in ("prose", "math", None):
        places = places_of(pair, workload)
        for tokens in TOKENS:
            cells = []
            for share in shares:
                drawn = [draw(places, tokens, share, generator) for _ in range(runs)]
                by_rounds = sum(other for _, other in drawn)
                by_tokens = sum(e_value(rows.tolist()) > -math.log(ALARM) for rows, _ in drawn)
                cells += [_share(by_rounds, runs), _share(by_tokens, runs)]
            best = float(places.chances[:, 0].mean())
            yield workload or "all four", f"{best:.3f}", str(tokens), *cells


def _share(refuted: int, runs: int) -> str:
    lo, hi = intervals.proportion_bounds(refuted, runs, 0.95)
    return f"{refuted} of {runs} ({lo:.1%} to {hi:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs of a cell (default: 200)")
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES, help="of greedy tokens (default: all)")
    chosen = parser.parse_args()
    header = (
        "workload",
        "mean of the best chance",
        "tokens",
        *(f"{share:.0%} greedy, by {what}" for share in chosen.shares for what in ("rounds", "tokens")),
    )
    for cells in (header, ("---",) * len(header), *rows(chosen.runs, chosen.shares)):
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
