"""Objectives with `against = "certified"`: this run over the last certified run of the same SLO, or unproven."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from gatekeeper.analysis.metrics.checks import check_bound
from gatekeeper.analysis.metrics.estimate import logs_of_pairs
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful, values_of
from gatekeeper.analysis.metrics.pass_rates import pass_change, pass_marks
from gatekeeper.analysis.metrics.readers import answer_reader
from gatekeeper.analysis.metrics.server_claims import labelled_as_claims, with_claimed_rounds
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.core.document import IF_ANY
from gatekeeper.core.judgement import AGAINST_CERTIFIED, Check, Estimate, Missing, Outcome, round_figure
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.metrics import BY_NAME, PASS_RATES, PLAIN_SPEED, RUN_TO_RUN, shown_as
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.slo import parse as parse_slo
from gatekeeper.core.text import join_names

CAUSES = ("drafts", "slo", "versions.", "host.os", "host.os_build", "host.kernel")
"""Differences that may explain a change and still allow a comparison; any other makes the runs not comparable."""
_COUNTED = tuple(name for name in RUN_TO_RUN if BY_NAME[name].from_rounds)
_CLAIMED = "{} from claims"
"""How the figures of a metric are stored that a server reported."""


@dataclass(frozen=True, slots=True)
class PooledRun:
    """An older certified run whose values stand before those of the newest one."""

    run: str
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CertifiedFigures:
    """The certified run that this one is compared with, as it is copied into the run directory."""

    run: str
    pooled: Annotated[tuple[PooledRun, ...], IF_ANY] = field(default=(), kw_only=True)
    manifest_sha256: str
    manifest: Manifest
    slo: str
    """The text of its SLO file."""
    workloads: Mapping[str, Mapping[str, run_to_run.Values]]
    """The values by promoted workload and by metric, each with its canary, in the order of time."""

    def count_runs(self, workload: str) -> int:
        """Return of how many certified runs the values of a workload are."""
        return 1 + sum(workload in older.workloads for older in self.pooled)


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
    explanations: tuple[str, ...] = field(default=())
    """Differences that may explain a change."""


def compare_certified(figures: CertifiedFigures, manifest: Manifest, slo: Slo) -> Certified:
    """Return the certified run with its differences from the run of *manifest* and *slo*."""
    void, causes = compare_inputs(figures.manifest, manifest, parse_slo(figures.slo, figures.run), slo)
    explanations = [_describe_difference(cause, figures.manifest, manifest) for cause in causes if cause != "slo"]
    return Certified(figures, void=tuple(void), explanations=tuple(explanations))


def _describe_difference(name: str, then: Manifest, now: Manifest) -> str:
    """Name a difference with both values, where they are short."""
    part, _, key = name.partition(".")
    if part not in {"versions", "host"}:
        return f"{name} differ"
    was, there = (getattr(manifest, part).get(key) for manifest in (then, now))
    return f"{key} {was or 'unknown'} then, {there or 'unknown'} now"


def values(metric: str, evidence: PairedAnswers) -> run_to_run.Values | Missing:
    """Return what one run shows of a metric per answer or pair, in the order of time."""
    if metric in PASS_RATES:
        marks = pass_marks(evidence, PASS_RATES[metric].kind)
        return [(name, float(mark)) for name, mark in marks] or Missing("no answer was checked for it")
    reader = answer_reader(metric)
    if BY_NAME[metric].of_plain:
        evidence = evidence.plain_alone
        speeds = values_of(successful(evidence.answers), reader.on(evidence))
        logs = [(name, math.log(speed)) for name, speed in speeds if speed > 0]
        return logs or Missing(reader.unread, len(evidence.answers))
    if not BY_NAME[metric].against_plain:
        counted = values_of(successful(evidence.answers), reader.on(evidence))
        return counted or Missing(reader.unread, len(evidence.answers))
    pairs = logs_of_pairs(BY_NAME[metric], evidence, limited=True)
    if isinstance(pairs, Missing):
        return pairs
    return [(canary, log) for canary, log in pairs.logs if math.isfinite(log)]


def summary(evidence: PairedAnswers) -> dict[str, run_to_run.Values]:
    """Return the figures of one workload that a later run is compared with; what was not measured is left out."""
    claimed = _use_claimed_rounds(evidence)
    values_by_metric = {metric: values(metric, evidence) for metric in RUN_TO_RUN}
    values_by_metric |= {_CLAIMED.format(metric): values(metric, claimed) for metric in _COUNTED}
    return {
        metric: [(canary, round_figure(value)) for canary, value in metric_values]
        for metric, metric_values in values_by_metric.items()
        if not isinstance(metric_values, Missing)
    }


def check_against(
    objective: Objective, evidence: PairedAnswers, certified: Certified, lost: Mapping[str, str]
) -> Check:
    """Check one objective against the certified run."""
    metric = objective.of
    estimate = _estimate(objective, evidence, certified, lost)
    check = check_bound(
        shown_as(metric, "certified"), objective.bound, objective.threshold, estimate, why=objective.why
    )
    because = AGAINST_CERTIFIED + check.because
    if certified.explanations and check.outcome is not Outcome.PASS:
        because += f"; what differs: {join_names(certified.explanations)}"
    return replace(check, metric=metric.name, unit="1", because=because, against="certified")


def _estimate(
    objective: Objective, evidence: PairedAnswers, certified: Certified, lost: Mapping[str, str]
) -> Estimate | Missing:
    name, claimed = objective.metric, objective.source == "claims"
    if name in lost:
        return Missing(lost[name], len(evidence.answers))
    then = _find_certified_values(_CLAIMED.format(name) if claimed else name, evidence.workload, certified)
    now = values(name, _use_claimed_rounds(evidence) if claimed else evidence)
    if isinstance(then, Missing):
        return then
    if isinstance(now, Missing):
        return now
    estimate = _change(objective, evidence, then, now)
    runs = certified.figures.count_runs(evidence.workload) if certified.figures is not None else 1
    if runs > 1 and isinstance(estimate, Estimate):
        estimate = replace(estimate, notes=(*estimate.notes, f"{runs} certified runs count together"))
    if objective.of.speed_ratio and isinstance(estimate, Estimate) and (slower := _slower_plain(evidence, certified)):
        estimate = replace(estimate, notes=(*estimate.notes, slower))
    return labelled_as_claims(estimate) if claimed and isinstance(estimate, Estimate) else estimate


def _slower_plain(evidence: PairedAnswers, certified: Certified) -> str:
    """Say how much slower plain decoding is than in the certified run, where that is proven: a ratio hides it."""
    then, now = _find_certified_values(PLAIN_SPEED, evidence.workload, certified), values(PLAIN_SPEED, evidence)
    if isinstance(then, Missing) or isinstance(now, Missing):
        return ""
    change = run_to_run.ratio(now, then, evidence.level, len(evidence.canaries), logs=True)
    if isinstance(change, Missing) or change.hi >= 1:
        return ""
    measured = shown_as(BY_NAME[PLAIN_SPEED], "certified").show_interval(change.center, change.lo, change.hi)
    return f"plain decoding itself runs at {measured} of what it was: add an objective on {PLAIN_SPEED}"


def _change(
    objective: Objective, evidence: PairedAnswers, then: run_to_run.Values, now: run_to_run.Values
) -> Estimate | Missing:
    """Return what changed from the certified run: a difference of pass rates, a relative change or a ratio."""
    if (rate := objective.of.pass_rate) is not None:
        now_marks, then_marks = (
            {name: [mark == 1 for mark in marks] for name, marks in by_canary(run_values).items()}
            for run_values in (now, then)
        )
        return pass_change(evidence, rate.kind, now_marks, then_marks, "both runs")
    estimate = run_to_run.ratio(
        now, then, evidence.level, len(evidence.canaries), logs=objective.metric not in _COUNTED
    )
    return estimate.as_change() if objective.of.relative and isinstance(estimate, Estimate) else estimate


def _use_claimed_rounds(evidence: PairedAnswers) -> PairedAnswers:
    return replace(evidence, answers=with_claimed_rounds(evidence.answers))


def _find_certified_values(metric: str, workload: str, certified: Certified) -> run_to_run.Values | Missing:
    """Return what the certified run showed; Missing where that cannot be compared with."""
    figures = certified.figures
    if figures is None:
        return Missing(certified.because)
    if void := [difference for difference in certified.void if concerns(difference, workload)]:
        return Missing(f"{figures.run} is not comparable: {join_names(void)} differ")
    if (then := figures.workloads.get(workload)) is None:
        return Missing(f"{figures.run} did not promote a draft for this workload")
    return then.get(metric) or Missing(f"{figures.run} did not measure {metric}")


def compare_inputs(first: Manifest, second: Manifest, first_slo: Slo, second_slo: Slo) -> tuple[list[str], list[str]]:
    """Return the differences that make two runs not comparable, and those that may explain a change."""
    names = differences(first, second)
    conditions = {
        "slo.soak.concurrency": (first_slo.soak.concurrency, second_slo.soak.concurrency),
        "slo.subject.prompt_cache": (first_slo.subject.prompt_cache, second_slo.subject.prompt_cache),
        "slo.subject.args": (first_slo.subject.args, second_slo.subject.args),
    }
    matter = [name for name in names if not _is_cause(name)]
    matter += [name for name, (before, after) in conditions.items() if before != after]
    return matter, [name for name in names if _is_cause(name)]


def _is_cause(name: str) -> bool:
    return any(name == cause or (cause.endswith(".") and name.startswith(cause)) for cause in CAUSES)


def concerns(name: str, workload: str) -> bool:
    """Return whether a difference concerns a workload; other canaries of another workload do not."""
    return not name.startswith("canaries.") or name == f"canaries.{workload}"
