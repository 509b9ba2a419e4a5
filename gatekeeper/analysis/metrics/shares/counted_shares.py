"""Shares of answers or of canaries: counted, or bounded for all prompts like them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.verdict import Estimate, Missing, fact


def share_of_canaries(holds: Mapping[str, bool], paired: PairedAnswers, *notes: str) -> Estimate | Missing:
    """Return the share of canaries for which something *holds*: counted, or bounded for all prompts like them."""
    if paired.frozen:
        return fact(fmean(holds.values()), len(holds), *notes)
    return noted(intervals.clustered_share({name: [mark] for name, mark in holds.items()}, paired.level), *notes)


def share_of_answers(
    marks: Mapping[str, Sequence[bool]], paired: PairedAnswers, description: str
) -> Estimate | Missing:
    """Return the share of marked answers: counted, or bounded for all prompts like them; *what* describes a mark."""
    if paired.frozen:
        count = sum(map(len, marks.values()))
        return fact(sum(map(sum, marks.values())) / count, count)
    marked = sum(any(canary_marks) for canary_marks in marks.values())
    return noted(intervals.clustered_share(marks, paired.level), f"{marked} of {len(marks)} canaries {description}")


def noted(share: Estimate | Missing, *notes: str) -> Estimate | Missing:
    """Add *notes* to an estimate."""
    return replace(share, notes=(*share.notes, *notes)) if isinstance(share, Estimate) else share
