"""How often `gatekeeper bisect` names the version that made it slower, at a known loss, noise and spread of prompts.

    python -m bench.bisection --runs 400

Nine versions, one of which loses speed; which one is drawn. 24 canaries differ from each other in how much a draft
gains; each answer of either arm has its own noise, so that a pair of both has 1.4 times as much. The search is that of
the product, from the ends to the proof of the change; only the answers are drawn. `among`: several versions are named,
the right one among them. `wrong` names another version. `pairs`: of requests of a search, on average.
"""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from bench.world_table import print_table
from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.verdict import Missing
from gatekeeper.regression.version_comparison import VersionComparison

CANARIES = 24
VERSIONS = 9


class World(NamedTuple):
    """What is true of the versions."""

    loss: float
    noise: float
    """Deviation of one answer's log speed."""
    spread: float
    """Deviation of the log ratio between canaries."""
    parts: int = 1
    """The loss comes in so many equal steps, at versions of their own; naming any of them is right."""


WORLDS = (
    World(0.05, 0.03, 0.10),
    World(0.05, 0.03, 0.0),
    World(0.10, 0.10, 0.10),
    World(0.05, 0.10, 0.10),
    World(0.20, 0.10, 0.10),
    World(0.20, 0.05, 0.10),
    World(0.10, 0.05, 0.10, parts=2),
    World(0.0, 0.03, 0.10),
    World(0.0, 0.10, 0.10),
)


class SimulatedVersions:
    """Versions whose pairs of answers are drawn."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._world, self._random = world, random
        self.changes = sorted(random.choice(np.arange(1, VERSIONS), world.parts, replace=False).tolist())
        self._heights = random.normal(0, world.spread, CANARIES)
        self._logs: dict[int, list[tuple[str, float]]] = {}

    def measure(self, position: int, rounds: int) -> Values:
        """Return the log ratios of a version after so many rounds or more."""
        logs = self._logs.setdefault(position, [])
        steps = sum(position >= change for change in self.changes)
        level = math.log(1 - self._world.loss) * steps / self._world.parts
        while len(logs) < rounds * CANARIES:
            noise = self._random.normal(0, math.sqrt(2) * self._world.noise, CANARIES)
            logs += [(f"c{n}", height + level + noise[n]) for n, height in enumerate(self._heights)]
        return logs

    @property
    def requests(self) -> int:
        """Return the pairs that were sent."""
        return sum(map(len, self._logs.values()))


def outcome(versions: SimulatedVersions, *, is_loss: bool) -> str:
    """Search; return right, among, unproven or wrong."""
    comparison = VersionComparison(versions.measure, CANARIES, logs=True, higher_is_better=True)
    last = VERSIONS - 1
    if isinstance(comparison.compare_ends(last), Missing):
        return "unproven"
    _, bounds = comparison.search(last)
    if not comparison.is_change(bounds):
        return "unproven"
    if not is_loss or not any(bounds.last_good < change <= bounds.first_bad for change in versions.changes):
        return "wrong"
    return "right" if bounds.is_closed else "among"


def cells(world: World, runs: int, seed: int) -> dict[str, str]:
    """Search so many times in one world; return its row."""
    random = np.random.default_rng([seed, *(round(1000 * part) for part in (world.loss, world.noise, world.spread))])
    ends: Counter[str] = Counter()
    requests = 0
    for _ in range(runs):
        versions = SimulatedVersions(world, random)
        ends[outcome(versions, is_loss=world.loss > 0)] += 1
        requests += versions.requests
    of_world = {name: f"{part:.0%}" for name, part in zip(("loss", "noise", "spread"), world[:3], strict=True)}
    shares = {end: f"{ends[end] / runs:.1%}" for end in ("right", "among", "unproven", "wrong")}
    return {**of_world, "steps": f"{world.parts}", **shares, "pairs": f"{requests / runs:.0f}"}


if __name__ == "__main__":
    print_table(__doc__ or "", ("runs", 200), WORLDS, cells)
