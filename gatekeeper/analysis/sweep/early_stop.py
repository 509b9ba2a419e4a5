"""Early stopping of a sweep: which settings need no more answers of a workload, derived from the records alone.

Successive elimination (Even-Dar, Mannor & Mansour 2006) with the sequential interval: at each look a setting is
stopped that is proven slower than plain decoding, than another setting, or than the SLO's bound; the others continue
until they are proven alike. The sweep and the verdict use the same function, so a resumed run and a run that is judged
again come to the same result.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from statistics import fmean, variance
from typing import Literal

from gatekeeper.analysis.metrics import comparability
from gatekeeper.analysis.metrics.paired_answers import burst_gap
from gatekeeper.analysis.metrics.timing import answer_rate, decode_rate
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.settings import concurrency_of, conditions_of
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, Block, SweepPlan, Trial
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.sweep.sweep_answers import MOST_LOST, SweepAnswers, mean_log_ratio
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.slo import CHOSEN, Slo
from gatekeeper.core.text import compare_speed, knob_name, last_part
from gatekeeper.core.units import show_ratio
from gatekeeper.core.verdict import Estimate, Missing

Kind = Literal["slower-than-plain", "slower-than-another", "below-the-bound", "decided", "repeats-add-nothing"]

ALIKE = 0.05
"""Settings proven to differ by less are alike: the difference changes no decision (as in knob_effects.py)."""
WIDTH_KEPT = 0.95
"""Repeats are skipped if every interval would keep this share of its width or more."""
BIMODAL_LOG_SD = math.log(comparability.MODE_RATIO) * math.sqrt(
    2 * comparability.OUTLIER_SHARE * (1 - comparability.OUTLIER_SHARE)
)
"""Log-scale standard deviation of plain against plain at which the plain arm counts as bimodal."""
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

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {"kind": self.kind, "look": self.look, "because": self.because}


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

    def ratio(self, one: Trial, other: Trial) -> Estimate | Missing | None:
        """Return the interval of one candidate's speed over another's, after all looks together."""
        if (seen := self.apart.get((one.name, other.name))) is not None:
            return seen
        back = self.apart.get((other.name, one.name))
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
        compared = [one for one in block.candidates if one.baseline == baseline]
        return (
            not compared
            or (self.maybe_bimodal and baseline == BASELINE)
            or any(one.name not in self.stops for one in compared)
        )


def early_stops(sweep: SweepAnswers, before: int | None = None) -> EarlyStops:
    """Replay the looks at the answers; only those before stretch *before*, if it is given.

    A look reads only the answers of its own and of earlier stretches, so later records do not change it.
    """
    found = EarlyStops()
    counts = sweep.plan.looks.get(sweep.workload, ())
    candidates = competing(sweep.slo, sweep.plan)
    if len(counts) < 2 or not candidates:
        return found
    looks = _Looks(sweep, candidates)
    errors = sequential.nominal_errors(counts, counts[-1], (1 - bound_level(sweep.slo)) / len(candidates))
    for number in range(1, (len(counts) if before is None else min(before + 1, len(counts)))):
        looks.look(found, number, errors[number - 1])
    return found


def competing(slo: Slo, plan: SweepPlan) -> tuple[Trial, ...]:
    """Return the candidates that compete: one stream, and the conditions of the default setting.

    Other conditions are reported and never chosen, and concurrent answers slow each other down: both are sampled in
    full.
    """
    return tuple(
        one
        for one in plan.candidates
        if conditions_of(one.setting) == conditions_of(plan.candidates[0].setting)
        and concurrency_of(slo, one.setting) == 1
    )


def contests(slo: Slo, candidates: Sequence[Trial]) -> tuple[tuple[Trial, ...], ...]:
    """Return the groups of candidates of which one is chosen: a whole grid, else one knob's values and the default."""
    moved = [knob for knob in CHOSEN if any(one.changed == knob for one in candidates)]
    if slo.sweep.design == "grid" or len(moved) < 2:
        return (tuple(candidates),)
    return tuple(tuple(one for one in candidates if one.changed in {None, knob}) for knob in moved)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A candidate's answer and plain decoding's, as log ratios; the mean over both plain arms."""

    stretch: int
    canary: str
    logs: Mapping[str, float | None]
    """Log ratio by measure; None where the pair has none."""


class _Looks:
    """The looks at the settings of one workload."""

    def __init__(self, sweep: SweepAnswers, candidates: Sequence[Trial]) -> None:
        self._sweep, self._candidates = sweep, candidates
        self._contests = contests(sweep.slo, candidates)
        self._counts = sweep.plan.looks[sweep.workload]
        self._stretch = {
            (request.trial.name, request.pair, request.canary.id): block.stretch
            for block in sweep.plan.blocks
            for request in block.requests
            if request.workload == sweep.workload
        }
        self._plain = self._answers(BASELINE) + self._answers(NULL)
        together = burst_gap(one for at, one in self._plain if at == 0)
        self._measures: dict[str, Callable[[Answer], float | None]] = {
            "throughput_ratio": partial(decode_rate, together_s=together),
            "answer_throughput_ratio": answer_rate,
        }
        null = [one for one in sweep.plan.trials if one.name == NULL]
        self._pairs = {one.name: self._paired(one) for one in (*candidates, *null)}
        self._canaries = len({canary for _, _, canary in self._stretch})
        planned = Counter(canary for trial, _, canary in self._stretch if trial in {BASELINE, NULL})
        often = [count for count in planned.values() if count >= comparability.BIMODAL_REPEATS]
        self._can_show_modes = sum(often) >= comparability.BIMODAL_ANSWERS
        """The whole plan has enough answers to show that plain decoding is bimodal."""

    def _answers(self, trial: str) -> list[tuple[int, Generation]]:
        """Return a trial's answers with their stretch, without those that are not in the plan."""
        found = [(self._stretch.get((trial, one.pair, one.canary)), one) for one in self._sweep.of(trial)]
        return [(at, one) for at, one in found if at is not None and one.role is not Role.WARMUP]

    def _paired(self, trial: Trial) -> list[_Pair]:
        plain = {(one.pair, one.canary): one for _, one in self._answers(trial.baseline)}
        null, greedy = self._sweep.null_answers(trial), self._sweep.greedy(trial)
        found = []
        for at, mine in self._answers(trial.name):
            if (baseline := plain.get((mine.pair, mine.canary))) is not None:
                second = null.get((mine.pair, mine.canary))
                logs = {
                    name: mean_log_ratio(mine, baseline, second, read, greedy=greedy)
                    for name, read in self._measures.items()
                }
                found.append(_Pair(at, mine.canary, logs))
        return found

    def _seen(self, trial: str, number: int) -> tuple[str, dict[str, float]]:
        """Return the measure of a trial at a look and its mean log ratio by canary; empty if many pairs are lost."""
        pairs = [one for one in self._pairs.get(trial, ()) if one.stretch < number]
        for measure in self._measures:
            kept = [(one.canary, value) for one in pairs if (value := one.logs[measure]) is not None]
            if kept and len(kept) >= (1 - MOST_LOST) * len(pairs):
                by_canary: dict[str, list[float]] = defaultdict(list)
                for canary, value in kept:
                    by_canary[canary].append(value)
                return measure, {canary: fmean(values) for canary, values in sorted(by_canary.items())}
        return "", {}

    def look(self, found: EarlyStops, number: int, error: float) -> None:
        """Look after stretch *number* (from 1), with the nominal *error* of this look."""
        found.looks = number
        plain = [one for at, one in self._plain if at < number]
        _, null = self._seen(NULL, number)
        noise = self._noise(number)
        found.maybe_bimodal = self._maybe_bimodal(plain, noise)
        live = [one for one in self._candidates if one.name not in found.stops]
        if not live or comparability.instability(plain, self._sweep.plan.terms.rules) is not None:
            return
        seen = {one.name: self._seen(one.name, number) for one in live}
        for name, (_, logs) in seen.items():
            before = found.against_plain.get(name)
            found.against_plain[name] = sequential.intersected(before, sequential.interval(list(logs.values()), error))
            if self._gains(found.against_plain[name], null):
                found.passed.add(name)
        for one, other in combinations([trial.name for trial in live], 2):
            (measure, mine), (same, theirs) = seen[one], seen[other]
            if measure == same:
                apart = [mine[canary] - theirs[canary] for canary in mine if canary in theirs]
                now = sequential.interval(apart, error)
                found.apart[one, other] = sequential.intersected(found.apart.get((one, other)), now)
        self._stop(found, live, {name: measure for name, (measure, _) in seen.items()})
        left = [trial for trial in live if trial.name not in found.stops]
        # Repeats also narrow the null arm, so they are skipped only where a ratio is clearly outside of its noise.
        edge = _edge(sequential.interval(list(null.values()), error))
        clear = [trial for trial in left if _outside(found.against_plain[trial.name], edge)]
        if left == clear and self._repeats_add_nothing([seen[trial.name][1] for trial in left], noise, number):
            for trial in left:
                because = f"{_compared(found.against_plain[trial.name])}; repeats would not narrow the interval"
                found.stop(trial, "repeats-add-nothing", because)

    def _noise(self, number: int) -> float | None:
        """Return the variance of one log ratio of plain over plain decoding; None with too few pairs."""
        pairs = [one for one in self._pairs.get(NULL, ()) if one.stretch < number]
        for measure in self._measures:
            logs = [value for one in pairs if (value := one.logs[measure]) is not None]
            if len(logs) >= max(sequential.MIN_CANARIES, (1 - MOST_LOST) * len(pairs)):
                return variance(logs)
        return None

    def _repeats_add_nothing(self, logs: Sequence[Mapping[str, float]], noise: float | None, number: int) -> bool:
        """Return whether every canary was answered and repeats would narrow no interval: canaries differ, not answers.

        It depends on counts and spreads, never on which setting is faster, so it favours none.
        """
        repeats = self._counts[number - 1] / self._canaries
        if repeats < 1 or noise is None or any(len(one) < sequential.MIN_CANARIES for one in logs):
            return False
        gone = noise * (1 / repeats - self._canaries / self._counts[-1])
        apart = [[one[name] - two[name] for name in one if name in two] for one, two in combinations(logs, 2)]
        spreads = [variance(values) for values in (*(list(one.values()) for one in logs), *apart) if len(values) > 1]
        return all(spread - gone >= WIDTH_KEPT**2 * spread for spread in spreads)

    def _maybe_bimodal(self, plain: Sequence[Generation], noise: float | None) -> bool:
        """Return whether plain answers may be bimodal and are too few to show it."""
        each = Counter(one.canary for one in plain)
        often = sum(count for count in each.values() if count >= comparability.BIMODAL_REPEATS)
        enough = not self._can_show_modes or often >= comparability.BIMODAL_ANSWERS
        return not enough and (noise is None or noise > BIMODAL_LOG_SD**2)

    def _gains(self, ratio: Estimate | Missing, null: Mapping[str, float]) -> bool:
        """Return whether a gain is proven, and larger than the noise of plain over plain decoding."""
        edge = _edge(sequential.interval(list(null.values()), 1 - self._sweep.slo.confidence))
        return sequential.decide(ratio, 1) == "pass" and isinstance(ratio, Estimate) and ratio.center > edge

    def _stop(self, found: EarlyStops, live: Sequence[Trial], measures: Mapping[str, str]) -> None:
        """Stop the settings that are proven slower, then those that are decided."""
        words = {one.name: sequential.decide(found.against_plain.get(one.name), 1) for one in self._candidates}
        all_slower = all(word == "fail" for word in words.values())
        alone = len(self._contests) == 1  # else a knob's best value counts in combination, even if slow by itself
        for one in live:
            ratio, bound = found.against_plain[one.name], self._bound(measures[one.name])
            faster = [_faster(found, one, contest) for contest in self._contests if one in contest]
            if words[one.name] == "fail" and (alone or all_slower):
                found.stop(one, "slower-than-plain", _compared(ratio))
            elif (best := faster[0]) is not None and all(faster):
                found.stop(one, "slower-than-another", _compared(found.ratio(one, best), _apart(best, one)))
            elif alone and bound is not None and sequential.decide(ratio, bound) == "fail":
                found.stop(one, "below-the-bound", f"{_compared(ratio)}; the objective requires {bound:g}x")
        settled = [contest for contest in self._contests if _settled(found, contest)]
        decided = [one for one in live if one.name in found.passed or words[one.name] == "fail"]
        for one in decided:
            racing = [contest for contest in self._contests if one in _racing(found, contest)]
            if one.name not in found.stops and all(contest in settled for contest in racing):
                found.stop(one, "decided", _compared(found.against_plain[one.name]))

    def _bound(self, measure: str) -> float | None:
        """Return the highest bound of the objectives on *measure*, which a setting must meet."""
        objectives = self._sweep.slo.objectives_for(self._sweep.workload, speculating=True)
        floors = [one.threshold for one in objectives if one.metric == measure and one.bound == "at_least"]
        return max(floors, default=None)


def _edge(noise: Estimate | Missing) -> float:
    """Return the noise of plain over plain decoding as a ratio above 1, in either direction; infinite if unknown."""
    return max(noise.hi, 1 / noise.lo) if isinstance(noise, Estimate) else math.inf


def _outside(ratio: Estimate | Missing, edge: float) -> bool:
    """Return whether a ratio lies outside the noise of plain over plain decoding, on either side."""
    return isinstance(ratio, Estimate) and not 1 / edge <= ratio.center <= edge


def _racing(found: EarlyStops, contest: Sequence[Trial]) -> list[Trial]:
    """Return the candidates of a contest that may still be the fastest."""
    left = [one for one in contest if one.name not in found.stops or found.stops[one.name].kind == "decided"]
    return [one for one in left if _faster(found, one, contest) is None]


def _faster(found: EarlyStops, one: Trial, contest: Sequence[Trial]) -> Trial | None:
    """Return a candidate of the contest that is proven faster, if there is one."""
    rivals = (rival for rival in contest if rival is not one)
    return next((rival for rival in rivals if sequential.decide(found.ratio(one, rival), 1) == "fail"), None)


def _settled(found: EarlyStops, contest: Sequence[Trial]) -> bool:
    """Return whether all candidates that may still be the fastest are proven alike."""
    apart = [found.ratio(one, rival) for one, rival in combinations(_racing(found, contest), 2)]
    return all(isinstance(one, Estimate) and 1 / (1 + ALIKE) < one.lo and one.hi < 1 + ALIKE for one in apart)


def _compared(ratio: Estimate | Missing | None, rival: str = "plain decoding") -> str:
    """Write a ratio of speeds: 14 % slower than plain decoding: 0.86x (0.80x to 0.92x) on 24 canaries."""
    if not isinstance(ratio, Estimate):
        return f"not compared with {rival}"
    measured = show_ratio(ratio.center, ratio.lo, ratio.hi)
    said = compare_speed(ratio.center, rival)
    with_it = (
        f"{said} ({ratio.lo:.2f}x to {ratio.hi:.2f}x)"
        if said.startswith(f"{ratio.center:.2f}x")
        else f"{said}: {measured}"
    )
    return f"{with_it} on {ratio.n} canaries"


def _apart(trial: Trial, other: Trial) -> str:
    """Name the knobs in which a trial differs from another: draft length 6."""
    mine, theirs = dict(trial.setting), dict(other.setting)
    return ", ".join(f"{knob_name(knob)} {last_part(mine[knob])}" for knob in mine if mine[knob] != theirs.get(knob))
