"""Early stopping of a sweep: which settings need no more answers of a workload, derived from the records alone.

Successive elimination (Even-Dar, Mannor & Mansour 2006) with the sequential interval: at each look a setting is
stopped that is proven slower than plain decoding, than another setting, or than the SLO's bound; the others continue
until they are proven alike. The sweep and the verdict use the same function, so a resumed run and a run that is judged
again come to the same result.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance

from gatekeeper.analysis.metrics import comparability
from gatekeeper.analysis.metrics.pair_speeds import PairSpeed, pair_logs, pair_speed
from gatekeeper.analysis.metrics.paired_answers import burst_gap, by_canary, least_length, total_time_counts
from gatekeeper.analysis.metrics.readers import PAIR_SPEEDS, Read, answer_reader
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.settings import concurrency_of, conditions_of, is_greedy
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, SweepPlan, Trial
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.stats.total_time import Logs
from gatekeeper.analysis.sweep.stopped_settings import EarlyStops, contests, faster, racing, settled
from gatekeeper.analysis.sweep.sweep_answers import MOST_LOST, SweepAnswers
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import compare_speed, knob_name, last_part
from gatekeeper.core.units import show_ratio
from gatekeeper.core.verdict import Estimate, Missing

WIDTH_KEPT = 0.95
"""Repeats are skipped if every interval would keep this share of its width or more."""
BIMODAL_LOG_SD = math.log(comparability.MODE_RATIO) * math.sqrt(
    2 * comparability.OUTLIER_SHARE * (1 - comparability.OUTLIER_SHARE)
)
"""Log-scale standard deviation of plain against plain at which the plain arm counts as bimodal."""


def early_stops(sweep: SweepAnswers, before: int | None = None) -> EarlyStops:
    """Replay the looks at the answers; only those before stretch *before*, if it is given.

    A look reads only the answers of its own and of earlier stretches, so later records do not change it.
    """
    state = EarlyStops()
    counts = sweep.plan.looks.get(sweep.workload, ())
    candidates = competing(sweep.slo, sweep.plan)
    if len(counts) < 2 or not candidates:
        return state
    looks = _Looks(sweep, candidates)
    errors = sequential.nominal_errors(counts, counts[-1], (1 - bound_level(sweep.slo)) / len(candidates))
    for number in range(1, (len(counts) if before is None else min(before + 1, len(counts)))):
        looks.look(state, number, errors[number - 1])
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


@dataclass(frozen=True, slots=True)
class _Pair:
    """A candidate's answer and plain decoding's; the mean over both plain arms."""

    stretch: int
    speeds: Mapping[str, PairSpeed | None]
    """By measure; None where the pair has none."""


class _Looks:
    """The looks at the settings of one workload."""

    def __init__(self, sweep: SweepAnswers, candidates: Sequence[Trial]) -> None:
        self._sweep, self._candidates = sweep, candidates
        self._contests = contests(sweep.slo, candidates)
        self._counts = sweep.plan.looks[sweep.workload]
        self._stretch = {
            (request.trial, request.pair, request.canary.id): block.stretch
            for block in sweep.plan.blocks
            for request in block.requests
            if request.workload == sweep.workload
        }
        self._plain = self._answers(BASELINE) + self._answers(NULL)
        together = burst_gap(generation for stretch, generation in self._plain if stretch == 0)
        self._measures: dict[str, Read] = {name: answer_reader(name).at(together) for name in PAIR_SPEEDS}
        null = [trial for trial in sweep.plan.trials if trial.name == NULL]
        self._pairs = {trial.name: self._paired(trial) for trial in (*candidates, *null)}
        self._canaries = len({canary for _, _, canary in self._stretch})
        planned = Counter(canary for trial, _, canary in self._stretch if trial in {BASELINE, NULL})
        often = [count for count in planned.values() if count >= comparability.BIMODAL_REPEATS]
        self._can_show_modes = sum(often) >= comparability.BIMODAL_ANSWERS
        """The whole plan has enough answers to show that plain decoding is bimodal."""

    def _answers(self, trial: str) -> list[tuple[int, Generation]]:
        """Return a trial's answers with their stretch, without those that are not in the plan."""
        return [
            (stretch, generation)
            for generation in self._sweep.of(trial)
            if (stretch := self._stretch.get((trial, generation.pair, generation.canary))) is not None
            and generation.role is not Role.WARMUP
        ]

    def _paired(self, trial: Trial) -> list[_Pair]:
        plain = {(generation.pair, generation.canary): generation for _, generation in self._answers(trial.baseline)}
        null, rules = self._sweep.null_answers(trial), self._sweep.plan.terms.rules
        least = least_length(greedy=is_greedy(self._sweep.slo, trial.setting), rules=rules)
        pairs = []
        for stretch, candidate in self._answers(trial.name):
            if (baseline := plain.get((candidate.pair, candidate.canary))) is not None:
                second = null.get((candidate.pair, candidate.canary))
                speeds = {
                    name: pair_speed((candidate, baseline), read, least, second)
                    for name, read in self._measures.items()
                }
                pairs.append(_Pair(stretch, speeds))
        return pairs

    def _seen(self, trial: str, number: int) -> tuple[str, dict[str, float]]:
        """Return the measure of a trial at a look and its mean log by canary; empty if many pairs are lost."""
        pairs = [pair for pair in self._pairs.get(trial, ()) if pair.stretch < number]
        for measure in self._measures:
            logs = self._logs(pairs, measure)
            if logs and len(logs) >= (1 - MOST_LOST) * len(pairs):
                return measure, {canary: fmean(values) for canary, values in sorted(by_canary(logs).items())}
        return "", {}

    def _logs(self, pairs: Sequence[_Pair], measure: str) -> Logs:
        """Return the logs of those of the pairs that have the measure; their mean is the log of the ratio."""
        speeds = [speed for pair in pairs if (speed := pair.speeds[measure]) is not None]
        return pair_logs(speeds, total=total_time_counts(self._sweep.plan.terms.rules)).logs

    def look(self, state: EarlyStops, number: int, error: float) -> None:
        """Look after stretch *number* (from 1), with the nominal *error* of this look."""
        state.looks = number
        plain = [generation for stretch, generation in self._plain if stretch < number]
        _, null = self._seen(NULL, number)
        noise = self._noise(number)
        state.maybe_bimodal = self._maybe_bimodal(plain, noise)
        live = [trial for trial in self._candidates if trial.name not in state.stops]
        if not live or comparability.instability(plain, self._sweep.plan.terms.rules) is not None:
            return
        measurements = {trial.name: self._seen(trial.name, number) for trial in live}
        for name, (_, logs) in measurements.items():
            before = state.against_plain.get(name)
            state.against_plain[name] = sequential.intersected(before, sequential.interval(list(logs.values()), error))
            if self._gains(state.against_plain[name], null):
                state.passed.add(name)
        for first, second in combinations([trial.name for trial in live], 2):
            (first_measure, first_logs), (second_measure, second_logs) = measurements[first], measurements[second]
            if first_measure == second_measure:
                apart = [first_logs[canary] - second_logs[canary] for canary in first_logs if canary in second_logs]
                now = sequential.interval(apart, error)
                state.apart[first, second] = sequential.intersected(state.apart.get((first, second)), now)
        self._stop(state, live, {name: measure for name, (measure, _) in measurements.items()})
        remaining = [trial for trial in live if trial.name not in state.stops]
        # Repeats also narrow the null arm, so they are skipped only where a ratio is clearly outside of its noise.
        edge = _edge(sequential.interval(list(null.values()), error))
        clear = [
            trial
            for trial in remaining
            if isinstance(ratio := state.against_plain[trial.name], Estimate) and not 1 / edge <= ratio.center <= edge
        ]
        if remaining == clear and self._repeats_add_nothing(
            [measurements[trial.name][1] for trial in remaining], noise, number
        ):
            for trial in remaining:
                because = f"{_compared(state.against_plain[trial.name])}; repeats would not narrow the interval"
                state.stop(trial, "repeats-add-nothing", because)

    def _noise(self, number: int) -> float | None:
        """Return the variance of one log of plain over plain decoding; None with too few pairs."""
        pairs = [pair for pair in self._pairs.get(NULL, ()) if pair.stretch < number]
        for measure in self._measures:
            logs = self._logs(pairs, measure)
            if len(logs) >= max(sequential.MIN_CANARIES, (1 - MOST_LOST) * len(pairs)):
                return variance(log for _, log in logs)
        return None

    def _repeats_add_nothing(self, logs: Sequence[Mapping[str, float]], noise: float | None, number: int) -> bool:
        """Return whether every canary was answered and repeats would narrow no interval: canaries differ, not answers.

        It depends on counts and spreads, never on which setting is faster, so it favours none.
        """
        repeats = self._counts[number - 1] / self._canaries
        if repeats < 1 or noise is None or any(len(by_canary) < sequential.MIN_CANARIES for by_canary in logs):
            return False
        gone = noise * (1 / repeats - self._canaries / self._counts[-1])
        apart = [
            [first[name] - second[name] for name in first if name in second] for first, second in combinations(logs, 2)
        ]
        spreads = [
            variance(values)
            for values in (*(list(by_canary.values()) for by_canary in logs), *apart)
            if len(values) > 1
        ]
        return all(spread - gone >= WIDTH_KEPT**2 * spread for spread in spreads)

    def _maybe_bimodal(self, plain: Sequence[Generation], noise: float | None) -> bool:
        answers_by_canary = Counter(generation.canary for generation in plain)
        often = sum(count for count in answers_by_canary.values() if count >= comparability.BIMODAL_REPEATS)
        enough = not self._can_show_modes or often >= comparability.BIMODAL_ANSWERS
        return not enough and (noise is None or noise > BIMODAL_LOG_SD**2)

    def _gains(self, ratio: Estimate | Missing, null: Mapping[str, float]) -> bool:
        """Return whether a gain is proven, and larger than the noise of plain over plain decoding."""
        edge = _edge(sequential.interval(list(null.values()), 1 - self._sweep.slo.confidence))
        return sequential.decide(ratio, 1) == "pass" and isinstance(ratio, Estimate) and ratio.center > edge

    def _stop(self, state: EarlyStops, live: Sequence[Trial], measures: Mapping[str, str]) -> None:
        """Stop the settings that are proven slower, then those that are decided."""
        words = {trial.name: sequential.decide(state.against_plain.get(trial.name), 1) for trial in self._candidates}
        all_slower = all(word == "fail" for word in words.values())
        alone = len(self._contests) == 1  # else a knob's best value counts in combination, even if slow by itself
        for trial in live:
            ratio, bound = state.against_plain[trial.name], self._bound(measures[trial.name])
            quicker = [faster(state, trial, contest) for contest in self._contests if trial in contest]
            if words[trial.name] == "fail" and (alone or all_slower):
                state.stop(trial, "slower-than-plain", _compared(ratio))
            elif (best := quicker[0]) is not None and all(quicker):
                state.stop(trial, "slower-than-another", _compared(state.ratio(trial, best), _apart(best, trial)))
            elif alone and bound is not None and sequential.decide(ratio, bound) == "fail":
                state.stop(trial, "below-the-bound", f"{_compared(ratio)}; the objective requires {bound:g}x")
        done = [contest for contest in self._contests if settled(state, contest)]
        decided = [trial for trial in live if trial.name in state.passed or words[trial.name] == "fail"]
        for trial in decided:
            entered = [contest for contest in self._contests if trial in racing(state, contest)]
            if trial.name not in state.stops and all(contest in done for contest in entered):
                state.stop(trial, "decided", _compared(state.against_plain[trial.name]))

    def _bound(self, measure: str) -> float | None:
        """Return the highest bound of the objectives on *measure*, which a setting must meet."""
        objectives = self._sweep.slo.objectives_for(self._sweep.workload, speculating=True)
        on_measure = (objective for objective in objectives if objective.metric == measure)
        return max((objective.threshold for objective in on_measure if objective.bound == "at_least"), default=None)


def _edge(noise: Estimate | Missing) -> float:
    """Return the noise of plain over plain decoding as a ratio above 1, in either direction; infinite if unknown."""
    return max(noise.hi, 1 / noise.lo) if isinstance(noise, Estimate) else math.inf


def _compared(ratio: Estimate | Missing | None, rival: str = "plain decoding") -> str:
    """Write a ratio of speeds: 14 % slower than plain decoding: 0.86x (0.80x to 0.92x) on 24 canaries."""
    if not isinstance(ratio, Estimate):
        return f"not compared with {rival}"
    measured = show_ratio(ratio.center, ratio.lo, ratio.hi)
    comparison = compare_speed(ratio.center, rival)
    with_it = (
        f"{comparison} ({ratio.lo:.2f}x to {ratio.hi:.2f}x)"
        if comparison.startswith(f"{ratio.center:.2f}x")
        else f"{comparison}: {measured}"
    )
    return f"{with_it} on {ratio.n} canaries"


def _apart(trial: Trial, rival: Trial) -> str:
    """Name the knobs in which a trial differs from another: draft length 6."""
    knobs, rival_knobs = dict(trial.setting), dict(rival.setting)
    return ", ".join(
        f"{knob_name(knob)} {last_part(knobs[knob])}" for knob in knobs if knobs[knob] != rival_knobs.get(knob)
    )
