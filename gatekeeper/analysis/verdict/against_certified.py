"""Objectives with `against = "certified"`: this run over the last certified run of the same SLO, or unproven."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gatekeeper.analysis.metrics.paired_answers import (
    PairedAnswers,
    by_canary,
    pair_ratios,
    pair_work,
    successful,
    too_many_lost,
)
from gatekeeper.analysis.metrics.server_claims import labelled_as_claims, with_claimed_rounds
from gatekeeper.analysis.metrics.shares import pass_change, pass_marks
from gatekeeper.analysis.metrics.timing import acceptance_length, acceptance_rate, answer_rate, decode_rate, ttft
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.verdict.checks import check_bound
from gatekeeper.analysis.verdict.run_differences import compare_inputs, concerns
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.metrics import PASS_RATES, RUN_TO_RUN, shown_as
from gatekeeper.core.records import Answer
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.text import listed
from gatekeeper.core.verdict import Check, Estimate, Missing, Outcome, rounded

_COUNTED = {"acceptance_rate": acceptance_rate, "acceptance_length": acceptance_length}
_CLAIMED = "{} from claims"
"""How the figures of a metric are stored that a server reported."""


@dataclass(frozen=True, slots=True)
class CertifiedFigures:
    """The certified run that this one is compared with, as it is copied into the run directory."""

    run: str
    manifest: Manifest
    slo: Slo
    workloads: Mapping[str, Mapping[str, run_to_run.Values]]
    """By workload that it promoted, by metric: its values, each with its canary, in the order of time."""


@dataclass(frozen=True, slots=True)
class Certified:
    """What a case knows of the certified run."""

    figures: CertifiedFigures | None = None
    none_yet: bool = False
    """The person said that there is no certified run yet: objectives against it are left out."""
    because: str = "this run was not compared with a certified one"
    """Why there are no figures."""
    void: tuple[str, ...] = field(default=())
    """Differences of the two runs that make a comparison void."""
    named: tuple[str, ...] = field(default=())
    """Differences that may explain a change."""


def compared(figures: CertifiedFigures, manifest: Manifest, slo: Slo) -> Certified:
    """Return the certified run with its differences from the run of *manifest* and *slo*."""
    void, causes = compare_inputs(figures.manifest, manifest, figures.slo, slo)
    named = [_described(one, figures.manifest, manifest) for one in causes if one != "slo"]
    return Certified(figures, void=tuple(void), named=tuple(named))


def _described(name: str, then: Manifest, now: Manifest) -> str:
    """Name a difference with both values, where they are short."""
    part, _, key = name.partition(".")
    if part not in {"versions", "host"}:
        return f"{name} differ"
    was, there = (getattr(one, part).get(key) for one in (then, now))
    return f"{key} {was or 'unknown'} then, {there or 'unknown'} now"


def values(metric: str, seen: PairedAnswers) -> run_to_run.Values | Missing:
    """Return what one run shows of a metric per answer or pair, in the order of time."""
    if metric in PASS_RATES:
        marks = pass_marks(seen, PASS_RATES[metric].kind)
        return [(name, float(one)) for name, one in marks] or Missing("no answer was checked for it")
    if metric == "system_throughput_ratio":
        return _system_logs(seen)
    if metric in _COUNTED:
        read = _COUNTED[metric]
        counted = [(one.canary, value) for one in successful(seen.answers) if (value := read(one.answer)) is not None]
        return counted or Missing("no answer has a value for it", len(seen.answers))
    readers: dict[str, Callable[[Answer], float | None]] = {
        "throughput_ratio": partial(decode_rate, together_s=seen.burst_gap),
        "answer_throughput_ratio": answer_rate,
        "ttft_delta": ttft,
    }
    greedy = None if metric == "ttft_delta" else seen.greedy
    ratios, lost = pair_ratios(seen.pairs, readers[metric], greedy=greedy)
    if (why := too_many_lost(lost, seen)) is not None:
        return Missing(why, len(seen.pairs))
    return [(canary, math.log(ratio)) for canary, ratio in ratios if ratio > 0]


def _system_logs(seen: PairedAnswers) -> run_to_run.Values | Missing:
    """Return the log of tokens over busy time, candidate over plain, with each pair's part in its noise added.

    Each canary weighs the same. The parts are those of the delta method: their mean over canaries is zero.
    """
    work, lost = pair_work(seen.pairs, greedy=seen.greedy)
    if (why := too_many_lost(lost, seen)) is not None:
        return Missing(why, len(seen.pairs))
    rows = [(name, (*mine, *plain)) for name, mine, plain in work]
    grouped = by_canary(rows).values()
    means = [[math.fsum(column) / len(many) for column in zip(*many, strict=True)] for many in grouped]
    whole = [math.fsum(column) / len(means) for column in zip(*means, strict=True)]
    if min(whole) <= 0:
        return Missing("an answer took no time", len(seen.pairs))
    signs = (1, -1, -1, 1)
    center = math.fsum(sign * math.log(one) for sign, one in zip(signs, whole, strict=True))
    return [
        (name, center + math.fsum(sign * one / by for sign, one, by in zip(signs, row, whole, strict=True)))
        for name, row in rows
    ]


def summary(seen: PairedAnswers) -> dict[str, list[list[Any]]]:
    """Return the figures of one workload that a later run is compared with; what was not measured is left out."""
    claimed = _claimed(seen)
    found = {metric: values(metric, seen) for metric in RUN_TO_RUN}
    found |= {_CLAIMED.format(metric): values(metric, claimed) for metric in _COUNTED}
    return {
        metric: [[canary, rounded(value)] for canary, value in one]
        for metric, one in found.items()
        if not isinstance(one, Missing)
    }


def check_against(
    objective: Objective, looks: Sequence[PairedAnswers], certified: Certified, lost: Mapping[str, str]
) -> Check:
    """Check one objective against the certified run; where the last look is open, the latest that decided counts."""
    found = [_check(objective, one, certified, lost) for one in reversed(looks)]
    return next((one for one in found if one.outcome is not Outcome.UNPROVEN), found[0])


def _check(objective: Objective, seen: PairedAnswers, certified: Certified, lost: Mapping[str, str]) -> Check:
    metric = objective.of
    estimate = _estimate(objective, seen, certified, lost)
    made = check_bound(shown_as(metric, "certified"), objective.bound, objective.threshold, estimate, why=objective.why)
    because = f"against the certified run: {made.because}"
    if certified.named and made.outcome is not Outcome.PASS:
        because += f"; what differs: {listed(certified.named)}"
    return replace(made, metric=metric.name, unit="1", because=because, against="certified")


def _estimate(
    objective: Objective, seen: PairedAnswers, certified: Certified, lost: Mapping[str, str]
) -> Estimate | Missing:
    name, claimed = objective.metric, objective.source == "claims"
    if name in lost:
        return Missing(lost[name], len(seen.answers))
    then = _then(_CLAIMED.format(name) if claimed else name, seen.workload, certified)
    now = values(name, _claimed(seen) if claimed else seen)
    if isinstance(then, Missing):
        return then
    if isinstance(now, Missing):
        return now
    found = _change(objective, seen, then, now)
    return labelled_as_claims(found) if claimed and isinstance(found, Estimate) else found


def _change(
    objective: Objective, seen: PairedAnswers, then: run_to_run.Values, now: run_to_run.Values
) -> Estimate | Missing:
    """Return what changed from the certified run: a difference of pass rates, a relative change or a ratio."""
    if (rate := objective.of.pass_rate) is not None:
        mine, other = (
            {name: [mark == 1 for mark in marks] for name, marks in by_canary(one).items()} for one in (now, then)
        )
        return pass_change(seen, rate.kind, mine, other, "both runs")
    found = run_to_run.ratio(now, then, seen.level, len(seen.canaries), logs=objective.metric not in _COUNTED)
    if isinstance(found, Missing) or not objective.of.relative:
        return found
    return replace(found, center=found.center - 1, lo=found.lo - 1, hi=found.hi - 1)


def _claimed(seen: PairedAnswers) -> PairedAnswers:
    return replace(seen, answers=with_claimed_rounds(seen.answers))


def _then(metric: str, workload: str, certified: Certified) -> run_to_run.Values | Missing:
    """Return what the certified run showed; Missing where that cannot be compared with."""
    figures = certified.figures
    if figures is None:
        return Missing(certified.because)
    if void := [one for one in certified.void if concerns(one, workload)]:
        return Missing(f"{figures.run} is not comparable: {listed(void)} differ")
    if (then := figures.workloads.get(workload)) is None:
        return Missing(f"{figures.run} did not promote a draft for this workload")
    return then.get(metric) or Missing(f"{figures.run} did not measure {metric}")
