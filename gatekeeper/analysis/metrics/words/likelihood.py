"""Likelihood: how likely each arm's answers are to the target, which stands in for perplexity."""

from collections.abc import Iterable, Mapping
from math import sqrt
from statistics import fmean, stdev

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.scored_answers import own_answers
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Replayed, Scored
from gatekeeper.core.units import show_number

LEAST = 5
"""Canaries for an interval."""


def nll_delta(paired: PairedAnswers) -> Estimate | Missing:
    """Return the mean negative log-likelihood a token of the draft's answers less plain decoding's, in nats.

    Paired by canary; Student's t over their differences. Each arm's answers are read by the target itself.
    """
    drafting, plain = _by_arm(paired, "candidate"), _by_arm(paired, "plain")
    differences = [drafting[name] - plain[name] for name in paired.canaries if name in drafting and name in plain]
    if len(differences) < LEAST:
        return Missing(
            f"the likelihood of {len(differences)} canaries is known in both arms, {LEAST} are needed", len(differences)
        )
    center = fmean(differences)
    half = intervals.student_quantile(paired.level, len(differences) - 1) * stdev(differences) / sqrt(len(differences))
    with_draft, without = (show_number(fmean(arm.values())) for arm in (drafting, plain))
    notes = (f"{with_draft} nats a token with the draft, {without} plainly",)
    return Estimate(center, center - half, center + half, len(differences), notes, paired.level, "population")


def _list_log_probabilities(record: Scored) -> list[float]:
    """Return the log-probabilities that the server tells: a place without likely tokens has none."""
    return [logprob for logprob, likely in zip(record.logprobs, record.likeliest, strict=True) if likely]


def _by_arm(paired: PairedAnswers, arm: str) -> Mapping[str, float]:
    """Return the nats a token of one arm's answers, by canary."""
    replayed = (
        (record.canary, record.nll / record.positions)
        for record in paired.readings(Replayed)
        if record.arm == arm and record.nll is not None and record.positions
    )
    scored = (
        (record.canary, -fmean(logprobs))
        for record in own_answers(paired)
        if record.arm == arm and (logprobs := _list_log_probabilities(record)) and len(logprobs) == len(record.tokens)
    )
    values: Iterable[tuple[str, float]] = (*replayed, *scored)
    return {name: fmean(of_canary) for name, of_canary in intervals.by_canary(values).items()}
