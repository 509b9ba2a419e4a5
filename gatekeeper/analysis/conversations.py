"""Conversations at the end of a run: the turns of a promoted workload, each on the cache of the one before.

The outcome of a workload is decided by then: by the length of the prompt these answers say how much sooner a draft
answers, and so up to which prompt the workload's route reaches.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from gatekeeper.analysis.metrics.host.host_series import readings
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.pair_speeds import pair_speed
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers, values_of
from gatekeeper.analysis.metrics.readers import answer_reader
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import acceptance_rate, ttft
from gatekeeper.analysis.plan.objectives import least_ratio
from gatekeeper.analysis.plan.planned_conversations import CONVERSATIONS, TRIAL, conversations_of
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy, plain_of, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats.intervals import binomial_cdf, by_canary, mean_of_logs
from gatekeeper.analysis.stats.total_time import linearised
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.grown_conversations import ContextBin, GrownConversations
from gatekeeper.analysis.verdict.host_checks import host_checks
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.metrics import DECODE_RATIO
from gatekeeper.core.records import Generation, HostSample, Setting
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.text import counted
from gatekeeper.core.units import show_ratio
from gatekeeper.core.verdict import Check, Estimate, Missing, Outcome

ARMS = ("candidate", "plain")
"""In the order of a pair."""
CONTEXTS = (*(512 * 2**power for power in range(12)), math.inf)
"""The longest prompts that each bin may have, in tokens."""


def forecast_conversations(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Yield the seconds of every turn in both arms, as if each prompt were read whole."""
    for name, knobs in _speculating(settings).items():
        for conversation in conversations_of(costs.canaries[name]):
            for canary in conversation:
                for setting in (knobs, plain_of(knobs)):
                    yield costs.answering(name, canary, setting)


def conversations_due(case: Case, routes: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the promoted workloads whose canaries are turns of conversations, each with its setting.

    A setting that was soaked alone has none: it gets no route.
    """
    speculating = _speculating(routes) if case.plan.fixed is None else {}
    return {name: knobs for name, knobs in speculating.items() if conversations_of(case.canaries[name])}


def add_conversations(case: Case, verdict: Verdict, routes: Mapping[str, Setting]) -> Verdict:
    """Return the verdict with what the conversations of its promoted workloads show."""
    due = conversations_due(case, routes)
    workloads = (
        replace(workload, conversations=grown_conversations(case, workload.name, due[workload.name]))
        if workload.name in due
        else workload
        for workload in verdict.workloads
    )
    return replace(verdict, workloads=tuple(workloads)) if due else verdict


def _speculating(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {name: knobs for name, knobs in settings.items() if speculates(knobs)}


def grown_conversations(case: Case, workload: str, knobs: Setting) -> GrownConversations:
    """Judge the conversations of a promoted *workload*."""
    conversations = conversations_of(case.canaries[workload])
    if case.conversations is None:
        return GrownConversations((), because="none was asked")
    if case.conversations.trouble is not None:
        return GrownConversations((), because=f"{CONVERSATIONS}: {case.conversations.trouble}")
    answers = [answer for answer in case.conversations.records if answer.workload == workload]
    candidate, plain = (tuple(answer for answer in answers if answer.arm == arm) for arm in ARMS)
    canaries = {canary.id: canary for conversation in conversations for canary in conversation}
    paired = pair_answers(
        PairedAnswers(
            workload, canaries, candidate, plain, case.slo.confidence, case.plan.seed,
            greedy=is_greedy(case.slo, knobs),
        )
    )  # fmt: skip
    if not paired.pairs:
        return GrownConversations((), because="no turn was answered in both arms")
    if any(not _prompt_tokens(pair) for pair in paired.pairs):
        return GrownConversations((), because="the tokens of its prompts are not counted")
    least = least_ratio(case.slo, workload, DECODE_RATIO)
    bins = context_bins(paired, least, case.slo.confidence, footprints_of(case.host_samples, answers))
    return GrownConversations(bins, _host(case, workload, knobs))


def context_bins(
    paired: PairedAnswers, least: float, confidence: float, footprints: Mapping[str, float] | None = None
) -> tuple[ContextBin, ...]:
    """Judge the pairs by the tokens of their prompts; all bins together err at most with 1 - *confidence*.

    A bin has a gain where the ratio of its speeds is proven to be *least* or more. *footprints* are bytes by the key
    of an answer.
    """
    by_context: dict[float, list[Pair]] = {}
    for pair in sorted(paired.pairs, key=_prompt_tokens):
        context = next(context for context in CONTEXTS if _prompt_tokens(pair) <= context)
        by_context.setdefault(context, []).append(pair)
    share = (1 - confidence) / max(1, len(by_context))
    return tuple(
        _bin(replace(paired, pairs=tuple(pairs)), least, share, footprints or {}) for pairs in by_context.values()
    )


def footprints_of(samples: Sequence[HostSample], answers: Iterable[Generation]) -> dict[str, float]:
    """Return the most memory of the system under test that a sample shows during each answer, in bytes, by its key."""
    columns = HostColumns.of(samples)
    at_ns, processes = np.array(columns.at_ns, dtype=np.int64), np.array(columns.segment, dtype=np.int64) // 2
    footprint = readings(columns, "subject_footprint").numbers
    by_key = {}
    for answer in answers:
        during = (processes == answer.segment) & (at_ns >= answer.answer.sent_ns) & (at_ns <= answer.answer.ended_ns)
        during &= np.isfinite(footprint)
        if during.any():
            by_key[answer.key] = float(footprint[during].max())
    return by_key


def _prompt_tokens(pair: Pair) -> int:
    return pair[0].answer.prompt_tokens or 0


def _bin(paired: PairedAnswers, least: float, error: float, footprints: Mapping[str, float]) -> ContextBin:
    """Judge the turns of one bin; *error* is its share of what all bins may err with."""
    pairs, canaries = paired.pairs, paired.canaries
    read = answer_reader(DECODE_RATIO).on(paired)
    # The turns of one conversation share its text: the conversation is the unit, not the turn.
    times = [
        (canaries[speed.canary].conversation or speed.canary, speed.plain_s, speed.candidate_s)
        for speed in (pair_speed(pair, read, None) for pair in pairs)
        if speed is not None
    ]
    ratio = mean_of_logs(by_canary(linearised(times).logs), 1 - error)
    answers, _ = counted_or_claimed(tuple(pair[0] for pair in pairs))
    accepted = [value for _, value in values_of(answers, acceptance_rate)]
    first_tokens = [_medians(arm) for arm in zip(*pairs, strict=True)]
    grades = [tuple(canaries[answer.canary].grade(answer.answer) for answer in pair) for pair in pairs]
    graded = [pair for pair in grades if None not in pair]
    passed = [sum(map(bool, arm)) for arm in zip(*graded, strict=True)]
    peak = max((footprints[answer.key] for pair in pairs for answer in pair if answer.key in footprints), default=None)
    outcome, because = _judged(ratio, least, pairs, grades, error)
    return ContextBin(
        least=min(map(_prompt_tokens, pairs)),
        most=max(map(_prompt_tokens, pairs)),
        conversations=len({canaries[pair[0].canary].conversation for pair in pairs}),
        turns=len(pairs),
        outcome=outcome,
        because=because,
        ratio=ratio,
        acceptance=median(accepted) if accepted else None,
        ttft=dict(zip(ARMS, first_tokens, strict=True)) if all(first_tokens) else None,
        passed=dict(zip((*ARMS, "of"), (*passed, len(graded)), strict=True)) if graded else None,
        footprint=peak,
    )


def _medians(answers: Iterable[Generation]) -> float:
    values = [seconds for _, seconds in values_of(answers, ttft)]
    return median(values) if values else 0.0


def _judged(
    ratio: Estimate | Missing,
    least: float,
    pairs: Sequence[Pair],
    grades: Sequence[tuple[bool | None, ...]],
    error: float,
) -> tuple[Outcome, str]:
    failed = [pair for pair in pairs if pair[0].answer.fault is not None and pair[1].answer.fault is None]
    if failed:
        return Outcome.FAIL, f"{counted(len(failed), 'answer')} failed with the draft alone, first {failed[0][0].key}"
    lost, won = grades.count((False, True)), grades.count((True, False))
    # A sign test of the turns that only one arm answers as expected.
    if lost > won and binomial_cdf(won, lost + won, 0.5) <= error:
        return Outcome.FAIL, f"{lost} turns are answered as expected plainly alone, {won} with the draft alone"
    if isinstance(ratio, Missing):
        return Outcome.UNPROVEN, ratio.because.replace("canaries", "conversations")
    measured = f"{show_ratio(ratio.center, ratio.lo, ratio.hi)}, at least {least:g}x required"
    if ratio.hi < least:
        return Outcome.FAIL, measured
    return (Outcome.PASS if ratio.lo >= least else Outcome.UNPROVEN), measured


def _host(case: Case, workload: str, knobs: Setting) -> tuple[Check, ...]:
    """Return the objectives on the host that failed while the conversations grew; a few minutes prove none kept."""
    if not case.slo.host_objectives or case.conversations is None:
        return ()
    slo = case.slo.model_copy(update={"objective": case.slo.host_objectives})
    during = replace(case, slo=slo, soaks={TRIAL: case.conversations})
    checks, _ = host_checks(during, SoakPlan(TRIAL, {workload: plain_of(knobs)}, knobs))
    return tuple(check for check in checks if check.outcome is Outcome.FAIL)
