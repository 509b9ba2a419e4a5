"""A sample of requests with the same mix of lengths as all of them, and a figure of how well it mirrors them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LengthPair:
    """The lengths of one distinct prompt and its answer in tokens, and how many requests were like it."""

    prompt: int
    answer: int | None
    count: int = 1

    @property
    def stratum(self) -> tuple[int, int]:
        """Return its stratum: lengths that differ by less than a factor of two are in one."""
        return self.prompt.bit_length(), -1 if self.answer is None else self.answer.bit_length()


def draw(all_of_them: Sequence[LengthPair], most: int, seed: str) -> list[int]:
    """Return the places of up to *most* of *all_of_them*, in proportion to the requests of each stratum.

    Within a stratum the choice is by the SHA-256 of *seed* and the place: the same each time, and related to nothing.
    """
    if len(all_of_them) <= most:
        return list(range(len(all_of_them)))
    strata: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, one in enumerate(all_of_them):
        strata[one.stratum].append(place)
    requests = {name: sum(all_of_them[place].count for place in places) for name, places in strata.items()}
    sizes = _allocate(requests, {name: len(places) for name, places in strata.items()}, most)
    chosen: list[int] = []
    for name, places in strata.items():
        chosen += sorted(places, key=lambda place: hashlib.sha256(f"{seed}/{place}".encode()).digest())[: sizes[name]]
    return sorted(chosen)


def _allocate(
    requests: Mapping[tuple[int, int], int], available: Mapping[tuple[int, int], int], most: int
) -> dict[tuple[int, int], int]:
    """Share *most* in proportion to *requests*, whole by the largest remainder; what a stratum lacks goes to others."""
    sizes = dict.fromkeys(requests, 0)
    left = most
    while left:
        open_ones = [name for name in requests if sizes[name] < available[name]]
        total = sum(requests[name] for name in open_ones)
        exact = {name: left * requests[name] / total for name in open_ones}
        whole = {name: min(int(exact[name]), available[name] - sizes[name]) for name in open_ones}
        if not any(whole.values()):
            ordered = sorted(open_ones, key=lambda name: (int(exact[name]) - exact[name], name))
            whole = dict.fromkeys(ordered[:left], 1)
        for name, count in whole.items():
            sizes[name] += count
            left -= count
    return sizes


@dataclass(frozen=True, slots=True)
class Mirror:
    """How well a weighted sample mirrors the traffic."""

    overlap: float
    """Share of the mix of workload, prompt length and answer length that both have in common; 1 is the same mix."""
    prompt_difference: float
    """The largest difference between the cumulative distributions of prompt lengths; 0 is the same."""
    answer_difference: float | None
    """The same of answer lengths; None where the log holds no answers."""


def compare(
    traffic: Mapping[str, Sequence[LengthPair]], sample: Mapping[str, Sequence[LengthPair]], mix: Mapping[str, float]
) -> Mirror:
    """Compare the *sample* of each workload, weighted by the *mix*, with all requests."""
    mine: Counter[tuple[str, int, int]] = Counter()
    theirs: Counter[tuple[str, int, int]] = Counter()
    pairs: list[tuple[LengthPair, float, float]] = []
    total = sum(one.count for some in traffic.values() for one in some)
    weights = sum(mix.values())
    for name, some in traffic.items():
        for one in some:
            theirs[name, *one.stratum] += one.count / total  # type: ignore[assignment]
            pairs.append((one, one.count / total, 0.0))
        for one in sample[name]:
            share = mix[name] / weights / len(sample[name])
            mine[name, *one.stratum] += share  # type: ignore[assignment]
            pairs.append((one, 0.0, share))
    overlap = sum(min(mine[stratum], share) for stratum, share in theirs.items())
    answered = [(one.answer, a, b) for one, a, b in pairs if one.answer is not None]
    return Mirror(
        round(min(1.0, overlap), 4),
        _largest_difference((one.prompt, a, b) for one, a, b in pairs),
        _largest_difference(answered) if answered else None,
    )


def _largest_difference(values: Iterable[tuple[int, float, float]]) -> float:
    """Return the Kolmogorov-Smirnov distance of two weighted samples, from (value, weight in one, weight in other)."""
    steps: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for value, mine, theirs in values:
        steps[value][0] += mine
        steps[value][1] += theirs
    totals = [sum(step[arm] for step in steps.values()) or 1.0 for arm in (0, 1)]
    largest, sums = 0.0, [0.0, 0.0]
    for value in sorted(steps):
        sums = [sums[arm] + steps[value][arm] / totals[arm] for arm in (0, 1)]
        largest = max(largest, abs(sums[0] - sums[1]))
    return round(largest, 4)
