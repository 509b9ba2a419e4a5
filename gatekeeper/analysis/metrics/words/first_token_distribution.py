"""First tokens, sampled many times in both arms: a test whether both have the same distribution."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.units import percent
from gatekeeper.core.verdict import Estimate, Missing, fact

PROMPTS = 3
"""Prompts per workload whose answers start in the most different ways, of those with the shortest prompts."""
SCOUTED, SCOUTS = 12, 8
"""Prompts that plain decoding starts to answer, and how often each, to choose those; the samples of the test are
others. Every sample reads the whole prompt, so the shortest are scouted."""
SCOUT = "scout"
"""The `pair` of such a sample."""
SAMPLES = 120
"""Samples per arm and prompt: enough to see the share of the commonest first token change by 30 points."""
TOKENS = 3
"""First tokens that are compared: later ones follow so many different starts that each is seen once."""
FALSE_ALARM = 0.001
"""A lossless draft fails with this chance per workload and ladder step: ten workloads on three steps stay under 3 %."""
POWER = 0.9
SHUFFLES = 4999
"""The smallest p-value is 1 in 5000, a fifth of the allowed false alarms."""
MAX_LOST_SHARE = 0.05
"""With a larger share of samples lost the rest may not be like them."""

BLIND = "not even a draft that always takes it would be seen"
"""In the reason why no number of samples shows a difference."""
FirstTokens = tuple[Hashable, ...]


def scouted_prompts(canaries: Sequence[Canary]) -> list[Canary]:
    """Return the canaries with the shortest prompts, by the letters of their messages; none where all are taken."""
    shortest = sorted(
        canaries, key=lambda canary: (sum(len(str(turn.get("content"))) for turn in canary.messages), canary.id)
    )
    return shortest[:SCOUTED] if len(shortest) > PROMPTS else []


def chosen_prompts(canaries: Sequence[Canary], scouts: Iterable[Generation]) -> list[Canary]:
    """Return the canaries whose *scouts* start in the most different ways; of equals, the shorter prompts."""
    samples: dict[str, list[FirstTokens]] = defaultdict(list)
    for generation in scouts:
        if generation.answer.fault is None:
            samples[generation.canary].append(first_tokens_of(generation.answer))
    shortest = scouted_prompts(canaries) or list(canaries)
    return sorted(shortest, key=lambda canary: -_diversity(samples[canary.id]))[:PROMPTS]


def _diversity(samples: Sequence[FirstTokens]) -> float:
    """Return the chance that two samples differ at a position (Gini-Simpson index), averaged over the positions."""
    return sum(1 - sum(share**2 for share in shares) for shares in _shares(samples)) / TOKENS


def _shares(samples: Sequence[FirstTokens]) -> list[list[float]]:
    """Return, for each position, the shares of its tokens, the commonest first."""
    positions = max(map(len, samples), default=0)
    counts = [
        Counter(sample[position] if position < len(sample) else None for sample in samples)
        for position in range(positions)
    ]
    return [[count / len(samples) for _, count in counter.most_common()] for counter in counts]


def first_tokens_of(answer: Answer) -> FirstTokens:
    """Return the first tokens of an answer, one entry per position; its whole text where tokens are unknown."""
    ids = [arrival.token_id for arrival in answer.arrivals]
    if ids and None not in ids:
        return (*ids[:TOKENS], *("end",) * (TOKENS - len(ids)))
    return (answer.reasoning + answer.text,)


def chi_square(labels: NDArray[np.float64], samples: Sequence[FirstTokens]) -> NDArray[np.float64]:
    """Return, for each row of 0/1 labels, Pearson's chi-square of arm against token, summed over the positions.

    Source: Pearson 1900, without a continuity correction. Each row labels every sample with its arm.
    """
    total = np.zeros(len(labels))
    share = labels.mean(axis=1, keepdims=True)
    for position in range(max(map(len, samples))):
        tokens = [sample[position] if position < len(sample) else None for sample in samples]
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(tokens))}
        table = np.zeros((len(samples), len(kinds)))
        table[np.arange(len(samples)), [kinds[token] for token in tokens]] = 1.0
        totals = table.sum(axis=0)
        in_first = labels @ table
        off = (in_first - share * totals) ** 2
        total += (off / (share * totals)).sum(axis=1) + (off / ((1 - share) * totals)).sum(axis=1)
    return total


def p_value(pairs: Sequence[tuple[Sequence[FirstTokens], Sequence[FirstTokens]]], seed: int) -> float:
    """Return how often shuffled arms differ at least as much: a permutation test, stratified by prompt.

    Whole samples change arms, within their prompt, so the dependence of a sample's tokens is kept. Exact under the null
    for any sample size. Source: Phipson and Smyth 2010 for counting the observed order among the shuffles.
    """
    rng = np.random.default_rng(seed)
    sums = np.zeros(SHUFFLES + 1)
    for drafting, plain in pairs:
        labels = np.repeat([1.0, 0.0], [len(drafting), len(plain)])
        rows = rng.permuted(np.tile(labels, (SHUFFLES + 1, 1)), axis=1)
        rows[0] = labels
        sums += chi_square(rows, [*drafting, *plain])
    # Equal tables may differ in the last bits.
    return float(np.mean(sums >= sums[0] * (1 - 1e-9)))


def detectable_change(share: float, samples: int) -> float:
    """Return by how much a first token of this *share* must change to be detected with POWER, in one prompt.

    Source: the normal approximation for two proportions (Fleiss 1981, 3.2), two-sided at the allowed false alarms.
    """
    normal = NormalDist()
    z = normal.inv_cdf(1 - FALSE_ALARM / 2) + normal.inv_cdf(POWER)
    return z * sqrt(2 * share * (1 - share) / samples)


def distribution_test(records: Sequence[Generation], prompts: int, seed: int) -> Estimate | Missing:
    """Return the p-value that both arms sample from one distribution; Missing where samples are lost.

    It is Missing as well where plain decoding starts its answers so much alike that no difference could be seen. A
    difference that is seen counts all the same.
    """
    records = [generation for generation in records if generation.pair != SCOUT]
    arms: dict[str, dict[str, list[FirstTokens]]] = defaultdict(lambda: {"plain": [], "candidate": []})
    for generation in records:
        if generation.answer.fault is None:
            arms[generation.canary][generation.arm].append(first_tokens_of(generation.answer))
    needed = min(PROMPTS, prompts)
    fewest = min((len(samples) for arm in arms.values() for samples in arm.values()), default=0)
    if len(arms) < needed or not needed or fewest < (1 - MAX_LOST_SHARE) * SAMPLES:
        return Missing(f"only {fewest} of {SAMPLES} samples of a prompt succeeded in one of the arms", fewest)
    pairs = [(arms[name]["candidate"], arms[name]["plain"]) for name in sorted(arms)]
    chance = p_value(pairs, seed)
    common = [shares[0] for _, plain in pairs for shares in _shares(plain)]
    share = max(common, key=lambda common_share: common_share * (1 - common_share))
    detectable = detectable_change(share, fewest)
    power = (
        f"p-value of {len(pairs)} prompts, {fewest} samples per arm; for a first token with a share of "
        f"{percent(share, '.0f')} a change of {percent(detectable, '.0f')} is detected with "
        f"{percent(POWER, '.0f')} power"
    )
    alike = all(1 - common_share <= detectable_change(common_share, fewest) for common_share in common)
    if alike and chance >= FALSE_ALARM:
        least = percent(min(common), ".0f")
        reason = f"the commonest first token of plain decoding has a share of {least} or more at each place"
        return Missing(
            f"{reason}, so {BLIND}: add canaries whose answers can start in many ways; {power}", len(records)
        )
    return fact(chance, len(records), power)
