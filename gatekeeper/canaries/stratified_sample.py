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


def draw_sample(pairs: Sequence[LengthPair], most: int, seed: str) -> list[int]:
    """Return the places of up to *most* of *pairs*, in proportion to the requests of each stratum.

    Within a stratum the choice is by the SHA-256 of *seed* and the place: the same each time, and related to nothing.
    """
    if len(pairs) <= most:
        return list(range(len(pairs)))
    strata: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        strata[pair.stratum].append(place)
    requests = {name: sum(pairs[place].count for place in places) for name, places in strata.items()}
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
    remaining = most
    while remaining:
        unfilled = [name for name in requests if sizes[name] < available[name]]
        total = sum(requests[name] for name in unfilled)
        exact = {name: remaining * requests[name] / total for name in unfilled}
        shares = {name: min(int(exact[name]), available[name] - sizes[name]) for name in unfilled}
        if not any(shares.values()):
            ordered = sorted(unfilled, key=lambda name: (int(exact[name]) - exact[name], name))
            shares = dict.fromkeys(ordered[:remaining], 1)
        for name, count in shares.items():
            sizes[name] += count
            remaining -= count
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


def compare_mixes(
    traffic: Mapping[str, Sequence[LengthPair]], sample: Mapping[str, Sequence[LengthPair]], mix: Mapping[str, float]
) -> Mirror:
    """Compare the *sample* of each workload, weighted by the *mix*, with all requests."""
    in_traffic: Counter[tuple[str, int, int]] = Counter()
    in_sample: Counter[tuple[str, int, int]] = Counter()
    weighted: list[tuple[LengthPair, float, float]] = []
    total = sum(pair.count for pairs in traffic.values() for pair in pairs)
    weights = sum(mix.values())
    for name, pairs in traffic.items():
        for pair in pairs:
            in_traffic[name, *pair.stratum] += pair.count / total  # type: ignore[assignment]
            weighted.append((pair, pair.count / total, 0.0))
        for pair in sample[name]:
            share = mix[name] / weights / len(sample[name])
            in_sample[name, *pair.stratum] += share  # type: ignore[assignment]
            weighted.append((pair, 0.0, share))
    overlap = sum(min(in_sample[stratum], share) for stratum, share in in_traffic.items())
    answered = [(pair.answer, first, second) for pair, first, second in weighted if pair.answer is not None]
    return Mirror(
        round(min(1.0, overlap), 4),
        _largest_difference((pair.prompt, first, second) for pair, first, second in weighted),
        _largest_difference(answered) if answered else None,
    )


def _largest_difference(values: Iterable[tuple[int, float, float]]) -> float:
    """Return the Kolmogorov-Smirnov distance of two samples, from (value, weight in the first, in the second)."""
    steps: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for value, first, second in values:
        steps[value][0] += first
        steps[value][1] += second
    totals = [sum(step[sample] for step in steps.values()) or 1.0 for sample in (0, 1)]
    largest, sums = 0.0, [0.0, 0.0]
    for value in sorted(steps):
        sums = [sums[sample] + steps[value][sample] / totals[sample] for sample in (0, 1)]
        largest = max(largest, abs(sums[0] - sums[1]))
    return round(largest, 4)
