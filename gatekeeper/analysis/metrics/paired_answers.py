"""Paired answers: the records of one workload at one setting, each plain answer with a speculative one."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from gatekeeper.analysis.metrics import lost_pairs
from gatekeeper.analysis.metrics.answer_table import AnswerTable, burst_gap, tabulate
from gatekeeper.analysis.metrics.lost_pairs import MAX_LOST_SHARE, Pair
from gatekeeper.analysis.stats import fixed_canaries, intervals
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.analysis.stats.total_time import PairLogs
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Generation, Kind, Role, StoredRecords

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AnswerPowers:
    """The mean power in watts during each answer."""

    basis: str
    """Whose power it is, and which tool read it."""
    watts: Mapping[tuple[str, str], float]
    """Watts by the trial and the key of the answer; one without a reading that began and ended inside is left out."""
    rest: tuple[float, float]
    """The lowest and the highest power at rest, each the median of one time of rest."""

    def joules(self, generation: Generation, rest: float) -> float | None:
        """Return what an answer took above *rest* watts; None where no reading tells."""
        watts = self.watts.get((generation.trial, generation.key))
        return None if watts is None else (watts - rest) * generation.answer.seconds


@dataclass(frozen=True, slots=True)
class PairedAnswers:
    """All records of one workload at one setting, and how to read them."""

    workload: str
    canaries: Mapping[str, Canary]
    answers: tuple[Generation, ...]
    """Answers of the setting that is judged; plain answers for a plain setting."""
    plain: tuple[Generation, ...]
    """Plain answers to compare with; empty when plain decoding itself is judged."""
    level: float
    seed: int
    greedy: bool
    window_s: float = 120.0
    drift_limit: float = 0.05
    settled_s: float | None = None
    """Seconds in which a ratio must not change before it is judged: the soak's duration; None: it may change."""
    lost_limit: float = MAX_LOST_SHARE
    visible_harm: float = 1.0
    """The share of answers at which a test for harm must have found it to prove that there is none."""
    frozen: bool = True
    """False for an objective on the population of prompts that the canaries stand for."""
    interleaved: bool = True
    """The two answers of a pair follow each other, so that noise of the host which lasts longer hits both."""
    swept: "tuple[tuple[Generation, ...], tuple[Generation, ...]]" = ((), ())
    """Answers of the sweep at the same setting, and their plain ones: words need no clock."""
    untimed: tuple[Generation, ...] = ()
    """Plain answers after the soak, decoded or shown by a forced pass: they count for words alone."""
    not_forced: str = ""
    """Why forced passes show no plain answers, where they were made."""
    pairs: tuple[Pair, ...] = field(default=())
    before: tuple[Pair, ...] = ()
    """Pairs of the sweep at the same setting, or the nearest one: with the soak's they show the noise of a canary."""
    elsewhere: tuple[Generation, ...] = ()
    """Answers of the same soak in other workloads that speculate, of both arms."""
    followed: Mapping[str, StoredRecords[Any]] = field(default_factory=dict)
    """What the follow-ups of the soak recorded, by their names; a trouble names the file."""
    recorded: Callable[[], AnswerTable] | None = None
    """Returns the answers of the record files in columns, these among them; None: they are from no record file."""
    powers: Callable[[], AnswerPowers | str] = lambda: "no power was sampled"
    """The power drawn during each answer, or why it is not known; a day of samples is read only where it counts."""
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What many metrics read of the same answers: the answers and the value, by their identity and its name."""

    @property
    def words(self) -> "PairedAnswers":
        """Return these with untimed answers and the sweep's at the same setting, for metrics of words, not of time."""
        swept, plain = self.swept
        plain = (*plain, *self.plain, *self.untimed)
        return replace(self, answers=(*swept, *self.answers), plain=plain, swept=((), ()), untimed=())

    def readings(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return the records of one kind that the follow-ups made."""
        return tuple(
            record for recorded in self.followed.values() for record in recorded.records if isinstance(record, kind)
        )

    def answers_of(self, follow_up: str) -> tuple[Generation, ...] | Missing:
        """Return the answers that a follow-up recorded; Missing where they cannot be trusted, or none was requested."""
        recorded = self.followed.get(follow_up)
        if recorded is None:
            return Missing(f"no request of the {follow_up} follow-up was sent")
        return tuple(recorded.records) if recorded.trouble is None else Missing(recorded.trouble)

    @property
    def plain_alone(self) -> "PairedAnswers":
        """Return these with the plain arm as what is judged; themselves where it is."""
        return replace(self, answers=self.plain, plain=(), pairs=(), before=()) if self.plain else self

    @property
    def least_length(self) -> float:
        """Return the least ratio of two lengths at which the answers of a pair are the same work."""
        return lost_pairs.MIN_LENGTH_RATIO if self.greedy else lost_pairs.MIN_LENGTH_RATIO_SAMPLED

    def too_many_lost(self, lost: int) -> str | None:
        """Return why the pairs do not suffice; None where they do."""
        return lost_pairs.too_many_lost(lost, len(self.pairs), self.lost_limit)

    @property
    def table(self) -> AnswerTable:
        """Return the table that has these answers, and those of all pairs."""
        return self.once("table", self._find_table, self.answers, self.plain, self.pairs, self.before)

    def _find_table(self) -> AnswerTable:
        answers = (*self.answers, *self.plain, *chain.from_iterable((*self.pairs, *self.before)))
        if self.recorded is not None and (table := self.recorded()).has(answers):
            return table
        plain = self.plain or [generation for generation in self.answers if not generation.answer.rounds]
        return tabulate((answers, burst_gap(plain)))

    def once(self, name: str, read: Callable[[], T], *answers: object) -> T:
        """Return what *read* makes of *answers*, computed once for every copy of this evidence."""
        key = name, *map(id, answers)
        if key not in self.cache:
            self.cache[key] = answers, read()  # kept, so that the identity is of no other answers
        value: T = self.cache[key][1]
        return value


def pair_answers(paired: PairedAnswers) -> PairedAnswers:
    """Drop the warm-ups and pair the arms: by their pair, else with the nearest answer to the same canary in time."""
    answers = tuple(generation for generation in paired.answers if generation.role is not Role.WARMUP)
    plain = tuple(generation for generation in paired.plain if generation.role is not Role.WARMUP)
    by_pair = {(generation.pair, generation.canary): generation for generation in answers if generation.pair}
    sent = (generation for generation in answers if generation.role is not Role.CLOSING)
    repeats_of = by_canary((generation.canary, generation) for generation in sent)
    pairs = []
    for baseline in plain:
        partner = by_pair.get((baseline.pair, baseline.canary))
        if partner is None and baseline.role is Role.BLOCK and (repeats := repeats_of.get(baseline.canary)):
            near = [generation for generation in repeats if generation.segment == baseline.segment] or repeats
            partner = min(near, key=lambda generation: abs(generation.answer.sent_ns - baseline.answer.sent_ns))
        if partner is not None:
            pairs.append((partner, baseline))
    return replace(paired, answers=answers, plain=plain, pairs=tuple(pairs))


def in_order_of_time(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs in the order in which their candidate's requests were sent."""
    return sorted(pairs, key=lambda pair: pair[0].moment)


def successful(answers: Iterable[Generation]) -> list[Generation]:
    """Return the answers without a fault."""
    return [generation for generation in answers if generation.answer.fault is None]


def per_canary(answers: Iterable[Generation], read: Callable[[Answer], T | None]) -> dict[str, list[T]]:
    """Return the values of *read*, grouped by canary; answers without a value are left out."""
    return by_canary(values_of(answers, read))


def values_of(answers: Iterable[Generation], read: Callable[[Answer], T | None]) -> list[tuple[str, T]]:
    """Return the canary and the value of *read* of each answer that has one."""
    values = ((generation.canary, read(generation.answer)) for generation in answers)
    return [(canary, value) for canary, value in values if value is not None]


def has_no_decode_speed(paired: PairedAnswers) -> bool:
    """Return whether answers come whole, such as tool calls, so that only the speed of whole answers exists."""
    decode_rate = paired.table.read("decode_rate")
    sound = [pair for pair in paired.pairs if all(generation.answer.fault is None for generation in pair)]
    without = sum(any(decode_rate(generation.answer) is None for generation in pair) for pair in sound)
    return without > paired.lost_limit * len(sound)


def mean_ratio(logs: PairLogs, paired: PairedAnswers) -> Estimate | Missing:
    """Bound the ratio that the mean log of the pairs is: for these canaries, or for prompts like them.

    Where the arms ran apart, noise that lasts hits all pairs of a plain block alike, and repeats do not show it.
    """
    population = intervals.mean_log(logs.pseudovalues(), paired.level)
    if isinstance(population, Missing) or not paired.frozen or not paired.interleaved:
        return population
    before = [(name, log) for name, log in logs.before if math.isfinite(log)]
    return with_population(
        population,
        fixed_canaries.mean_of_logs(logs.logs, paired.level, len(paired.canaries), before, logs.weights),
    )


def with_population(population: Estimate, frozen: Estimate | None) -> Estimate:
    """Return the estimate for *these* canaries with the one for all like them beside it, or that alone."""
    return population if frozen is None else replace(frozen, population=population)
