"""The settings of a workload that a sweep stopped early, and those that may still be the fastest."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, Block, Trial
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.slo import CHOSEN, Slo
from gatekeeper.core.verdict import Estimate, Missing

Kind = Literal["slower-than-plain", "slower-than-another", "below-the-bound", "decided", "repeats-add-nothing"]

ALIKE = 0.05
"""Settings proven to differ by less are alike: the difference changes no decision (as in knob_effects.py)."""
PROVEN: frozenset[Kind] = frozenset({"slower-than-plain", "slower-than-another", "decided"})
"""Stops after which it is known whether the setting is faster than plain decoding."""
ABANDONED: frozenset[Kind] = frozenset({"slower-than-plain", "slower-than-another"})
"""Stops after which the setting cannot be chosen."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why sampling of a trial stopped early on a workload, and at which look."""

    kind: Kind
    look: int
    """Counts from 1."""
    because: str


@dataclass(slots=True)
class EarlyStops:
    """The state of one workload's trials after some looks."""

    looks: int = 0
    stops: dict[str, Stop] = field(default_factory=dict)
    """By candidate: those that were stopped early."""
    against_plain: dict[str, Estimate | Missing] = field(default_factory=dict)
    """The interval of a candidate's ratio that holds after all looks together."""
    passed: set[str] = field(default_factory=set)
    """Candidates proven faster than plain decoding, by more than the noise."""
    apart: dict[tuple[str, str], Estimate | Missing] = field(default_factory=dict)
    """Ratio of one candidate over another after all looks together."""
    maybe_bimodal: bool = False
    """Plain decoding varies so much that only all of its answers can show whether it is bimodal."""

    def ratio(self, candidate: Trial, rival: Trial) -> Estimate | Missing | None:
        """Return the interval of one candidate's speed over another's, after all looks together."""
        if (ratio := self.apart.get((candidate.name, rival.name))) is not None:
            return ratio
        back = self.apart.get((rival.name, candidate.name))
        if isinstance(back, Estimate):
            return replace(back, center=1 / back.center, lo=1 / back.hi, hi=1 / back.lo)
        return back

    def stop(self, trial: Trial, kind: Kind, because: str) -> None:
        """Stop a candidate early."""
        self.stops[trial.name] = Stop(kind, self.looks, because)

    def wants(self, block: Block, trial: Trial) -> bool:
        """Return whether a trial needs more answers; a plain trial needs them for its candidates, or for itself."""
        if trial.arm == "candidate":
            return trial.name not in self.stops
        baseline = BASELINE if trial.name == NULL else trial.name
        compared = [candidate for candidate in block.candidates if candidate.baseline == baseline]
        if not compared or (self.maybe_bimodal and baseline == BASELINE):
            return True
        return any(candidate.name not in self.stops for candidate in compared)


def contests(slo: Slo, candidates: Sequence[Trial]) -> tuple[tuple[Trial, ...], ...]:
    """Return the groups of candidates of which one is chosen: a whole grid, else one knob's values and the default."""
    knobs = [knob for knob in CHOSEN if any(trial.changed == knob for trial in candidates)]
    if slo.sweep.design == "grid" or len(knobs) < 2:
        return (tuple(candidates),)
    return tuple(tuple(trial for trial in candidates if trial.changed in {None, knob}) for knob in knobs)


def racing(state: EarlyStops, contest: Sequence[Trial]) -> list[Trial]:
    """Return the candidates of a contest that may still be the fastest."""
    candidates = [
        trial for trial in contest if trial.name not in state.stops or state.stops[trial.name].kind == "decided"
    ]
    return [trial for trial in candidates if faster(state, trial, contest) is None]


def faster(state: EarlyStops, trial: Trial, contest: Sequence[Trial]) -> Trial | None:
    """Return a candidate of the contest that is proven faster, if there is one."""
    rivals = (rival for rival in contest if rival is not trial)
    return next((rival for rival in rivals if sequential.decide(state.ratio(trial, rival), 1) == "fail"), None)


def settled(state: EarlyStops, contest: Sequence[Trial]) -> bool:
    """Return whether all candidates that may still be the fastest are proven alike."""
    ratios = [state.ratio(trial, rival) for trial, rival in combinations(racing(state, contest), 2)]
    return all(isinstance(ratio, Estimate) and 1 / (1 + ALIKE) < ratio.lo and ratio.hi < 1 + ALIKE for ratio in ratios)
