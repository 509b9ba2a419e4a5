"""How often `gatekeeper versus` calls a system worse than itself, and how often it sees a real loss.

    python -m bench.versus_errors --runs 400

Two systems answer 24 canaries in turns, four rounds of 48 tokens, as a minute does. Decode speed and the time to the
first token have noise of their own and differ between canaries; at temperature 0.8 the accepted tokens are drawn, so
all five metrics have noise. The metrics are compared by the product. `any` is the share of comparisons in which any
metric of B is called worse (or better).
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.versus.metric_comparison import compare_metrics

CANARIES = 24
ROUNDS = 4
TOKENS = 48
LEVEL = 0.95
SPREAD = 0.10
"""Deviation of the log speed between canaries."""
PLAIN_TOKEN_S, FIRST_S = 0.020, 0.30
SECOND = 1_000_000_000
DRAFTED = 4


@dataclass(frozen=True, slots=True)
class World:
    """What is true of B over A."""

    loss: float
    noise: float
    """Deviation of one answer's log speed; the time to the first token has twice as much."""


WORLDS = tuple(World(loss, noise) for noise in (0.03, 0.05, 0.10) for loss in (0.0, 0.05, 0.10))


class SimulatedPair:
    """Answers of two systems, drawn."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._world, self._random = world, random
        self._heights = random.normal(0, SPREAD, CANARIES)
        self._chances = np.clip(random.normal(0.7, 0.1, CANARIES), 0.3, 0.95)

    def answers(self, *, is_b: bool) -> Iterator[Generation]:
        """Yield the answers of one side, round by round."""
        speed = math.log(1 - self._world.loss) if is_b else 0.0
        for pair in range(ROUNDS):
            for number in range(CANARIES):
                log = self._heights[number] + speed + self._random.normal(0, self._world.noise)
                first = FIRST_S * math.exp(-self._heights[number] + self._random.normal(0, 2 * self._world.noise))
                begun = (pair * CANARIES + number) * 10 * SECOND
                step = PLAIN_TOKEN_S / math.exp(log)
                times = [begun + round((first + step * token) * SECOND) for token in range(TOKENS)]
                accepted = int(self._random.binomial(TOKENS, self._chances[number]))
                yield Generation(
                    trial="b" if is_b else "a", key=f"{pair}-{number}", workload="prose", canary=f"c{number}",
                    arm="candidate", setting=setting(draft="d", num_draft_tokens=DRAFTED), role=Role.MEASURED, repeat=0,
                    pair=str(pair), concurrency=1,
                    answer=Answer(
                        begun, times[-1], [Arrival(time, 1) for time in times], finish="length", output_tokens=TOKENS,
                        rounds=Rounds(TOKENS // DRAFTED, TOKENS, accepted),
                    ),
                )  # fmt: skip

    def compared(self) -> tuple[PairedAnswers, tuple[PairedAnswers, PairedAnswers]]:
        """Return B's answers paired with A's, and both alone, as a comparison has them."""
        a, b = (tuple(self.answers(is_b=is_b)) for is_b in (False, True))
        prompt = ({"role": "user", "content": "Write a story."},)
        canaries = {f"c{number}": Canary(id=f"c{number}", messages=prompt) for number in range(CANARIES)}
        paired = pair_answers(
            PairedAnswers("prose", canaries, b, a, LEVEL, seed=1, greedy=False, drift_limit=math.inf, lost_limit=0.25)
        )
        return paired, (replace(paired, answers=a, plain=(), pairs=()), replace(paired, plain=(), pairs=()))


def cells(world: World, runs: int, seed: int) -> dict[str, str]:
    """Compare so many times in one world; return its row."""
    random = np.random.default_rng([seed, round(1000 * world.loss), round(1000 * world.noise)])
    called: Counter[str] = Counter()
    for _ in range(runs):
        says = {row.metric: row.says for row in compare_metrics(*SimulatedPair(world, random).compared())}
        assert "not measured" not in says.values(), says
        called["any worse"] += "worse" in says.values()
        called["any better"] += "better" in says.values()
        called["speed worse"] += says["throughput_ratio"] == "worse"
    shares = {name: f"{count / runs:.1%}" for name, count in called.items()}
    return {"loss": f"{world.loss:.0%}", "noise": f"{world.noise:.0%}", **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="comparisons of a row (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{'loss':>6}{'noise':>7}{'any worse':>11}{'any better':>12}{'speed worse':>13}")
    for world in WORLDS:
        row = cells(world, options.runs, options.seed)
        print("{loss:>6}{noise:>7}{any worse:>11}{any better:>12}{speed worse:>13}".format(**row), flush=True)


if __name__ == "__main__":
    main()
