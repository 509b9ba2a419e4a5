"""Early stopping of a sweep: which settings need no more answers of a workload, derived from the records alone.

The sweep chooses and the soak proves. So a setting is stopped once another one reads faster beyond the noise of a look,
and all of them once none can be clearly faster than the best (successive elimination: Even-Dar, Mannor & Mansour 2006);
to stop the wrong one of two that are alike costs nothing. The sweep and the verdict use the same function, so a resumed
run and a run that is judged again come to the same result.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from gatekeeper.analysis.metrics import comparability
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.objectives import NO_LOSS, least_ratio
from gatekeeper.analysis.plan.settings import concurrency_of, conditions_of
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, Block, SweepPlan, Trial
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.sweep.same_settings import same_settings
from gatekeeper.analysis.sweep.sweep_answers import Stop, StopKind, SweepAnswers
from gatekeeper.core.slo import CHOSEN, Slo
from gatekeeper.core.text import knob_name, last_part
from gatekeeper.core.units import show_comparison
from gatekeeper.core.verdict import Estimate, Missing

ALIKE = 0.05
"""Settings that differ by less are alike: the difference changes no decision."""
ENOUGH = 12
"""Canaries that the setting to soak has answered at least: with its soak they show the noise of a canary's answers, for
which 8 degrees of freedom are needed."""
WARM_UP_GAIN, WARM_UP_S = 1.6, 600.0
"""How many times as fast as at its start a process may become, and within how many seconds: one that begins 35 % slower
does."""


@dataclass(slots=True)
class EarlyStops:
    """The state of one workload's trials after some looks."""

    stops: dict[str, Stop] = field(default_factory=dict)
    """By candidate: those that were stopped early."""
    against_plain: dict[str, Estimate | Missing] = field(default_factory=dict)
    """The interval of a candidate's ratio that holds after all looks together."""

    def wants(self, block: Block, trial: Trial) -> bool:
        """Return whether a trial needs more answers; a plain trial needs them for its candidates, or for itself."""
        if trial.arm == "candidate":
            return trial.name not in self.stops
        baseline = BASELINE if trial.name == NULL else trial.name
        compared = [candidate for candidate in block.candidates if candidate.baseline == baseline]
        return not compared or any(candidate.name not in self.stops for candidate in compared)


def early_stops(sweep: SweepAnswers, before: int | None = None) -> EarlyStops:
    """Replay the looks at the answers; only those before stretch *before*, if it is given.

    A look reads only the answers of its own and of earlier stretches, so later records do not change it.
    """
    counts = sweep.plan.looks.get(sweep.workload, ())
    candidates = competing(sweep.slo, sweep.plan)
    if len(counts) < 2 or not candidates:
        return EarlyStops()
    state = EarlyStops()
    errors = sequential.nominal_errors(counts, counts[-1], (1 - bound_level(sweep.slo)) / len(candidates))
    for number in range(1, len(counts) if before is None else min(before + 1, len(counts))):
        live = [trial for trial in candidates if trial.name not in state.stops]
        seen = sweep.until(number)
        steady = comparability.after_slow_start(seen.plain_answers)
        if not live or comparability.instability(steady) is not None:
            continue
        compared = {trial.name: seen.compared(trial) for trial in live}
        logs = {name: (measure, {} if few else pairs.means()) for name, (measure, pairs, few) in compared.items()}
        for name, (_, by_canary) in logs.items():
            now = sequential.interval(list(by_canary.values()), errors[number - 1])
            state.against_plain[name] = sequential.intersected(state.against_plain.get(name), now)
        for group in same_settings(seen, live):
            state.stops |= {trial.name: Stop("same-setting", number, group.says) for trial in group.trials[1:]}
        live = [trial for trial in live if trial.name not in state.stops]
        stops = _Look(seen, live, logs, state.against_plain).stops()
        state.stops |= {trial.name: Stop(kind, number, because) for trial, (kind, because) in stops.items()}
    return state


def competing(slo: Slo, plan: SweepPlan) -> tuple[Trial, ...]:
    """Return the candidates that compete: one stream, and the conditions of the default setting.

    Other conditions are reported and never chosen, and concurrent answers slow each other down: both are sampled in
    full.
    """
    return tuple(
        trial
        for trial in plan.candidates
        if conditions_of(trial.setting) == conditions_of(plan.candidates[0].setting)
        and concurrency_of(slo, trial.setting) == 1
    )


def contests(sweep: SweepAnswers) -> list[list[Trial]]:
    """Return the groups of candidates of which one is chosen: a whole grid, else one knob's values and the default."""
    candidates = competing(sweep.slo, sweep.plan)
    knobs = [knob for knob in CHOSEN if any(trial.changed == knob for trial in candidates)]
    if sweep.slo.sweep.design == "grid" or len(knobs) < 2:
        return [list(candidates)]
    return [[trial for trial in candidates if trial.changed in {None, knob}] for knob in knobs]


def may_gain(age_s: float) -> float:
    """Return how many times as fast a process may become that still warms up, after *age_s* seconds."""
    at_start = 1 / WARM_UP_GAIN
    return 1 / (at_start + (1 - at_start) * min(1.0, age_s / WARM_UP_S))


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the settings of a workload that are still sampled."""

    sweep: SweepAnswers
    live: Sequence[Trial]
    logs: Mapping[str, tuple[str, Mapping[str, float]]]
    """By trial: its measure, and its mean log ratio by canary."""
    against_plain: Mapping[str, Estimate | Missing]

    def stops(self) -> dict[Trial, tuple[StopKind, str]]:
        """Return the settings to stop, each with its reason: all where none can be reached, or none can be better."""
        texts = {trial: _compared(self.against_plain[trial.name]) for trial in self.live}
        if all(self._too_slow(trial) for trial in self.live):
            slower = {trial for trial in texts if sequential.decide(self.against_plain[trial.name], NO_LOSS) == "fail"}
            return {
                trial: ("slower-than-plain" if trial in slower else "below-the-bound", text)
                for trial, text in texts.items()
            }
        races = [[trial for trial in contest if trial in self.live] for contest in contests(self.sweep)]
        stops: dict[Trial, tuple[StopKind, str]] = {}
        for trial in self.live:
            bests = [max(race, key=self._speed) for race in races if trial in race]
            apart = [self._over(trial, best) for best in bests]
            if all(sequential.decide(ratio, 1) == "fail" for ratio in apart):
                stops[trial] = "slower-than-another", _compared(apart[0], _apart(bests[0], trial))
        remaining = [[trial for trial in race if trial not in stops] for race in races]
        unsettled = {trial for race in remaining if race and not self._settled(race) for trial in race}
        for trial in self.live:
            if trial not in stops and trial not in unsettled:
                stops[trial] = "decided", texts[trial]
        return stops

    def _speed(self, trial: Trial) -> float:
        return fmean(self.logs[trial.name][1].values() or [-math.inf])

    def _over(self, trial: Trial, rival: Trial) -> Estimate | Missing:
        """Return the interval of one setting's speed over another's, at this look alone."""
        (measure, logs), (rival_measure, rival_logs) = self.logs[trial.name], self.logs[rival.name]
        if measure != rival_measure:
            return Missing("the settings have no measure in common")
        apart = [logs[canary] - rival_logs[canary] for canary in logs if canary in rival_logs]
        return sequential.interval(apart, 1 - self.sweep.slo.confidence)

    def _too_slow(self, trial: Trial) -> bool:
        """Return whether a setting is slower than plain decoding, or, where it must speculate, cannot reach its bound.

        A process that still warms up is slower than it will be.
        """
        least = NO_LOSS
        if self.sweep.required:
            bound = least_ratio(self.sweep.slo, self.sweep.workload, self.logs[trial.name][0])
            least = bound / may_gain(self.sweep.age_s(trial))
        return sequential.decide(self.against_plain[trial.name], least) == "fail"

    def _settled(self, race: Sequence[Trial]) -> bool:
        """Return whether no other setting can be clearly faster than the best, nor plain decoding where it may win."""
        best = max(race, key=self._speed)
        ratio = self.against_plain[best.name]
        if isinstance(ratio, Missing) or ratio.n < ENOUGH:
            return False
        if not self.sweep.required and sequential.decide(ratio, NO_LOSS) == "continue":
            return False
        for rival in race:
            apart = self._over(rival, best)
            if rival is not best and not (isinstance(apart, Estimate) and apart.hi < 1 + ALIKE):
                return False
        return True


def _compared(ratio: Estimate | Missing | None, rival: str = "plain decoding") -> str:
    """Write a ratio of speeds: 14 % slower than plain decoding: 0.86x [0.80, 0.92] on 24 canaries."""
    if not isinstance(ratio, Estimate):
        return f"not compared with {rival}"
    return f"{show_comparison(ratio.center, ratio.lo, ratio.hi, rival)} on {ratio.n} canaries"


def _apart(trial: Trial, rival: Trial) -> str:
    """Name the knobs in which a trial differs from another: draft length 6."""
    knobs, rival_knobs = dict(trial.setting), dict(rival.setting)
    return ", ".join(
        f"{knob_name(knob)} {last_part(knobs[knob])}" for knob in knobs if knobs[knob] != rival_knobs.get(knob)
    )
