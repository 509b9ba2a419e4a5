"""Replays: answers to repeated requests that come faster, or in fewer pieces, than the first one, in one arm only.

A cache of answers in front of a draft turns its repeats into a gain that new prompts do not see. Each canary is
compared with itself within each arm, over the whole run.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple

import numpy as np

from gatekeeper.analysis.metrics.answer_table import Read
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.over_time import running_seconds
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.plan.soak_schedule import ENOUGH_PAIRS, SoakPlan
from gatekeeper.analysis.stats.intervals import Floats, student_quantile
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.judgement import Finding, FindingKind
from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.units import percent

FASTER = math.log(1.05)
"""Log of how much faster repeats must be in one arm than in the other: less changes no verdict."""
LEVEL = 0.995
"""Confidence of that: a run has several workloads and soaks, and an honest one should hardly ever be accused."""
FEWER_PIECES = math.log(0.5)
"""Repeats in half of the first answer's pieces, or in fewer, were not generated anew."""
LEAST_CANARIES = 3
"""Fewer canaries show nothing."""
WARM_UPS = (30.0, 60.0, 120.0, 240.0, 480.0, 960.0)
"""Seconds over which a process may become faster, evenly, after its start."""
_ADVICE = "switch off what keeps answers between requests: a cache of responses, or a draft that learns them"
_TIMED = frozenset(metric.name for metric in ALL if metric.speed_ratio or Sight.ARRIVALS in metric.needs)
_PAIRED = frozenset(metric.name for metric in ALL if metric.name in _TIMED and metric.against_plain)

Arm = Literal["plain", "candidate"]


class Repeat(NamedTuple):
    """An answer of one arm, as its gain over the canary's first answer is computed from it."""

    canary: str
    setting: str
    value: float
    """The log of what is compared."""
    later: bool
    """The arm had answered this canary before."""
    later_in_either: bool
    """Either arm had."""
    age: float
    """The age of the process, in seconds."""


@dataclass(frozen=True, slots=True)
class Gains:
    """Log of what repeats of each canary gain over its first answer, in the order of the first answers."""

    by_canary: Mapping[str, float]
    variance: float = 0.0
    """The variance of the gain that least squares give to all canaries together: what settings differ by is uncertain
    as well, and that error is the same in every canary."""
    degrees: int = 1
    warms_up: bool = False
    """The age of the process explains the answers better than their being repeats does."""


@dataclass(frozen=True, slots=True)
class History:
    """The answers of one workload from the start of the run to the end of a soak, in the order of their requests."""

    answers: tuple[Generation, ...]
    ages: tuple[float, ...]
    """The age of the process, by answer: seconds since the sweep began, or the soak."""
    speed: Read
    """The speed of an answer: its decode rate, else the rate of the whole."""
    cache: dict[tuple[Arm, Read], tuple[dict[str, Generation], Gains]] = field(default_factory=dict, compare=False)
    """What was computed of an arm: its first answers and its gains, which are read several times."""

    def gains(self, arm: Arm, read: Read, *, alone: bool = False) -> Gains:
        """Return by canary the log of the mean *read* of later answers over that of the first one, settings adjusted.

        Only canaries whose first answer is to the first request of this arm, where enough are; *alone*: of both arms.
        """
        of_arm = [answer for answer in self.answers if answer.arm == arm]
        if (arm, read) not in self.cache:
            self.cache[arm, read] = self._first_and_gains(arm, read)
        first, gains = self.cache[arm, read]
        first_requests = {answer.canary: answer for answer in reversed(self.answers if alone else of_arm)}
        fresh = {name: gain for name, gain in gains.by_canary.items() if first[name] is first_requests[name]}
        return replace(gains, by_canary=fresh) if alone or len(fresh) >= LEAST_CANARIES else gains

    def _first_and_gains(self, arm: Arm, read: Read) -> tuple[dict[str, Generation], Gains]:
        rows = [
            (answer, age, math.log(value))
            for answer, age in zip(self.answers, self.ages, strict=True)
            if answer.arm == arm and not answer.answer.fault and answer.role is not Role.WARMUP
            if (value := read(answer.answer))
        ]
        first = {answer.canary: answer for answer, _, _ in reversed(rows)}
        of_both_arms = {answer.canary: answer for answer in reversed(self.answers)}
        setting_texts = {id(answer.setting): str(answer.setting) for answer, _, _ in rows}
        repeats = [
            Repeat(
                answer.canary,
                setting_texts[id(answer.setting)],
                value,
                answer is not first[answer.canary],
                answer is not of_both_arms[answer.canary],
                age,
            )
            for answer, age, value in rows
        ]
        return first, _gains(repeats)

    def first_pairs(self, pairs: Iterable[Pair], arm: Arm) -> tuple[Pair, ...]:
        """Return the pairs of first requests in which *arm* was asked before the other arm.

        A cache that both arms fill may answer the second request of a pair.
        """
        sent, keys = set[tuple[str, str]](), set[str]()
        for generation in self.answers:
            new = (generation.arm, generation.canary) not in sent
            if new and (generation.arm != arm or not any(canary == generation.canary for _, canary in sent)):
                keys.add(f"{generation.trial}/{generation.key}")
            sent.add((generation.arm, generation.canary))
        return tuple(pair for pair in pairs if all(f"{answer.trial}/{answer.key}" in keys for answer in pair))


def history(case: Case, soak: SoakPlan, workload: str) -> History:
    """Gather the sweep's answers, and those of every soak up to *soak*."""
    stages = [
        [answer for recorded in case.sweep.values() for answer in recorded.records],
        *(case.soaks[name].records for name in sorted(case.soaks) if name <= soak.name),
    ]
    answers: list[Generation] = []
    ages: list[float] = []
    for stage in stages:
        generations = [answer for answer in stage if answer.workload == workload]
        generations.sort(key=attrgetter("moment"))
        answers += generations
        ages += running_seconds(generations)
    return History(tuple(answers), tuple(ages), case.table_of(workload).read("speed"))


def examine_repeats(past: History, evidence: PairedAnswers, about: str) -> tuple[PairedAnswers, tuple[Finding, ...]]:
    """Return a finding if one arm replays, and the evidence that then counts.

    With enough pairs of first requests a ratio rests on those alone; else the finding voids it.
    """
    for arm, name, other_arm in _ARMS:
        details = (_seen_in(past, arm, other_arm, alone=alone) for alone in (False, True))
        if (detail := next((detail for detail in details if detail is not None), None)) is not None:
            finding = Finding(FindingKind.REPLAYED, about, f"repeats of {name} {detail}", _ADVICE)
            return _without_repeats(past, evidence, arm, finding)
    return evidence, ()


def _seen_in(past: History, arm: Arm, other_arm: Arm, *, alone: bool) -> str | None:
    """Describe how repeats of *arm* differ from its first answers, where those of the *other* arm do not."""
    reads: tuple[Read, Read] = (_pieces_per_token, past.speed)
    pieces, speeds = ((past.gains(arm, read, alone=alone), past.gains(other_arm, read)) for read in reads)
    return _fewer_pieces(*pieces) or _faster(*speeds)


def _without_repeats(
    past: History, evidence: PairedAnswers, arm: Arm, finding: Finding
) -> tuple[PairedAnswers, tuple[Finding, ...]]:
    firsts = past.first_pairs(evidence.pairs, arm)
    if len({pair[0].canary for pair in firsts}) < ENOUGH_PAIRS:
        return evidence, (replace(finding, voids=_TIMED),)
    detail = f"{finding.detail}; ratios count the {len(firsts)} pairs of first requests alone"
    return replace(evidence, pairs=firsts, before=()), (replace(finding, detail=detail, voids=_TIMED - _PAIRED),)


def _pieces_per_token(answer: Answer) -> float | None:
    return len(answer.arrivals) / answer.output_tokens if answer.output_tokens else None


_ARMS: tuple[tuple[Arm, str, Arm], ...] = (
    ("candidate", "the draft", "plain"),
    ("plain", "plain decoding", "candidate"),
)


def _gains(rows: Sequence[Repeat]) -> Gains:
    """Return, by canary, the mean of its later values less its first one.

    A canary's answers are at several settings of other speeds. Least squares tell the settings from the repeats.
    """
    if not any(row.later for row in rows):
        return Gains({})
    canaries = {name: number for number, name in enumerate(dict.fromkeys(row.canary for row in rows))}
    settings = {name: number for number, name in enumerate(dict.fromkeys(row.setting for row in rows))}
    at_setting = np.zeros((len(settings), len(rows)))
    at_setting[[settings[row.setting] for row in rows], np.arange(len(rows))] = 1
    facts = np.array([(row.later, row.value, row.later_in_either) for row in rows], dtype=np.float64).T
    warm_ups = np.minimum(np.array([row.age for row in rows]) / np.array(WARM_UPS)[:, None], 1.0)
    # Less its canary's mean, each column is what a column for every canary would leave of it.
    owner = np.array([canaries[row.canary] for row in rows])
    count = np.bincount(owner)
    columns = [column - (np.bincount(owner, column) / count)[owner] for column in (*at_setting, *facts, *warm_ups)]
    of_settings = np.column_stack(columns[: len(settings)])
    later, values, later_in_either, *warm = columns[len(settings) :]
    later_alone = later - of_settings @ np.linalg.lstsq(of_settings, later, rcond=None)[0]
    if np.allclose(later_alone, 0):
        return Gains({})  # no setting has first and later answers, so that repeats cannot be told from settings
    fitted, rank, residual = _fit(of_settings, later, values)
    degrees = max(1, len(rows) - len(canaries) - rank)
    first: dict[str, float] = {}
    later_values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        adjusted = row.value - fitted[settings[row.setting]]
        if row.later:
            later_values[row.canary].append(adjusted)
        else:
            first[row.canary] = adjusted
    gain_by_canary = {name: fmean(later_values[name]) - value for name, value in first.items() if later_values[name]}
    by_repeats = min(residual, _fit(of_settings, later_in_either, values)[2])
    by_age = (_fit(of_settings, warm_up, values) for warm_up in warm)
    warms_up = any(rise[-1] > 0 and unexplained < by_repeats for rise, _, unexplained in by_age)
    return Gains(gain_by_canary, residual / degrees / float(later_alone @ later_alone), degrees, warms_up)


def _fit(settings: Floats, column: Floats, values: Floats) -> tuple[Sequence[float], int, float]:
    """Return the least-squares fit of the settings and another column, its rank, and the squares that it leaves."""
    columns = np.column_stack([settings, column])
    fitted, _, rank, _ = np.linalg.lstsq(columns, values, rcond=None)
    return fitted.tolist(), int(rank), float(((values - columns @ fitted) ** 2).sum())


def _fewer_pieces(gains: Gains, other_gains: Gains) -> str | None:
    """Describe repeats that come in fewer pieces than first answers, where those of the other arm do not."""
    canaries = gains.by_canary.keys() & other_gains.by_canary.keys()
    if len(canaries) < LEAST_CANARIES:
        return None
    pieces_left, other_pieces_left = (
        median(arm_gains.by_canary[name] for name in canaries) for arm_gains in (gains, other_gains)
    )
    if pieces_left <= FEWER_PIECES < other_pieces_left:
        return f"come in {percent(math.exp(pieces_left), '.0f')} of the pieces of the first answers"
    return None


def _faster(gains: Gains, other_gains: Gains) -> str | None:
    """Describe repeats that are faster than first answers beyond noise, where those of the other arm are not."""
    canaries = [name for name in gains.by_canary if name in other_gains.by_canary]
    if len(canaries) < LEAST_CANARIES or gains.warms_up:
        return None
    gain = fmean(gains.by_canary[name] for name in canaries)
    apart = [gains.by_canary[name] - other_gains.by_canary[name] for name in canaries]
    # An arm that was slow in its first seconds alone: there, later first answers gain nothing.
    late = apart[len(apart) // 2 :]
    error = student_quantile(LEVEL, len(apart) - 1) * stdev(apart) / math.sqrt(len(apart))
    lowest = fmean(apart) - max(error, _common_error(gains, other_gains))
    if not (lowest > FASTER and fmean(late) > FASTER and gain > FASTER):
        return None
    return f"are {percent(math.expm1(gain), '.0f')} faster than the first answers to the same {len(canaries)} canaries"


def _common_error(gains: Gains, other_gains: Gains) -> float:
    """Return how far the difference of both arms' gains may be off, the error that all canaries share included."""
    variance = gains.variance + other_gains.variance
    if variance <= 0:
        return 0.0
    parts = sum(arm_gains.variance**2 / arm_gains.degrees for arm_gains in (gains, other_gains))
    return student_quantile(LEVEL, max(1, int(variance**2 / parts))) * math.sqrt(variance)
