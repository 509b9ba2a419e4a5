"""How often `gatekeeper bisect` names the version that made it slower, at a known loss, noise and spread of prompts.

    python -m bench.bisection                 # prints a table
    python -m bench.bisection --runs 400 --json

Nine versions, one of which loses speed; which one is drawn. 24 canaries differ from each other in how much a draft
gains; each answer of either arm has its own noise, so that a pair of both has 1.4 times as much. The search is that of
the product, from the ends to the proof of the change; only the answers are drawn. `wrong` names another version.
"""

import argparse
import json
import math
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np

from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.verdict import Missing
from gatekeeper.regression.version_comparison import VersionComparison

CANARIES = 24
VERSIONS = 9


@dataclass(frozen=True, slots=True)
class World:
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


@dataclass(frozen=True, slots=True)
class Row:
    """How often each end of a search came in one world."""

    world: World
    right: float
    """The version is named."""
    among: float
    """Several are named, the right one among them."""
    unproven: float
    wrong: float
    """Another version is named, or several without the right one."""
    requests: float
    """Pairs of requests of a search, on average."""


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


def row_of(world: World, runs: int, seed: int) -> Row:
    """Search so many times in one world."""
    random = np.random.default_rng([seed, *(round(1000 * part) for part in (world.loss, world.noise, world.spread))])
    ends: Counter[str] = Counter()
    requests = 0
    for _ in range(runs):
        versions = SimulatedVersions(world, random)
        ends[outcome(versions, is_loss=world.loss > 0)] += 1
        requests += versions.requests
    shares = {end: ends[end] / runs for end in ("right", "among", "unproven", "wrong")}
    return Row(world, **shares, requests=round(requests / runs, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="searches a row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for world in WORLDS:
        rows.append(row := row_of(world, options.runs, options.seed))
        if options.json:
            continue
        if len(rows) == 1:
            print(f"{'loss':>6}{'noise':>7}{'spread':>8}{'steps':>7}", end="")
            print(f"{'right':>8}{'among':>8}{'unproven':>10}{'wrong':>8}{'pairs':>7}")
        print(f"{world.loss:>6.0%}{world.noise:>7.0%}{world.spread:>8.0%}{world.parts:>7}", end="")
        print(
            f"{row.right:>8.1%}{row.among:>8.1%}{row.unproven:>10.1%}{row.wrong:>8.1%}{row.requests:>7.0f}", flush=True
        )
    if options.json:
        print(json.dumps({"runs": options.runs, "seed": options.seed, "rows": [asdict(row) for row in rows]}, indent=1))
    else:
        print(f"{options.runs} searches a row, {VERSIONS} versions, {CANARIES} canaries")


if __name__ == "__main__":
    main()
