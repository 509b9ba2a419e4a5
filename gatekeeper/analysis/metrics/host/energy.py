"""The energy of the same work: joules a token of the candidate over plain decoding's, above the power at rest.

The power drawn during an answer, and at rest, is that of a sensor's readings that were averaged wholly inside it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import fsum
from statistics import fmean

import numpy as np

from gatekeeper.analysis.metrics.host.host_estimates import check_power, power_note
from gatekeeper.analysis.metrics.host.host_series import Floats, HostSamples, readings, run_segment
from gatekeeper.analysis.metrics.lost_pairs import Pair, similar_lengths
from gatekeeper.analysis.metrics.paired_answers import AnswerPowers, PairedAnswers, mean_ratio
from gatekeeper.analysis.metrics.timing import output_tokens
from gatekeeper.analysis.stats.total_time import linearise_times
from gatekeeper.core.judgement import Estimate, Missing, Rounded
from gatekeeper.core.records import Generation
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.units import show

REST = "rest"
"""The phase of host samples in which the system under test runs and has nothing to do."""
BASES = ("package_power", "system_power")
"""What the watts of an answer may be of, the first choice first. The GPU's alone is neither: drafting uses the CPU."""
LONGEST_READING = 3.0
"""Intervals of sampling: a reading that is averaged over more spans a gap, and is of nothing in particular."""
RESTS = 2
"""Times of rest, before and after a soak, without which a drift of the power at rest would not show."""


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """What the tokens of both arms took, above rest in the middle of its range."""

    plain: Rounded
    """Joules a token."""
    drafting: Rounded
    basis: str
    """Whose power it is, and which tool read it."""


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
    if (reason := paired.too_many_lost(len(paired.pairs) - len(sound))) is not None:
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
    return mean_ratio(linearise_times(totals), paired)


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


def answer_powers(
    host: HostSamples, columns: HostColumns, answers: Iterable[Generation], *, rested: bool = True
) -> AnswerPowers | str:
    """Return the power of each of the *answers* by *columns*, all samples of the run; a reason where it is not known.

    *host* has the samples of the soak, in which a sensor shows whether it can be believed. Where it has not *rested*,
    as in a sweep, rest counts as 0 W.
    """
    reasons = []
    for name in BASES:
        power = host.series(name)
        if (missing := check_power(host, power)) is None:
            break
        reasons.append(missing.because)
    else:
        return "; ".join(reasons)
    by_process = _readings(columns, name, power.source, host.interval)
    rests = [watts for process in by_process.values() for watts in process.rests()] if rested else [0.0] * RESTS
    if len(rests) < RESTS:
        return f"{name}: the power at rest was read {len(rests)} times, and {RESTS} are needed, before and after a soak"
    watts = {
        (generation.trial, generation.key): mean
        for generation in answers
        if (process := by_process.get(generation.segment)) is not None
        and (mean := process.during(generation.answer.sent_ns / 1e9, generation.answer.ended_ns / 1e9)) is not None
    }
    return AnswerPowers(power_note(power), watts, (min(rests), max(rests)))


@dataclass(frozen=True, slots=True)
class _Readings:
    """The readings of one sensor in one process of gatekeeper, in columns of shape (n,), in the order of time."""

    begun: Floats
    """Seconds on the clock of the process at which each reading's average began."""
    ended: Floats
    watts: Floats
    resting: Floats
    """The number of the time of rest in which the average began and ended, 0 for none."""

    def during(self, begun: float, ended: float) -> float | None:
        """Return the mean of the readings inside a time span; None where there are none."""
        first, last = np.searchsorted(self.begun, begun), np.searchsorted(self.ended, ended, side="right")
        return float(np.mean(self.watts[first:last])) if last > first else None

    def rests(self) -> Iterator[float]:
        """Return the median power of each time of rest."""
        for number in np.unique(self.resting[self.resting > 0]):
            yield float(np.median(self.watts[self.resting == number]))


def _readings(columns: HostColumns, name: str, source: str, interval: float) -> dict[int, _Readings]:
    """Return the readings of *source* by the segment of the run, each reading once, whatever samples hold it."""
    every = readings(columns, name)
    numbers, ages = every.of_source(source), np.nan_to_num(every.ages)
    at, segments = np.array(columns.at_ns) / 1e9, np.array([run_segment(number) for number in columns.segment])
    phases, by_process = np.array(columns.phase), {}
    for segment in np.unique(segments):
        places = np.flatnonzero(segments == segment)
        places = places[np.argsort(at[places], kind="stable")]
        rest = _numbered_rests(phases[places] == REST)
        taken = at[places] - ages[places]
        # A sample may repeat the reading of the one before, which is older then.
        fresh = np.diff(taken, prepend=-np.inf) > interval / 10
        fresh &= np.isfinite(numbers[places])
        taken, watts, rest = taken[fresh], numbers[places][fresh], rest[fresh]
        begun, ended = taken[:-1], taken[1:]
        whole = ended - begun <= LONGEST_READING * interval
        # The first reading of a rest was averaged over what came before it, and the next one may be as old.
        at_rest = np.where((rest[1:] == rest[:-1]) & (rest[1:] == np.append(0, rest[:-2])), rest[1:], 0)
        by_process[int(segment)] = _Readings(begun[whole], ended[whole], watts[1:][whole], at_rest[whole])
    return by_process


def _numbered_rests(resting: Floats) -> Floats:
    """Return for each sample the number of its time of rest, counted from 1, and 0 where there is none."""
    numbers: list[int] = []
    count = 0
    for rests, group in groupby(resting.tolist()):
        count += rests
        numbers += [count if rests else 0] * len(list(group))
    return np.array(numbers, dtype=np.float64)
