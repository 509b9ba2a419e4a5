"""How each metric of a workload is read from recorded answers: the only table from a metric to its reader."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gatekeeper.analysis.metrics import cached_turns, pass_rates, shares, timing
from gatekeeper.analysis.metrics.answer_table import Column, Read
from gatekeeper.analysis.metrics.host.energy import energy_ratio
from gatekeeper.analysis.metrics.over_time import acceptance_window_min
from gatekeeper.analysis.metrics.pair_speeds import PairSpeed, pair_speeds
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.warm_up_gain import delta_after_pause
from gatekeeper.analysis.metrics.words.harm import harm
from gatekeeper.analysis.metrics.words.likelihood import nll_delta
from gatekeeper.analysis.metrics.words.replayed_rounds import replay_agreement
from gatekeeper.analysis.metrics.words.sampled_tokens import sampled_answers, sampled_tokens
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.metrics import ALL, BY_NAME, ENERGY_RATIO, PASS_RATES, SYSTEM_RATIO
from gatekeeper.core.records import Role


@dataclass(frozen=True, slots=True)
class OfAnswer:
    """One value an answer: the metric is a quantile of it over canaries, or its ratio to plain decoding's."""

    read: Read | Column
    """A function of one answer, or the column of the table that has its value."""
    needs_arrivals: bool = False
    """An answer that arrived at once has no value."""
    any_length: bool = False
    """A pair of answers is compared whatever their lengths are."""
    unread: str = "no answer has a value for it"
    """Why there is no estimate where no answer has a value."""

    def on(self, paired: PairedAnswers) -> Read:
        """Return the function of one answer of this evidence."""
        return paired.table.read(self.read) if isinstance(self.read, str) else self.read

    def least_length(self, paired: PairedAnswers) -> float | None:
        """Return the least ratio of two lengths at which answers are compared; None: whatever their lengths are."""
        return None if self.any_length else paired.least_length


@dataclass(frozen=True, slots=True)
class OfGaps:
    """The gaps between the bursts of an answer: the metric is a quantile of them, pooled over answers."""

    per_token: bool
    """Each gap is divided by the tokens of its burst and weighed by them."""


@dataclass(frozen=True, slots=True)
class OfEvidence:
    """An estimate of all answers together, such as a share that is counted."""

    estimate: Callable[[PairedAnswers], Estimate | Missing]


@dataclass(frozen=True, slots=True)
class OfWarmCache:
    """Another metric, of the turns with the prompt cache on."""

    metric: str


Reader = OfAnswer | OfGaps | OfEvidence | OfWarmCache

READERS: Mapping[str, Reader] = {
    "throughput_ratio": OfAnswer("decode_rate", needs_arrivals=True),
    "answer_throughput_ratio": OfAnswer(timing.answer_rate),
    "system_throughput_ratio": OfAnswer(timing.answer_rate),
    "decode_throughput": OfAnswer("decode_rate", needs_arrivals=True),
    "plain_decode_throughput": OfAnswer("decode_rate", needs_arrivals=True),
    "prefill_throughput": OfAnswer(
        timing.prefill_rate,
        unread="no answer says how long its prompt was read, and the time to first token holds more than that",
    ),
    "ttft": OfAnswer(timing.ttft),
    "ttft_delta": OfAnswer(timing.ttft, any_length=True),
    "ttft_after_pause_delta": OfEvidence(partial(delta_after_pause, drafting=Role.IDLE)),
    "acceptance_rate": OfAnswer(timing.acceptance_rate),
    "acceptance_length": OfAnswer(timing.acceptance_length),
    "acceptance_window_min": OfEvidence(acceptance_window_min),
    "itl": OfGaps(per_token=True),
    "round_gap": OfGaps(per_token=False),
    "stall": OfAnswer("longest_gap"),
    "tpot": OfAnswer("seconds_per_token", needs_arrivals=True),
    "answer_latency": OfAnswer(lambda answer: answer.seconds),
    **{name: OfEvidence(partial(pass_rates.pass_delta, kind=rate.kind)) for name, rate in PASS_RATES.items()},
    ENERGY_RATIO: OfEvidence(energy_ratio),
    "token_agreement": OfEvidence(shares.agreement),
    "replay_agreement": OfEvidence(replay_agreement),
    "numerics_harm_p_value": OfEvidence(harm),
    "nll_delta": OfEvidence(nll_delta),
    "sampled_tokens_p_value": OfEvidence(sampled_tokens),
    "sampled_answers_p_value": OfEvidence(sampled_answers),
    "plain_repeat_agreement": OfEvidence(shares.plain_repeats),
    "warm_cache_turn_ratio": OfWarmCache("answer_throughput_ratio"),
    "warm_cache_ttft_delta": OfWarmCache("ttft_delta"),
    "warm_cache_error_rate": OfEvidence(cached_turns.failed_share),
    "warm_cache_agreement": OfEvidence(cached_turns.agreement),
    "error_rate": OfEvidence(shares.error_rate),
    "speculation_engaged": OfEvidence(shares.speculation_engaged),
    "truncation_rate": OfEvidence(shares.truncation),
}
"""Each reader by the base of its metric, or by the name of a metric that has none."""


def reader_of(name: str) -> Reader:
    """Return the reader of a metric."""
    return READERS[BY_NAME[name].base or name]


def answer_reader(name: str) -> OfAnswer:
    """Return the reader of a metric that has one value an answer."""
    reader = reader_of(name)
    assert isinstance(reader, OfAnswer), name
    return reader


def speeds_of(metric: str, paired: PairedAnswers) -> tuple[list[PairSpeed], list[PairSpeed], int]:
    """Return the speeds of the pairs by a *metric*, those of the pairs before the soak, and how many pairs are lost.

    They are read once for all that need them.
    """
    reader = answer_reader(metric)
    read, least = reader.on(paired), reader.least_length(paired)
    parts = (paired.pairs, paired.before)
    (speeds, lost), (before, _) = (
        paired.once(f"speeds by {metric}", partial(pair_speeds, pairs, read, least), pairs) for pairs in parts
    )
    return speeds, before, lost


PAIR_RATIOS = tuple(
    metric.name
    for metric in ALL
    if metric.against_plain and isinstance(READERS.get(metric.name), OfAnswer) and metric.name != SYSTEM_RATIO
)
"""Metrics that compare the two answers of each pair of one stream, one value an answer."""
PAIR_SPEEDS = tuple(name for name in PAIR_RATIOS if BY_NAME[name].speed_ratio)
"""Those of speed; the first needs answers that come in pieces, the others serve where they come whole."""
