"""The energy of the same work: joules a token of the candidate over plain decoding's, above the power at rest."""

from dataclasses import dataclass, replace
from math import fsum
from statistics import fmean

from gatekeeper.analysis.metrics.paired_answers import (
    AnswerPowers,
    Pair,
    PairedAnswers,
    mean_ratio,
    similar_lengths,
    too_many_lost,
)
from gatekeeper.analysis.metrics.timing import output_tokens
from gatekeeper.analysis.stats.total_time import linearised
from gatekeeper.core.units import show
from gatekeeper.core.verdict import Estimate, Missing, rounded


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """What the tokens of both arms took, above rest in the middle of its range."""

    plain: float
    """Joules a token."""
    drafting: float
    basis: str
    """Whose power it is, and which tool read it."""

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {"plain": rounded(self.plain), "drafting": rounded(self.drafting), "basis": self.basis}


def energy_use(paired: PairedAnswers) -> EnergyUse | None:
    """Return the joules a token of both arms, over the pairs that `energy_ratio` compares; None where it has none."""
    energy = _energy(paired)
    return None if isinstance(energy, Missing) else energy[1]


def energy_ratio(paired: PairedAnswers) -> Estimate | Missing:
    """Return total joules of the candidate over those of plain decoding for the same tokens, pair by pair.

    The joules of an answer are its mean power above rest times its seconds. Rest may be anything that was measured
    before and after the soak, so the bounds are the outer ones of both ends.
    """
    energy = _energy(paired)
    return energy if isinstance(energy, Missing) else energy[0]


def _energy(paired: PairedAnswers) -> tuple[Estimate, EnergyUse] | Missing:
    powers = paired.powers()
    if isinstance(powers, str):
        return Missing(powers)
    sound = [pair for pair in paired.pairs if _comparable(pair, paired)]
    if (reason := too_many_lost(len(paired.pairs) - len(sound), paired)) is not None:
        return Missing(reason, len(paired.pairs))
    weighed = [pair for pair in sound if all(powers.joules(generation, 0.0) is not None for generation in pair)]
    if len(sound) - len(weighed) > paired.lost_limit * len(sound):
        because = f"{len(sound) - len(weighed)} of {len(sound)} pairs have an answer in which no reading of the power"
        return Missing(f"{because} began and ended: it is shorter than two samples of the host", len(weighed))
    low, high = powers.rest
    middle, *ends = (_at_rest(weighed, paired, powers, rest) for rest in (fmean(powers.rest), low, high))
    if isinstance(middle, Missing):
        return middle
    reached = [end for end in ends if isinstance(end, Estimate)]
    if len(reached) < len(ends):
        return next(end for end in ends if isinstance(end, Missing))
    notes = (powers.basis + (f", less {show(low, 'W')} to {show(high, 'W')} at rest" if high else ", with rest"),)
    return replace(_hull(middle, reached), notes=notes), _use(weighed, powers)


def _use(pairs: list[Pair], powers: AnswerPowers) -> EnergyUse:
    rest = fmean(powers.rest)
    drafting, plain = (
        fsum(powers.joules(generation, rest) or 0.0 for generation in arm)
        / sum(output_tokens(generation.answer) for generation in arm)
        for arm in zip(*pairs, strict=True)
    )
    return EnergyUse(plain, drafting, powers.basis)


def _comparable(pair: Pair, paired: PairedAnswers) -> bool:
    whole = all(generation.answer.fault is None and output_tokens(generation.answer) > 0 for generation in pair)
    return whole and similar_lengths(pair, paired.least_length)


def _at_rest(pairs: list[Pair], paired: PairedAnswers, powers: AnswerPowers, rest: float) -> Estimate | Missing:
    """Return the ratio, if the machine drew *rest* watts without any request."""
    totals = []
    for pair in pairs:
        tokens = fmean(output_tokens(generation.answer) for generation in pair)
        drafting, plain = (
            tokens * (powers.joules(generation, rest) or 0.0) / output_tokens(generation.answer) for generation in pair
        )
        if min(drafting, plain) <= 0:
            return Missing(f"{powers.basis}: no more during an answer than at rest", len(pairs))
        totals.append((pair[0].canary, drafting, plain))
    # It bounds the first total over the second.
    return mean_ratio(linearised(totals), paired)


def _hull(middle: Estimate, ends: list[Estimate]) -> Estimate:
    """Return *middle* with the outermost bounds of all, and so for prompts like these."""
    every = [middle, *ends]
    populations = [estimate.population for estimate in every if estimate.population is not None]
    return replace(
        middle,
        lo=min(estimate.lo for estimate in every),
        hi=max(estimate.hi for estimate in every),
        population=_hull(populations[0], populations[1:]) if len(populations) == len(every) else None,
    )
