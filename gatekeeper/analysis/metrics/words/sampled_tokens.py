"""Sampled tokens: whether those above temperature 0 are drawn from the target's own distribution, place by place."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.harm import POWER
from gatekeeper.analysis.metrics.words.replayed_rounds import drafted_replays
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.text import show_count
from gatekeeper.core.units import percent

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of tokens that an alternative draws otherwise."""
KINDS = 3
LEAST_TOKENS = 200
SAME = 1e-5
"""Log-probabilities this near are the same token's: rows have six decimals."""
POWER_Z = 1.645
"""The normal quantile of 95 %."""

Floats = NDArray[np.float64]


def e_value(rows: Sequence[Sequence[float]]) -> float:
    """Return the evidence against tokens drawn from the target, as the logarithm of an e-value.

    *rows* [tokens, 4]: log p(token), log p(best), log sum p^2 and log sum p^(1/2) of the target's distribution p of a
    place. Each alternative draws a share of the tokens otherwise: the best one (a greedy shortcut), from p^2 (a colder
    distribution) or from p^(1/2) (a warmer one). Its likelihood ratio to p has mean 1 at every place, whatever came
    before, so the product is a martingale under a lossless draft and may be looked at at any time (Ville 1939); so is
    the mean over alternatives. A standardised sum of log p would need its variance, and is normal in the limit only.
    """
    if any(math.isinf(row[0]) for row in rows):
        return math.inf  # a token that the target cannot draw
    token, best, squares, roots = np.asarray(rows, dtype=np.float64).T
    greedy = np.where(token >= best - SAME, np.exp(-best), 0.0)
    ratios = (greedy, np.exp(token - squares), np.exp(-token / 2 - roots))
    sums = [np.log1p(share * (ratio - 1)).sum() for share in SHARES for ratio in ratios]
    return float(np.logaddexp.reduce(sums) - math.log(len(sums)))


def visible_share(best: Floats, alarm: float) -> float | None:
    """Return the least share of greedy tokens that these places show in 95 % of runs; None where none is.

    By the mean and the variance of the logarithm of the greedy alternative's ratio, were it true. *best* [tokens]:
    log p(best) at each place.
    """
    chance = np.exp(best)
    needed = -math.log(alarm) + math.log(KINDS * len(SHARES))
    for share in np.geomspace(0.002, 1.0, 60):
        near = min(SHARES, key=lambda known: abs(math.log(known / share)))
        hit = (1 - share) * chance + share
        gain, loss = np.log1p(near * (1 / chance - 1)), math.log1p(-near)
        mean = hit * gain + (1 - hit) * loss
        deviation = math.sqrt(float((hit * (1 - hit) * (gain - loss) ** 2).sum()))
        if float(mean.sum()) - POWER_Z * deviation >= needed:
            return float(share)
    return None


def sampled_tokens(paired: PairedAnswers, alarm: float = 0.001) -> Estimate | Missing:
    """Return the p-value that the draft's tokens are drawn from the target's distribution: 1 over the e-value."""
    if paired.greedy:
        return Missing("at temperature 0 no token is drawn")
    replays = [replayed for replayed in drafted_replays(paired) if replayed.fault is None]
    impossible = [f"{replayed.canary} {replayed.impossible}" for replayed in replays if replayed.impossible]
    if impossible:
        return fact(0.0, len(replays), f"{len(impossible)} cannot have come from their rounds, first {impossible[0]}")
    rows = [row for replayed in replays for row in replayed.scores]
    if len(rows) < LEAST_TOKENS:
        return Missing(f"{show_count(len(rows), 'sampled token')} read again, {LEAST_TOKENS} are needed", len(rows))
    log_e = e_value(rows)
    share = visible_share(np.asarray([row[1] for row in rows], dtype=np.float64), alarm)
    visible = "no greedy shortcut" if share is None else f"{percent(share, '.2g')} greedy tokens"
    read = f"{len(rows)} tokens of {show_count(len(replays), 'answer')}, read again in their rounds"
    notes = (f"{read}; {visible} would be seen",)
    return fact(min(1.0, math.exp(-min(log_e, 700.0))), len(rows), *notes)


Kernel = Callable[[Sequence[str]], Floats]
"""Returns the similarity of each two texts."""
GRAM = 3
SHUFFLES = 1999
LEAST_CANARIES = 5
ALARM = 0.001
"""The p-value below which a check fails."""
PLANTED_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Shares of wrong answers that are planted, to state which one would be seen."""
USUAL_COUNTS = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192)
"""Numbers of canaries that are tried, to state how many show a share."""
PLANTED = 400
"""Runs with each."""
ROUNDED = 1e-9
"""Texts that are all alike differ by nothing, which sums in another order round to something."""
REPEATED = 20
"""Runs with a share of other words, each shuffled by itself: those words change what chance makes of them."""


def spectrum(texts: Sequence[str]) -> Floats:
    """Return the normalised spectrum kernel of texts [texts, texts]: shared runs of GRAM characters (Leslie 2002)."""
    grams = [[text[begun : begun + GRAM] for begun in range(max(1, len(text) - GRAM + 1))] for text in texts]
    index = {gram: number for number, gram in enumerate(dict.fromkeys(gram for text in grams for gram in text))}
    counts = np.zeros((len(texts), len(index)))
    for row, text in enumerate(grams):
        np.add.at(counts[row], [index[gram] for gram in text], 1.0)
    norms = np.linalg.norm(counts, axis=1, keepdims=True)
    unit = counts / np.where(norms == 0, 1.0, norms)
    similar: Floats = unit @ unit.T
    return similar


@dataclass(frozen=True, slots=True)
class SampledTexts:
    """The answers to one canary, the draft's first."""

    labels: Floats
    """[text]: 1 over the number of the draft's, and -1 over that of plain decoding's."""
    similar: Floats
    """[text, text]"""

    def shuffle_labels(self, runs: int, rng: np.random.Generator) -> Floats:
        """Return labels in *runs* random orders, [run, text]: which arm wrote which text makes no difference."""
        return rng.permuted(np.tile(self.labels, (runs, 1)), axis=1)

    def compare_arms(self, labels: Floats) -> Floats:
        """Return for each row of labels, [2, run], the squared mean discrepancy of both arms, and their lean.

        The lean is by how much the draft's texts are more like all the others than plain decoding's are: greedy ones
        are, and other words are less. It finds a few of them in arms of unequal size, where a discrepancy does not.
        """
        alike = (self.similar.sum(axis=1) - 1) / (len(self.similar) - 1)
        return np.stack([((labels @ self.similar) * labels).sum(axis=1), labels @ alike])

    def plant_greedy_answers(self, share: float, rng: np.random.Generator) -> Floats:
        """Return labels of runs in which a *share* of the draft's answers are one and the same, as greedy ones are.

        The text that is most like all others stands in for the greedy one, which nothing shows.
        """
        labels = self.shuffle_labels(PLANTED, rng)
        greedy = (labels > 0) & (rng.random(labels.shape) < share)
        planted = np.where(greedy, 0.0, labels)
        planted[:, self.similar.sum(axis=0).argmax()] += np.where(greedy, labels, 0.0).sum(axis=1)
        return planted

    def with_other_words(self, share: float, rng: np.random.Generator) -> "SampledTexts":
        """Return these where a *share* of the draft's answers have words that are like those of no other text."""
        right = (self.labels < 0) | (rng.random(self.labels.shape) >= share)
        similar = np.where(np.outer(right, right), self.similar, 0.0)
        np.fill_diagonal(similar, 1.0)
        return replace(self, similar=similar)


@dataclass(frozen=True, slots=True)
class Shuffles:
    """What the answers to all canaries differ by together: as they were written, then in random orders."""

    sums: Floats
    """[2, order]: discrepancy and lean, see `SampledTexts.compare_arms`."""

    @classmethod
    def of(cls, texts: Sequence[SampledTexts], rng: np.random.Generator) -> "Shuffles":
        """Shuffle the labels in each canary."""
        sums = np.zeros((2, SHUFFLES + 1))
        for of_canary in texts:
            rows = of_canary.shuffle_labels(SHUFFLES + 1, rng)
            rows[0] = of_canary.labels
            sums += of_canary.compare_arms(rows)
        return cls(sums)

    def standardise_sums(self, sums: Floats) -> Floats:
        """Return the larger of both sums, [order], each in standard deviations of the random orders."""
        mean = self.sums.mean(axis=1, keepdims=True)
        deviation = np.maximum(self.sums.std(axis=1, keepdims=True), ROUNDED)
        discrepancy, lean = (sums - mean) / deviation
        larger: Floats = np.maximum(discrepancy, np.abs(lean))
        return larger

    @property
    def chance(self) -> float:
        """Return the share of orders that differ by at least as much as the first one, up to rounding."""
        differences = self.standardise_sums(self.sums)
        return float(np.mean(differences >= differences[0] - SAME))

    def find_threshold(self, alarm: float) -> float:
        """Return the difference that chance exceeds in a share *alarm* of orders."""
        return float(np.quantile(self.standardise_sums(self.sums)[1:], 1 - alarm))


def visible_greedy(
    texts: Sequence[SampledTexts], shuffles: Shuffles, alarm: float, shares: Sequence[float], rng: np.random.Generator
) -> float | None:
    """Return the least of the *shares* of greedy answers whose difference is found in 95 % of runs, if any."""
    needed = shuffles.find_threshold(alarm)
    for share in shares:
        sums: Floats = np.sum(
            [of_canary.compare_arms(of_canary.plant_greedy_answers(share, rng)) for of_canary in texts], axis=0
        )
        if float(np.mean(shuffles.standardise_sums(sums) > needed + SAME)) >= POWER:
            return share
    return None


def visible_words(
    texts: Sequence[SampledTexts], alarm: float, shares: Sequence[float], rng: np.random.Generator
) -> float | None:
    """Return the least of the *shares* of answers with other words that is found in all but one of REPEATED runs."""
    return next((share for share in shares if _finds_words(texts, share, alarm, rng)), None)


@lru_cache(maxsize=16)
def canaries_to_see(share: float, alarm: float = ALARM) -> int | None:
    """Return with how many canaries, of two answers in each arm, other words in a *share* of answers are found.

    Answers to one canary are taken for alike, beside which other words stand out most. None: with no usual number.
    """
    labels = np.array([0.5, 0.5, -0.5, -0.5])
    alike = SampledTexts(labels, np.ones((4, 4)))
    rng = np.random.default_rng(0)
    return next((count for count in USUAL_COUNTS if _finds_words([alike] * count, share, alarm, rng)), None)


def _finds_words(texts: Sequence[SampledTexts], share: float, alarm: float, rng: np.random.Generator) -> bool:
    missed = 0
    for _ in range(REPEATED):
        planted = [of_canary.with_other_words(share, rng) for of_canary in texts]
        missed += Shuffles.of(planted, rng).chance >= alarm
        if missed > 1:
            return False
    return True


def sampled_answers(paired: PairedAnswers, kernel: Kernel = spectrum, alarm: float = ALARM) -> Estimate | Missing:
    """Return the p-value that both arms sample their answers from one distribution, by their texts alone.

    The statistic is the larger one of two sums over canaries, in standard deviations: the squared maximum mean
    discrepancy (Gretton 2012), and by how much the draft's texts are more or less like all others. Labels are shuffled
    in a canary, so the test is exact at any number of answers, and the observed order counts among the shuffles. It
    states the share of greedy answers that it would have seen; where answers hardly differ, so that greedy ones are no
    other, the share of answers with other words. Where neither is seen at `visible_harm`, it is open.
    """
    if paired.greedy:
        return Missing("at temperature 0 every answer to a canary is the same")
    paired = paired.words
    texts: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in paired.canaries}
    for arm, answers in enumerate((paired.answers, paired.plain)):
        for generation in answers:
            if generation.answer.fault is None and generation.canary in texts:
                texts[generation.canary][arm].append(generation.answer.reasoning + generation.answer.text)
    compared = {name: arms for name, arms in texts.items() if min(map(len, arms)) > 1}
    if len(compared) < LEAST_CANARIES:
        return Missing(f"{len(compared)} canaries have two answers in each arm, {LEAST_CANARIES} are needed")
    rng = np.random.default_rng(paired.seed)
    sampled = []
    for drafting, plain in compared.values():
        labels = np.repeat([1.0 / len(drafting), -1.0 / len(plain)], [len(drafting), len(plain)])
        sampled.append(SampledTexts(labels, kernel([*drafting, *plain])))
    shuffles, count = Shuffles.of(sampled, rng), sum(len(of_canary.labels) for of_canary in sampled)
    chance, most = shuffles.chance, paired.visible_harm
    counts = f"{count} whole answers to {len(compared)} canaries"
    if chance < alarm:
        return fact(chance, count, counts)
    shares = (*(share for share in PLANTED_SHARES if share < most), most)
    if (share := visible_greedy(sampled, shuffles, alarm, shares, rng)) is not None:
        return fact(chance, count, f"{counts}; found if {percent(share, '.2g')} were greedy")
    if (share := visible_words(sampled, alarm, shares, rng)) is not None:
        return fact(chance, count, f"{counts}; found if {percent(share, '.2g')} had other words")
    need = canaries_to_see(most, alarm)
    enough = need is None or need <= len(compared)  # each with too few answers in one of the arms
    advice = "more canaries, or answers to each, show that" if enough else f"about {need} canaries show that"
    because = f"of {counts}, greedy ones or other words would not be found in {percent(most, '.2g')}: {advice}"
    return Missing(because, count)
