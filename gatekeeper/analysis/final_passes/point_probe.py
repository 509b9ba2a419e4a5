"""One point of a region, judged by its answers: inside, outside or open, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.comparability import voided_metrics
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.metrics.words.exactness import divergences
from gatekeeper.analysis.metrics.words.near_tie_rule import Divergence
from gatekeeper.analysis.plan.objectives import NO_LOSS, Implicit, all_objectives
from gatekeeper.analysis.plan.region_points import REGION, REGION_TIES, PointPlan
from gatekeeper.analysis.plan.settings import is_greedy
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.answer_findings import examine
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.certified_region import PointProbe
from gatekeeper.analysis.verdict.host_checks import host_checks
from gatekeeper.analysis.verdict.workload_verdict import measurable, objective_estimate, unseen
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import ALL, SYSTEM_RATIO
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Generation, Role, StoredRecords
from gatekeeper.core.slo import Objective
from gatekeeper.core.text import counted
from gatekeeper.core.verdict import Check, Outcome, worst

OF_TIME = frozenset(metric.name for metric in ALL if metric.soak_alone)
"""What only a soak shows; at a point, which takes a minute, it is not checked."""
OWN_PASS = {"first_tokens_p_value": "temperature", "warm_cache_agreement": "context"}
"""Metrics that a pass after the soak measures, and the axis on which its result says nothing of another value."""
_NO_QUEUE = (
    Implicit(
        metric=SYSTEM_RATIO,
        at_least=NO_LOSS,
        why="implicit where a point has more streams: a server that does not batch with a draft lets requests wait, "
        "which the speed of each answer does not show",
    ),
)


def answers_at(case: Case, plan: PointPlan) -> list[Generation]:
    """Return what was recorded at a point."""
    records = case.recorded_at_end(REGION).records
    return [answer for answer in records if (answer.workload, answer.trial) == (plan.workload, plan.name)]


def point_evidence(case: Case, plan: PointPlan, generations: Sequence[Generation]) -> PairedAnswers:
    """Pair the answers *generations* at a point, under the SLO as it reads there."""
    slo = plan.slo
    return pair_answers(
        PairedAnswers(
            plan.workload,
            plan.canaries,
            tuple(answer for answer in generations if answer.arm == "candidate"),
            tuple(answer for answer in generations if answer.arm == "plain"),
            slo.confidence,
            case.plan.seed,
            greedy=is_greedy(slo, plan.knobs),
            window_s=slo.soak.window_s,
            drift_limit=slo.soak.sentinel_drift,
            interleaved=plan.interleaved,
            ties=tuple(tie for tie in case.recorded_at_end(REGION_TIES).records if tie.workload == plan.workload),
        )
    )


def _objectives(case: Case, plan: PointPlan) -> list[Objective]:
    every = all_objectives(plan.slo, plan.workload, speculating=True, terms=case.plan.terms)
    if "concurrency" in dict(plan.point) and all(objective.metric != SYSTEM_RATIO for objective in every):
        every = (*every, *_NO_QUEUE)
    return [
        objective
        for objective in every
        if objective.metric not in OF_TIME
        # One of an own pass counts on the axis that may change its result.
        and OWN_PASS.get(objective.metric) in {None, *dict(plan.point)}
    ]


def not_provable(case: Case, plan: PointPlan) -> str | None:
    """Return why no answer can prove a point: an objective is measured at the certified one alone; None otherwise."""
    for objective in _objectives(case, plan):
        if objective.metric == "token_agreement" and not is_greedy(plan.slo, plan.knobs):
            return "token_agreement: tokens can only be compared at temperature 0"
        if objective.metric in OWN_PASS:
            return f"{objective.metric}: it is measured at the certified {OWN_PASS[objective.metric]} alone"
    return None


def unread_ties(case: Case, plan: PointPlan, evidence: PairedAnswers) -> tuple[Divergence, ...]:
    """Return the divergences of greedy answers whose logits must be read before an objective on them is checked."""
    if not evidence.greedy or Sight.LOGITS not in case.plan.terms.sight:
        return ()
    if not any(objective.metric == "token_agreement" for objective in _objectives(case, plan)):
        return ()
    diverging = divergences(evidence.answers, evidence.plain)
    return tuple(divergence for divergence in diverging if not any(divergence.matches(tie) for tie in evidence.ties))


def judge_point(
    case: Case, plan: PointPlan, certified: Mapping[str, float], evidence: PairedAnswers, level: float, stricter: float
) -> PointProbe:
    """Judge one look: inside where every objective is proven, outside where one is proven broken.

    Any of the objectives could be broken by chance, so for that each takes its share of the error, too.
    """
    lost = voided_metrics(examine(evidence, plan.knobs, plan.phase))
    objectives = [measurable(objective, evidence) for objective in _objectives(case, plan)]
    logits = Sight.LOGITS in case.plan.terms.sight
    apart = 1 - (1 - stricter) / max(1, len(objectives))

    def judged(objective: Objective, confidence: float) -> Check:
        evidence_at = replace(unseen(case, evidence) if objective.beyond_canaries else evidence, level=confidence)
        return check(objective, objective_estimate(objective, evidence_at, lost, logits=logits))

    checks = [judged(objective, level) for objective in objectives]
    for number, (objective, first) in enumerate(zip(objectives, checks, strict=True)):
        if first.outcome is Outcome.FAIL and objective.metric == "truncation_rate" and not evidence.greedy:
            because = f"{first.because}; above temperature 0 answers end elsewhere by chance: not decided"
            checks[number] = replace(first, outcome=Outcome.UNPROVEN, because=because)
        elif first.outcome is Outcome.FAIL:
            again = judged(objective, apart)
            checks[number] = again if again.outcome is Outcome.FAIL else replace(first, outcome=Outcome.UNPROVEN)
    checks += _host(case, plan)
    outcome = worst(check.outcome for check in checks)
    because = "; ".join(f"{check.metric}: {check.because}" for check in checks if check.outcome is outcome)
    reach, reason, density = _reach(plan, certified, evidence)
    if outcome is Outcome.PASS or (reason and outcome is Outcome.UNPROVEN):
        outcome, because = (Outcome.UNPROVEN, reason) if reason else (outcome, "every objective is proven")
    answers = len(evidence.answers) + len(evidence.plain)
    return PointProbe(
        plan.point, outcome, because, answers, tuple(checks), reach, tokens_per_byte=density, hopeless=bool(reason)
    )


def _host(case: Case, plan: PointPlan) -> list[Check]:
    """Judge what the host showed while the point was measured."""
    on_host = tuple(
        objective for objective in case.slo.objective if objective.of.host and objective.metric not in OF_TIME
    )
    if not on_host:
        return []
    answers = [answer for answer in answers_at(case, plan) if answer.role is not Role.WARMUP]
    slo = plan.slo.model_copy(update={"objective": on_host})
    case_at_point = replace(case, slo=slo, soaks={plan.phase: StoredRecords(answers)})
    return host_checks(case_at_point, SoakPlan(plan.phase, {plan.workload: plan.plain}, plan.knobs))[0]


def _reach(
    plan: PointPlan, certified: Mapping[str, float], evidence: PairedAnswers
) -> tuple[dict[str, float], str, float | None]:
    """Return up to where the point proves each axis, why it proves one no further, and the tokens of a prompt's byte.

    A limit proves nothing that no prompt and no answer came near.
    """
    reach, density = dict(plan.point), None
    if "context" in reach:
        sizes = [
            (generation.answer.prompt_tokens, prompt_bytes(plan.canaries[generation.canary]))
            for generation in evidence.answers
        ]
        counted_sizes = [(tokens, size) for tokens, size in sizes if tokens]
        if len(counted_sizes) < len(sizes) or not counted_sizes:
            return reach, "the tokens of its prompts are not counted", None
        shortest = min(tokens for tokens, _ in counted_sizes)
        if shortest <= certified["context"]:
            return reach, f"its shortest prompt has {counted(shortest, 'token')}, no more than the certified ones", None
        reach["context"] = min(reach["context"], shortest)
        density = max(tokens / size for tokens, size in counted_sizes)
    if "max_tokens" in reach:
        inner = [value for value in plan.slo.region.max_tokens if value < reach["max_tokens"]]
        before = max([certified["max_tokens"], *inner])
        longest = max(generation.answer.output_tokens or 0 for generation in evidence.answers)
        if longest <= before:
            return reach, f"no answer was longer than {counted(longest, 'token')}, so the limit was not tried", density
    return reach, "", density


def prompt_bytes(canary: Canary) -> int:
    """Return the bytes of a prompt's texts and tools."""
    texts = (str(message.get("content") or "") for message in canary.messages)
    return sum(len(text.encode()) for text in (*texts, str(canary.tools or "")))
