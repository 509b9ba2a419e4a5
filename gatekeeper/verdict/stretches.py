"""The stretches of a sweep: which canary is asked when and how often, and after how many answers the sweep looks."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from gatekeeper.terms.canary import Canary
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict import sequential

Unit = tuple[str, Canary, int]
"""Workload, canary and repeat: what every arm of a group is asked once."""
Looks = Mapping[str, tuple[int, ...]]
"""Answers per arm after each stretch, by workload."""


def share_of_budget(slo: Slo, canaries: Sequence[Canary]) -> tuple[int, int]:
    """Return how many canaries and repeats fit the budget of answers per arm and workload; canaries go first."""
    count = min(len(canaries), slo.sweep.budget)
    return count, max(1, min(slo.sweep.repeats, slo.sweep.budget // count))


def looks(slo: Slo, canaries: Mapping[str, Sequence[Canary]], growth: float) -> Looks:
    """Return after how many answers the sweep looks at each workload: at the end alone where it can not stop early."""
    found = {}
    for workload in slo.workload:
        count, repeats = share_of_budget(slo, canaries[workload.name])
        whole = count * repeats
        early = slo.sweep.stop == "early" and count >= sequential.LEAST
        found[workload.name] = sequential.looks(whole, growth, count) if early else (whole,)
    return found


def units(slo: Slo, canaries: Mapping[str, Sequence[Canary]], shuffle: random.Random) -> list[Unit]:
    """Return every canary once before any is repeated, each time in another random order."""
    found: list[Unit] = []
    counts = {workload.name: share_of_budget(slo, canaries[workload.name]) for workload in slo.workload}
    for repeat in range(max(repeats for _, repeats in counts.values())):
        once = [
            (workload.name, canary, repeat)
            for workload in slo.workload
            if repeat < counts[workload.name][1]
            for canary in canaries[workload.name][: counts[workload.name][0]]
        ]
        shuffle.shuffle(once)
        found += once
    return found


def part(every: Sequence[Unit], looks: Looks, number: int) -> list[Unit]:
    """Return the units of stretch *number* (from 0): of each workload those between two of its looks."""
    seen: Counter[str] = Counter()
    found = []
    for unit in every:
        counts, at = looks[unit[0]], seen[unit[0]]
        seen[unit[0]] += 1
        if number < len(counts) and (counts[number - 1] if number else 0) <= at < counts[number]:
            found.append(unit)
    return found


def halves(every: Sequence[Unit], some: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Split *some* of the units in two: every second canary in each, and one that is repeated in both in turn."""
    place: dict[tuple[str, str], int] = {}
    seen: Counter[str] = Counter()
    for workload, canary, _ in every:
        if (workload, canary.id) not in place:
            place[workload, canary.id] = seen[workload]
            seen[workload] += 1
    turn = [(place[workload, canary.id] + repeat) % 2 for workload, canary, repeat in some]
    first, second = ([unit for unit, half in zip(some, turn, strict=True) if half == side] for side in (0, 1))
    return first, second
