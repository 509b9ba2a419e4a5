"""Early stopping of a sweep: a setting that is slower than plain decoding, or than another, gets no more answers.

The sweep chooses and the soak proves, so an interval of one look alone is enough. The sweep and the verdict use the
same function, so a resumed run and a run that is judged again come to the same result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gatekeeper.analysis.metrics import comparability
from gatekeeper.analysis.plan.objectives import NO_LOSS
from gatekeeper.analysis.plan.settings import concurrency_of, conditions_of
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, Block, SweepPlan, Trial
from gatekeeper.analysis.stats import intervals, sequential
from gatekeeper.analysis.sweep.sweep_answers import Stop, StopKind, SweepAnswers
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import knob_name, last_part
from gatekeeper.core.units import show_comparison

WARM_UP_GAIN, WARM_UP_S = 1.6, 600.0
"""How many times as fast as at its start a process may become, and within how many seconds: one that begins 35 % slower
does."""


def early_stops(sweep: SweepAnswers, before: int | None = None) -> dict[str, Stop]:
    """Return why the sampling of a candidate stopped, by its name, at the looks before stretch *before*, or at all.

    A look reads only the answers of its own and of earlier stretches, so later records do not change it.
    """
    looks = len(sweep.plan.looks.get(sweep.workload, ()))
    stops: dict[str, Stop] = {}
    for number in range(1, looks if before is None else min(before + 1, looks)):
        answers = sweep.until(number)
        # Where plain decoding has no one speed, a ratio to it says nothing.
        if comparability.instability(comparability.after_slow_start(answers.plain_answers)) is not None:
            continue
        live = [trial for trial in competing(sweep.slo, sweep.plan) if trial.name not in stops]
        compared = {trial.name: _Compared.of(answers, trial) for trial in live}
        for trial in live:
            if (slower := _slower(answers, trial, live, compared)) is not None:
                stops[trial.name] = Stop(slower[0], number, slower[1])
    return stops


def wants_answers(stops: Mapping[str, Stop], block: Block, trial: Trial) -> bool:
    """Return whether a trial needs more answers; a plain trial needs them for its candidates, or for itself."""
    if trial.arm == "candidate":
        return trial.name not in stops
    baseline = BASELINE if trial.name == NULL else trial.name
    candidates = [candidate for candidate in block.candidates if candidate.baseline == baseline]
    return not candidates or any(candidate.name not in stops for candidate in candidates)


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


def least_speed(age_s: float) -> float:
    """Return the speed over plain decoding's below which a setting is slower, when its process is *age_s* old.

    A process that still warms up is slower than it will be.
    """
    at_start = 1 / WARM_UP_GAIN
    return NO_LOSS * (at_start + (1 - at_start) * min(1.0, age_s / WARM_UP_S))


@dataclass(frozen=True, slots=True)
class _Compared:
    """The mean log ratio of a setting to plain decoding, by canary; empty where too many answers were lost."""

    measure: str
    logs: Mapping[str, float]

    @classmethod
    def of(cls, answers: SweepAnswers, trial: Trial) -> "_Compared":
        measure, pairs, few = answers.compare_trial(trial)
        return cls(measure, {} if few else pairs.means())

    def over(self, rival: "_Compared", level: float) -> Estimate | Missing:
        """Return the interval of its speed over a rival's, on the canaries that both have."""
        shared = self.logs.keys() & rival.logs.keys() if self.measure == rival.measure else ()
        return _interval([self.logs[canary] - rival.logs[canary] for canary in sorted(shared)], level)


def _slower(
    answers: SweepAnswers, trial: Trial, live: Sequence[Trial], compared: Mapping[str, _Compared]
) -> tuple[StopKind, str] | None:
    """Return why a setting is proven slower than the fastest that it competes with, or than plain decoding."""
    own, level = compared[trial.name], answers.slo.confidence
    # One knob at a time, two values of different knobs do not compete: the best values of both are combined.
    rivals = [rival for rival in live if None in {trial.changed, rival.changed} or trial.changed == rival.changed]
    best = max(rivals, key=lambda rival: fmean(compared[rival.name].logs.values() or [float("-inf")]))
    apart = own.over(compared[best.name], level)
    if isinstance(apart, Estimate) and apart.hi < 1:
        return "slower-than-another", _describe(apart, _difference(best, trial))
    ratio = _interval([*own.logs.values()], level)
    if isinstance(ratio, Estimate) and ratio.hi < least_speed(answers.age_s(trial)):
        return "slower-than-plain", _describe(ratio, "plain decoding")
    return None


def _interval(logs: Sequence[float], level: float) -> Estimate | Missing:
    return intervals.mean_log(logs, level, least=sequential.MIN_CANARIES)


def _describe(ratio: Estimate, rival: str) -> str:
    """Write a ratio of speeds: 14 % slower than plain decoding: 0.86x [0.80, 0.92] on 24 canaries."""
    return f"{show_comparison(ratio.center, ratio.lo, ratio.hi, rival)} on {ratio.n} canaries"


def _difference(trial: Trial, rival: Trial) -> str:
    """Name the knobs in which a trial differs from another: draft length 6."""
    knobs, rival_knobs = dict(trial.setting), dict(rival.setting)
    return ", ".join(
        f"{knob_name(knob)} {last_part(knobs[knob])}" for knob in knobs if knobs[knob] != rival_knobs.get(knob)
    )
