"""Replays: answers to repeated requests that come faster, or in fewer pieces, than the first one, in one arm only.

A cache of answers in front of a draft turns its repeats into a gain that new prompts do not see. Each canary is
compared with itself within each arm, over the whole run.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Literal

import numpy as np

from gatekeeper.analysis.metrics.paired_answers import Pair, PairedAnswers
from gatekeeper.analysis.metrics.timing import decode_or_answer_rate
from gatekeeper.analysis.plan.soak_schedule import ENOUGH_PAIRS, SoakPlan
from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.core.metrics import ALL, Sight
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.units import percent
from gatekeeper.core.verdict import Finding

FASTER = math.log(1.05)
"""Log of how much faster repeats must be in one arm than in the other: less changes no verdict."""
LEVEL = 0.995
"""Confidence of that: a run has several workloads and soaks, and an honest one should hardly ever be accused."""
FEWER_PIECES = math.log(0.5)
"""Repeats in half of the first answer's pieces, or in fewer, were not generated anew."""
LEAST_CANARIES = 3
"""Fewer canaries show nothing."""
_ADVICE = "switch off what keeps answers between requests: a cache of responses, or a draft that learns them"
_TIMED = frozenset(one.name for one in ALL if one.speed_ratio or Sight.ARRIVALS in one.needs)
_PAIRED = frozenset(one.name for one in ALL if one.name in _TIMED and one.against_plain)

Arm = Literal["plain", "candidate"]
Read = Callable[[Answer], float | None]


@dataclass(frozen=True, slots=True)
class Gains:
    """Log of what repeats of each canary gain over its first answer, in the order of the first answers."""

    of: Mapping[str, float]
    variance: float = 0.0
    """Of the gain that least squares give to all canaries together: what settings differ by is uncertain as well, and
    that error is the same in every canary."""
    degrees: int = 1


@dataclass(frozen=True, slots=True)
class History:
    """The answers of one workload from the start of the run to the end of a soak, in the order of their requests."""

    answers: tuple[Generation, ...]
    known: dict[tuple[Arm, Read], tuple[dict[str, Generation], Gains]] = field(default_factory=dict, compare=False)
    """What was computed of an arm: its first answers and its gains, which are read several times."""

    def gains(self, arm: Arm, read: Read, *, alone: bool = False) -> Gains:
        """Return by canary the log of the mean *read* of later answers over that of the first one, settings adjusted.

        Only canaries whose first answer is to the first request of this arm, where enough are; *alone*: of both arms.
        """
        mine = [one for one in self.answers if one.arm == arm]
        if (arm, read) not in self.known:
            self.known[arm, read] = _first_and_gains(mine, read)
        first, found = self.known[arm, read]
        asked = {one.canary: one for one in reversed(self.answers if alone else mine)}
        fresh = {name: gain for name, gain in found.of.items() if first[name] is asked[name]}
        return replace(found, of=fresh) if alone or len(fresh) >= LEAST_CANARIES else found

    def first_pairs(self, pairs: Iterable[Pair], arm: Arm) -> tuple[Pair, ...]:
        """Return the pairs of first requests in which *arm* was asked before the other arm.

        A cache that both arms fill may answer the second request of a pair.
        """
        asked, keys = set[tuple[str, str]](), set[str]()
        for one in self.answers:
            new = (one.arm, one.canary) not in asked
            if new and (one.arm != arm or not any(canary == one.canary for _, canary in asked)):
                keys.add(f"{one.trial}/{one.key}")
            asked.add((one.arm, one.canary))
        return tuple(pair for pair in pairs if all(f"{one.trial}/{one.key}" in keys for one in pair))


def history(case: Case, soak: SoakPlan, workload: str) -> History:
    """Gather the sweep's answers, and those of every soak up to *soak*."""
    stages = [
        [one for recorded in case.sweep.values() for one in recorded.records],
        *(case.soaks[name].records for name in sorted(case.soaks) if name <= soak.name),
    ]
    answers: list[Generation] = []
    for stage in stages:
        mine = [one for one in stage if one.workload == workload]
        answers += sorted(mine, key=lambda one: (one.segment, one.answer.sent_ns))
    return History(tuple(answers))


def examine_repeats(seen: History, evidence: PairedAnswers, about: str) -> tuple[PairedAnswers, tuple[Finding, ...]]:
    """Return a finding if one arm replays, and the evidence that then counts.

    With enough pairs of first requests a ratio rests on those alone; else the finding voids it.
    """
    for arm, name, other in _ARMS:
        found = (_seen_in(seen, arm, other, alone=alone) for alone in (False, True))
        if (detail := next((one for one in found if one is not None), None)) is not None:
            finding = Finding("replayed", about, f"repeats of {name} {detail}", _ADVICE)
            return _without_repeats(seen, evidence, arm, finding)
    return evidence, ()


def _seen_in(seen: History, arm: Arm, other: Arm, *, alone: bool) -> str | None:
    """Describe how repeats of *arm* differ from its first answers, where those of the *other* arm do not."""
    reads: tuple[Read, Read] = (_pieces_per_token, decode_or_answer_rate)
    pieces, speeds = ((seen.gains(arm, read, alone=alone), seen.gains(other, read)) for read in reads)
    return _fewer_pieces(*pieces) or _faster(*speeds)


def _without_repeats(
    seen: History, evidence: PairedAnswers, arm: Arm, finding: Finding
) -> tuple[PairedAnswers, tuple[Finding, ...]]:
    firsts = seen.first_pairs(evidence.pairs, arm)
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


def _first_and_gains(answers: Sequence[Generation], read: Read) -> tuple[dict[str, Generation], Gains]:
    values = [None if one.answer.fault or one.role is Role.WARMUP else read(one.answer) for one in answers]
    rows = [(one, math.log(value)) for one, value in zip(answers, values, strict=True) if value]
    first = {one.canary: one for one, _ in reversed(rows)}
    shown = {id(one.setting): str(one.setting) for one, _ in rows}
    return first, _gains(
        [(one.canary, shown[id(one.setting)], one is not first[one.canary], value) for one, value in rows]
    )


def _gains(rows: Sequence[tuple[str, str, bool, float]]) -> Gains:
    """Return, by canary, the mean of its later values less its first one; rows are (canary, setting, later, value).

    A canary's answers are at several settings of other speeds. Least squares tell the settings from the repeats.
    """
    if not any(later for _, _, later, _ in rows):
        return Gains({})
    canaries = {name: at for at, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    settings = {name: at for at, name in enumerate(dict.fromkeys(row[1] for row in rows))}
    columns = np.zeros((len(rows), len(settings) + 2))
    columns[np.arange(len(rows)), [settings[setting] for _, setting, _, _ in rows]] = 1
    columns[:, -2:] = [(later, value) for *_, later, value in rows]
    # Less its canary's mean, each column is what a column for every canary would leave of it.
    owner = np.array([canaries[canary] for canary, *_ in rows])
    count = np.bincount(owner)
    design = np.column_stack([column - (np.bincount(owner, column) / count)[owner] for column in columns.T])
    settings_alone = np.linalg.lstsq(design[:, :-2], design[:, -2], rcond=None)[0]
    later_alone = design[:, -2] - design[:, :-2] @ settings_alone
    if np.allclose(later_alone, 0):
        return Gains({})  # no setting has first and later answers, so that repeats cannot be told from settings
    fitted, _, rank, _ = np.linalg.lstsq(design[:, :-1], design[:, -1], rcond=None)
    degrees = max(1, len(rows) - len(canaries) - int(rank))
    noise = float(((design[:, -1] - design[:, :-1] @ fitted) ** 2).sum()) / degrees
    first: dict[str, float] = {}
    others: dict[str, list[float]] = defaultdict(list)
    for canary, setting, later, value in rows:
        adjusted = value - float(fitted[settings[setting]])
        if later:
            others[canary].append(adjusted)
        else:
            first[canary] = adjusted
    of = {name: fmean(others[name]) - value for name, value in first.items() if others[name]}
    return Gains(of, noise / float(later_alone @ later_alone), degrees)


def _fewer_pieces(mine: Gains, other: Gains) -> str | None:
    """Describe repeats that come in fewer pieces than first answers, where those of the other arm do not."""
    both = mine.of.keys() & other.of.keys()
    if len(both) < LEAST_CANARIES:
        return None
    left, others = (median(gains.of[name] for name in both) for gains in (mine, other))
    if left <= FEWER_PIECES < others:
        return f"come in {percent(math.exp(left), '.0f')} of the pieces of the first answers"
    return None


def _faster(mine: Gains, other: Gains) -> str | None:
    """Describe repeats that are faster than first answers beyond noise, where those of the other arm are not."""
    both = [name for name in mine.of if name in other.of]
    if len(both) < LEAST_CANARIES:
        return None
    gain = fmean(mine.of[name] for name in both)
    apart = [mine.of[name] - other.of[name] for name in both]
    # An arm that warms up is slow in its first seconds: there, later first answers gain nothing.
    late = apart[len(apart) // 2 :]
    lowest = min(_lowest(apart, LEVEL), fmean(apart) - _common_error(mine, other))
    if not (lowest > FASTER and fmean(late) > FASTER and gain > FASTER):
        return None
    return f"are {percent(math.expm1(gain), '.0f')} faster than the first answers to the same {len(both)} canaries"


def _lowest(values: Sequence[float], level: float) -> float:
    """Return Student's lower bound of the mean."""
    n = len(values)
    return fmean(values) - student_quantile(level, n - 1) * stdev(values) / math.sqrt(n)


def _common_error(mine: Gains, other: Gains) -> float:
    """Return how far the difference of both arms' gains may be off, the error that all canaries share included."""
    variance = mine.variance + other.variance
    if variance <= 0:
        return 0.0
    parts = sum(gains.variance**2 / gains.degrees for gains in (mine, other))
    return student_quantile(LEVEL, max(1, int(variance**2 / parts))) * math.sqrt(variance)
