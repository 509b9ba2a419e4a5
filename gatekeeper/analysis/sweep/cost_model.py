"""The cost model of speculation: what a round yields and what it costs, from the sweep's answers.

After Leviathan, Kalman and Matias (2023, arXiv 2211.17192): a round yields one token of the target and every proposed
token before the first that is rejected; it costs one verify pass and a draft step per proposed token. All costs are
measured on this host.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, linear_regression, median

from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import decode_rate, gaps_by_answer
from gatekeeper.analysis.stats.root_finding import root
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.core.verdict import Missing


@dataclass(frozen=True, slots=True)
class MeasuredRounds:
    """One speculating setting as the sweep measured it on one workload."""

    setting: Setting
    length: int
    """Tokens proposed in a round."""
    chances: tuple[float, ...]
    """By position of a round: how often a proposed token that was reached was accepted."""
    acceptance: float
    """Accepted over drafted."""
    tokens: float
    """Measured tokens per round."""
    seconds: float
    """Measured time of a round."""
    claimed: bool = False
    """The counters are the server's claims."""

    @property
    def draft(self) -> str:
        """Return the draft's name."""
        return str(dict(self.setting).get("draft"))


@dataclass(frozen=True, slots=True)
class RoundCost:
    """The seconds of a verify pass and of a draft step, and how they were derived."""

    verify: float
    step: float
    source: str
    misfit: float | None = None
    """Largest relative distance of a measured round from the fitted line; None with too few lengths to compare."""
    assumed: bool = False
    """The verify pass's share is assumed; a round's time and its break-even are measured nevertheless."""

    def round(self, length: int) -> float:
        """Return the modelled time of a round."""
        return self.verify + length * self.step


def positions(answers: Iterable[Generation]) -> tuple[float, ...]:
    """Return, by position of a round, the accepted share of the proposed tokens that were reached."""
    tried, accepted = Counter[int](), Counter[int]()
    for generation in successful(answers):
        if (rounds := generation.answer.rounds) is not None:
            tried.update(dict(enumerate(rounds.tried_by_position)))
            accepted.update(dict(enumerate(rounds.accepted_by_position)))
    reached = [position for position in sorted(tried) if tried[position]]
    return tuple(accepted[position] / tried[position] for number, position in enumerate(reached) if number == position)


def expected_tokens(chances: Sequence[float]) -> float:
    """Return tokens per round: 1 + p1 + p1 p2 + …, where the 1 is the target's own token."""
    return 1.0 + sum(reached_chances(chances))


def reached_chances(chances: Sequence[float]) -> list[float]:
    """Return, by position, the chance that a proposed token and all before it are accepted."""
    return list(accumulate(chances, lambda before, chance: before * chance))


def break_even_chance(cost: float, length: int) -> float | None:
    """Return the chance, the same at all positions, at which a round of *cost* plain tokens pays; None if none does.

    Solves (1 - a^(k+1)) / (1 - a) = cost, written as the sum 1 + a + … + a^k.
    """
    if cost > length + 1:
        return None
    return root(lambda chance: expected_tokens([chance] * length) - cost, 0.0, 1.0)


def measure_rounds(setting: Setting, answers: Sequence[Generation], together_s: float) -> MeasuredRounds | Missing:
    """Return the measured rounds of one setting, or why there are none."""
    generations, claimed = counted_or_claimed(tuple(answers))
    judged = [generation for generation in successful(generations) if generation.role is not Role.WARMUP]
    counted = [generation for generation in judged if generation.answer.rounds is not None]
    counts = [generation.answer.rounds for generation in counted if generation.answer.rounds]
    drafted, accepted = sum(count.drafted for count in counts), sum(count.accepted for count in counts)
    rounds = sum(count.rounds for count in counts)
    if not counted:
        return Missing("this backend does not report rounds, so their cost and yield are unknown")
    if accepted and not drafted:
        return Missing("this backend does not count drafted tokens, so the cost of a round cannot be divided")
    if not drafted or not rounds:
        return Missing("the draft proposed no tokens: this is plain decoding with a second model in memory")
    gaps = gaps_by_answer([generation.answer for generation in counted], together_s)
    means = [fmean(answer_gaps) for answer_gaps in gaps if answer_gaps]
    if not means or median(means) <= 0:
        return Missing("the answers arrived in too few pieces to time a round")
    chances = positions(counted)
    measured_length = len(chances) or math.ceil(drafted / rounds)
    lengths = [dict(setting).get(knob) for knob in DRAFT_LENGTHS]
    length = next((value for value in lengths if isinstance(value, int)), measured_length)
    if not chances and length:
        # Counters without positions: the one chance for all positions that yields the measured tokens per round.
        chances = (break_even_chance(1 + accepted / rounds, length) or 1.0,) * length
    if length < 1:
        return Missing("no proposed token was verified")
    return MeasuredRounds(
        setting,
        length,
        chances=chances[:length],
        acceptance=accepted / drafted,
        tokens=1 + accepted / rounds,
        seconds=median(means),
        claimed=claimed,
    )


def plain_seconds(answers: Sequence[Generation]) -> float | None:
    """Return plain decoding's median time per token."""
    judged = (generation for generation in successful(answers) if generation.role is not Role.WARMUP)
    rates = [rate for generation in judged if (rate := decode_rate(generation.answer))]
    return 1 / median(rates) if rates else None


def costs(measurements: Sequence[MeasuredRounds], plain_token: float) -> dict[str, RoundCost]:
    """Return the cost by draft: fitted to its round times, or else estimated from one of them."""
    by_draft: dict[str, list[MeasuredRounds]] = defaultdict(list)
    for measurement in measurements:
        by_draft[measurement.draft].append(measurement)
    cost_by_draft = {draft: cost for draft, group in by_draft.items() if (cost := _line(group)) is not None}
    fit = next(iter(cost_by_draft.values()), None)
    for draft, group in by_draft.items():
        if draft not in cost_by_draft:
            cost_by_draft[draft] = _guess(group, fit, plain_token)
    return cost_by_draft


def _line(group: Sequence[MeasuredRounds]) -> RoundCost | None:
    """Fit round time = verify + length * step by least squares; None for one length, or where the fit is impossible."""
    points = sorted((measurement.length, measurement.seconds) for measurement in group)
    lengths = sorted({length for length, _ in points})
    if len(lengths) < 2:
        return None
    step, verify = linear_regression(*zip(*points, strict=True))
    if verify <= 0 or step < 0:
        return None
    off = (abs(seconds / (verify + length * step) - 1) for length, seconds in points)
    misfit = max(off) if len(lengths) > 2 else None
    fitted_lengths = ", ".join(str(length) for length in lengths)
    exact = "" if misfit is not None else " (two points, so the fit is exact)"
    return RoundCost(verify, step, f"a line through the round times at draft lengths {fitted_lengths}{exact}", misfit)


def _guess(group: Sequence[MeasuredRounds], fit: RoundCost | None, plain_token: float) -> RoundCost:
    """Split one round time: the verify pass from another draft's fit, else as long as a plain token."""
    rounds = group[0]
    verify = fit.verify if fit is not None else plain_token
    whose = "another draft's fit" if fit is not None else "plain decoding's time per token (assumed)"
    seconds = fmean(measurement.seconds for measurement in group if measurement.length == rounds.length)
    if seconds < verify:
        return RoundCost(
            seconds, 0.0, f"the round time at draft length {rounds.length}, counted entirely as the verify pass"
        )
    return RoundCost(
        verify,
        (seconds - verify) / rounds.length,
        f"the round time at draft length {rounds.length}, minus a verify pass taken from {whose}",
        assumed=fit is None,
    )
