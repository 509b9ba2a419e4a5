"""Settings of a sweep with which the server does the same work: a knob without effect, or a length that it limits."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gatekeeper.analysis.metrics.paired_answers import per_canary, successful
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.plan.sweep_plan import Trial
from gatekeeper.analysis.stats.sequential import MIN_CANARIES
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.records import Rounds
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.core.text import knob_name, listed
from gatekeeper.core.verdict import Finding, FindingKind

LENGTH_KNOBS = (*DRAFT_LENGTHS, "draft_n_min", "draft_p_min")
"""Knobs that do nothing but change how many tokens are drafted."""
SAME_LENGTH = 0.02
"""Drafted tokens a round that differ by a smaller share are equal: from 32 to 33 tokens it is 3 %."""
APART = 3.0
"""Standard errors by which two shares of accepted tokens must differ, at any position."""


@dataclass(frozen=True, slots=True)
class SameSettings:
    """Trials that cannot be told apart by what they drafted and what of it was accepted, the shortest draft first."""

    trials: tuple[Trial, ...]
    tokens_a_round: float

    @property
    def says(self) -> str:
        """Say which values are one setting, and what it drafts."""
        settings = [dict(trial.setting) for trial in self.trials]
        knobs = [knob for knob in LENGTH_KNOBS if len({setting.get(knob) for setting in settings}) > 1]
        values = [" / ".join(str(setting.get(knob)) for knob in knobs) for setting in settings]
        names = " / ".join(map(knob_name, knobs))
        same = f"{self.tokens_a_round:.1f} drafted tokens a round, accepted alike at each position"
        return f"{names} has no effect here: {listed(values)} are one setting, {same}"

    def finding(self, about: str) -> Finding:
        """Return it as a finding."""
        advice = "keep one of these values in [sweep]; the server's log may say to what it limits the length"
        return Finding(FindingKind.KNOB_WITHOUT_EFFECT, about, self.says, advice)


def same_settings(sweep: SweepAnswers, trials: Iterable[Trial]) -> list[SameSettings]:
    """Return the groups of two *trials* or more that differ in their draft lengths and in nothing that was drafted.

    Compared are answers to the same prompts, of at least `MIN_CANARIES` canaries. Where drafted tokens are neither
    counted nor claimed, or none was drafted, nothing is known to be the same.
    """
    groups: list[list[tuple[Trial, float]]] = []
    for trial in sorted(trials, key=_length):
        for group in groups:
            tokens_a_round = _same(sweep, group[0][0], trial)
            if tokens_a_round is not None:
                group.append((trial, tokens_a_round))
                break
        else:
            groups.append([(trial, 0.0)])
    return [SameSettings(tuple(trial for trial, _ in group), group[1][1]) for group in groups if len(group) > 1]


def _length(trial: Trial) -> tuple[float, ...]:
    knobs = dict(trial.setting)
    return tuple(float(knobs.get(knob) or 0) for knob in LENGTH_KNOBS)


def _others(trial: Trial) -> dict[str, Any]:
    return {knob: value for knob, value in trial.setting if knob not in LENGTH_KNOBS}


def _same(sweep: SweepAnswers, first: Trial, second: Trial) -> float | None:
    """Return the drafted tokens a round of two trials that draft alike; None where they do not, or it is not known."""
    counted = [_rounds(sweep, trial) for trial in (first, second)]
    shared = counted[0].keys() & counted[1].keys()
    if _others(first) != _others(second) or len(shared) < MIN_CANARIES:
        return None
    rounds = [[each for canary in shared for each in by_canary[canary]] for by_canary in counted]
    shares = [_shares(each) for each in rounds]
    passes = [sum(each.rounds for each in answers) for answers in rounds]
    drafted = [total for (_, total), *_ in shares]
    if not all((*passes, *drafted)):
        return None
    lengths = drafted[0] / passes[0], drafted[1] / passes[1]
    if max(lengths) > (1 + SAME_LENGTH) * min(lengths):
        return None
    if min(map(len, shares)) == 1:  # positions are not known of both
        shares = [share[:1] for share in shares]
    return None if any(_apart(*pair) for pair in zip_longest(*shares, fillvalue=(0, 0))) else lengths[0]


def _rounds(sweep: SweepAnswers, trial: Trial) -> dict[str, list[Rounds]]:
    """Return the counters of each answer, by canary."""
    answers, _ = counted_or_claimed(tuple(successful(sweep.of(trial.name))))
    return per_canary(answers, lambda answer: answer.rounds)


def _shares(rounds: Sequence[Rounds]) -> list[tuple[int, int]]:
    """Return accepted and verified tokens of several answers: of all that were drafted, then by position."""
    rows = [
        [(each.accepted, each.drafted), *zip(each.accepted_by_position, each.tried_by_position, strict=False)]
        for each in rounds
    ]
    columns = zip_longest(*rows, fillvalue=(0, 0))
    return [(sum(accepted for accepted, _ in column), sum(tried for _, tried in column)) for column in columns]


def _apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two shares, each (accepted, tried), differ by more than `APART` standard errors."""
    if not (one[1] and other[1]):
        return max(one[1], other[1]) > APART**2
    pooled = (one[0] + other[0]) / (one[1] + other[1])
    error = math.sqrt(max(0.0, pooled * (1 - pooled)) * (1 / one[1] + 1 / other[1]))
    return abs(one[0] / one[1] - other[0] / other[1]) > APART * error + 1e-9
