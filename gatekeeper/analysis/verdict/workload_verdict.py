"""The verdict on one workload of a soak: its records examined, its objectives checked, its outcome."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.follow_ups.pauses import or_warmed
from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.comparability import voided_metrics
from gatekeeper.analysis.metrics.consistency import contradictions
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.host.energy import energy_use
from gatekeeper.analysis.metrics.order_effect import carried_over
from gatekeeper.analysis.metrics.over_time import keep_settled_pairs, likely_end
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, has_no_decode_speed, successful
from gatekeeper.analysis.metrics.pass_rates import pass_rate
from gatekeeper.analysis.metrics.prompt_speeds import prompt_speeds
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed, labelled_as_claims, with_claimed_rounds
from gatekeeper.analysis.metrics.timing import acceptance_by_position
from gatekeeper.analysis.metrics.words import exactness
from gatekeeper.analysis.metrics.words.explanations import explanations_for
from gatekeeper.analysis.plan.objectives import Implicit, all_objectives
from gatekeeper.analysis.plan.settings import PLAIN, setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import ENOUGH_PAIRS, SoakPlan
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.against_certified import check_against
from gatekeeper.analysis.verdict.answer_findings import differing_answers, examine
from gatekeeper.analysis.verdict.cached_contexts import measure_contexts
from gatekeeper.analysis.verdict.case import Case, looks_at, soak_answers
from gatekeeper.analysis.verdict.faster_repeats import examine_repeats, history
from gatekeeper.analysis.verdict.run_verdict import GAP_TAILS, Measured, WorkloadOutcome, WorkloadVerdict
from gatekeeper.analysis.verdict.soak_time import soaked_seconds
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import (
    Check,
    Estimate,
    Finding,
    FindingKind,
    Missing,
    Outcome,
    StillChanging,
    round_figure,
    worst,
)
from gatekeeper.core.metrics import (
    ANSWER_RATIO,
    BY_NAME,
    DECODE_RATIO,
    ENERGY_RATIO,
    MEASURED,
    PASS_RATES,
    SPEED_RATIOS,
)
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Generation
from gatekeeper.core.slo import Objective

MODEL_NAME_LENGTH = 256
"""Characters of a model's name in policy.toml, at most: a longer one is no name that a client would send."""
MODEL_NAMES = 16
"""Names in policy.toml, at most: one server calls its model by few."""


def judge_workload(
    case: Case, soak: SoakPlan, name: str, choice: Choice, controls: Sequence[Finding]
) -> tuple[WorkloadVerdict, tuple[Finding, ...]]:
    """Judge one workload of a soak, and return the findings of its records; metrics they void are unproven."""
    evidence, knobs = soak_answers(case, soak, name), soak.settings[name]
    speculating = speculates(knobs)
    about = f"{name}, {soak.name}"
    findings = examine(evidence, knobs, about) if speculating else ()
    if speculating:
        evidence, replays = examine_repeats(history(case, soak, name), evidence, about)
        findings = (*findings, *carried_over(case.soaks[soak.name].records, name, about))
        findings = (*findings, *(replays or contradictions(evidence, about)))  # a replay is as fast as it is
    lost = voided_metrics((*controls, *findings))
    evidence = replace(evidence, level=looks_at(case, soak, name)[-1].level)
    checks = _checks(case, evidence, lost, speculating=speculating)
    if speculating:
        findings = (*findings, *differing_answers(evidence, checks, about))
    outcome, because = _outcome(checks, choice, speculating=speculating, answered=bool(evidence.answers))
    if any(finding.kind == FindingKind.DRAFTED_FAILED for finding in findings):
        # Nothing is known of the draft but that it did not answer: that is no proof for plain decoding either.
        outcome, because = WorkloadOutcome.UNPROVEN, findings[0].detail
    required = next(workload.speculation == "required" for workload in case.slo.workload if workload.name == name)
    energy = energy_use(evidence) if any(check.metric == ENERGY_RATIO for check in checks) else None
    seconds = round_figure(soaked_seconds(case.soaks[soak.name].records))
    objectives = all_objectives(case.slo, name, speculating=speculating, terms=case.plan.terms)
    contexts = measure_contexts(evidence, objectives)
    measured = replace(_collect_figures(evidence, lost), soak_seconds=seconds, energy=energy, contexts=contexts)
    setting = setting_document(knobs)
    verdict = WorkloadVerdict(name, outcome, setting, required, because, checks, measured=measured, choice=choice)
    return verdict, findings


def _checks(case: Case, evidence: PairedAnswers, lost: Mapping[str, str], *, speculating: bool) -> tuple[Check, ...]:
    """Check every objective that applies; metrics that are *lost* are open."""
    terms, name = case.plan.terms, evidence.workload
    logits = Sight.LOGITS in terms.sight
    on_unseen = _keep_unseen_canaries(case, evidence) if speculating else evidence
    objectives = all_objectives(case.slo, name, speculating=speculating, terms=terms)
    if has_no_decode_speed(evidence):  # then whole answers alone have a speed
        objectives = tuple(
            objective
            for objective in objectives
            if not (isinstance(objective, Implicit) and objective.metric == DECODE_RATIO)
        )
    checks = [
        or_warmed(
            objective,
            check(
                objective,
                objective_estimate(
                    objective, on_unseen if objective.beyond_canaries else evidence, lost, logits=logits
                ),
            ),
            evidence,
            lost.get(objective.metric),
        )
        for objective in objectives
    ]
    if speculating and not case.certified.none_yet:
        against = case.slo.against_certified(name)
        checks += [check_against(objective, evidence, case.certified, lost) for objective in against]
    return tuple(checks)


def _outcome(
    checks: Sequence[Check], choice: Choice, *, speculating: bool, answered: bool
) -> tuple[WorkloadOutcome, str]:
    """Return the outcome that the checks give, and its reason."""
    outcome = worst(check.outcome for check in checks)
    if not checks and not speculating and answered:
        outcome = Outcome.PASS  # no objective applies to plain decoding, and it has answers
    if outcome is not Outcome.PASS:
        reasons = [f"{check.metric}: {check.because}" for check in checks if check.outcome is outcome]
        failed = outcome is Outcome.FAIL
        return WorkloadOutcome.FAILED if failed else WorkloadOutcome.UNPROVEN, "; ".join(reasons) or choice.because
    if speculating:
        return WorkloadOutcome.PROMOTED, choice.because
    if choice.doubt is not None:
        because = f"plain decoding meets its objectives, but it is unproven whether a draft would help: {choice.doubt}"
        return WorkloadOutcome.UNPROVEN, because
    return WorkloadOutcome.GRADED_BACK, choice.because


def _keep_unseen_canaries(case: Case, evidence: PairedAnswers) -> PairedAnswers:
    """Return what the soak recorded of canaries that the sweep never sent, so that they had no part in the choice."""
    swept = {
        answer.canary
        for generations in case.sweep_records.values()
        for answer in generations
        if answer.workload == evidence.workload
    }

    def drop_swept(answers: Iterable[Generation]) -> tuple[Generation, ...]:
        return tuple(answer for answer in answers if answer.canary not in swept)

    return replace(
        evidence,
        canaries={name: canary for name, canary in evidence.canaries.items() if name not in swept},
        answers=drop_swept(evidence.answers),
        plain=drop_swept(evidence.plain),
        pairs=tuple(pair for pair in evidence.pairs if pair[0].canary not in swept),
        untimed=drop_swept(evidence.untimed),
        swept=((), ()),
    )


def no_gain_proven(checks: Sequence[Check]) -> str | None:
    """Describe the ratios whose intervals do not decide them; None without any, or where one was not measured."""
    ratios = [
        check
        for check in checks
        if BY_NAME[check.metric].speed_ratio and check.outcome is Outcome.UNPROVEN and check.against is None
    ]
    if not ratios or any(check.center is None for check in ratios):
        return None
    return "no gain was proven: " + "; ".join(f"{check.metric}: {check.because}" for check in ratios)


def judge_baseline(case: Case, soak: SoakPlan, name: str, choice: Choice, because: str) -> WorkloadVerdict | None:
    """Judge plain decoding by the baseline requests of a soak; None unless they prove all its objectives."""
    evidence = replace(soak_answers(case, soak, name), level=looks_at(case, soak, name)[-1].level)
    plain = replace(evidence, answers=evidence.plain, plain=(), pairs=(), before=())
    objectives = all_objectives(case.slo, name, speculating=False)
    on_unseen = _keep_unseen_canaries(case, plain)
    estimates = (
        objective_estimate(objective, on_unseen if objective.beyond_canaries else plain, {}, logits=False)
        for objective in objectives
    )
    checks = tuple(map(check, objectives, estimates))
    if not plain.answers or any(check.outcome is not Outcome.PASS for check in checks):
        return None
    outcome, setting, measured = WorkloadOutcome.GRADED_BACK, setting_document(PLAIN), _collect_figures(plain, {})
    return WorkloadVerdict(
        name, outcome, setting, checks=checks, required=False, because=because, measured=measured, choice=choice
    )


def objective_estimate(
    objective: Objective, evidence: PairedAnswers, lost: Mapping[str, str], *, logits: bool
) -> Estimate | Missing:
    """Return the estimate that an objective is checked with; Missing for a metric that is *lost*, with the reason."""
    if objective.metric in lost:
        return Missing(lost[objective.metric], len(evidence.answers))
    if isinstance(objective, Implicit) and objective.metric == "token_agreement":
        return _implied_agreement(evidence, logits=logits)
    evidence = replace(evidence, frozen=objective.scope == "frozen")
    if not evidence.canaries:
        return Missing("the sweep chose the setting on all canaries, so none is left to prove it for prompts like them")
    if objective.source == "ours":
        return _unless_it_may_fall(objective, evidence, estimate(objective.metric, evidence))
    claims = estimate(objective.metric, replace(evidence, answers=with_claimed_rounds(evidence.answers)))
    return labelled_as_claims(claims) if isinstance(claims, Estimate) else claims


def _unless_it_may_fall(
    objective: Objective, evidence: PairedAnswers, over_soak: Estimate | Missing
) -> Estimate | Missing:
    """Return the ratio *over_soak*; open where it keeps its bound, but perhaps not at the end of the soak.

    A longer soak shows where it settles.
    """
    if objective.metric not in SPEED_RATIOS or objective.bound != "at_least":
        return over_soak
    if isinstance(over_soak, Estimate) and over_soak.lo >= objective.threshold:
        stretch = keep_settled_pairs(evidence)
        end = over_soak.center * (likely_end(stretch) if isinstance(stretch, PairedAnswers) else 1.0)
        if end < objective.threshold:
            because = f"the last answers of the soak may be at {end:.2f}x: it must last until that is known"
            return StillChanging(because, over_soak.n)
    return over_soak


def _implied_agreement(evidence: PairedAnswers, *, logits: bool) -> Estimate | Missing:
    """Count agreement over the canaries answered in both arms; who wants every canary names the metric."""
    evidence = evidence.words
    explanations = explanations_for(evidence, unread=not logits)
    compared = exactness.compare(evidence.answers, evidence.plain, explanations)
    n, canary_count = len(compared.agree), len(evidence.canaries)
    if n < min(canary_count, ENOUGH_PAIRS):
        return Missing(f"{n} of {canary_count} canaries were answered in both arms, too few to compare the words", n)
    part = (f"compared on the {n} of {canary_count} canaries answered in both arms",) if n < canary_count else ()
    return replace(compared.share(*part), shows=explanations.refutes)


def _collect_figures(evidence: PairedAnswers, lost: Mapping[str, str]) -> Measured:
    prompts = (generation.answer.prompt_tokens or 0 for generation in evidence.answers)
    outputs = (generation.answer.output_tokens or 0 for generation in evidence.answers)
    answers, claimed = counted_or_claimed(evidence.answers)
    evidence = replace(evidence, answers=answers, frozen=False)  # what is deployed meets other prompts
    figure_by_metric: dict[str, Estimate] = {}
    for metric in (*MEASURED, "nll_delta"):
        if metric in lost or (BY_NAME[metric].default_when == "speculating" and not evidence.plain):
            continue
        estimated = estimate(metric, evidence)
        if isinstance(estimated, Estimate):
            figure_by_metric[metric] = estimated.round_figures()
    arms = {"": evidence} | ({"plain_": evidence.plain_alone} if evidence.plain else {})
    figure_by_metric |= _gap_tails(arms, {*figure_by_metric, *lost})
    for rate in PASS_RATES.values():
        if (share := pass_rate(evidence, rate.kind)) is not None:
            figure_by_metric[rate.figure] = share.round_figures()
    speed = next((metric for metric in (DECODE_RATIO, ANSWER_RATIO) if metric in figure_by_metric), None)
    return Measured(
        figure_by_metric,
        prompts=prompt_speeds(speed, evidence) if speed is not None else None,
        answers=len(evidence.answers),
        plain_answers=len(evidence.plain),
        longest_prompt=max(prompts, default=0) or None,
        canaries=_answered_canaries(evidence),
        models=_reported_models(evidence),
        longest_answer=max(outputs, default=0) or None,
        acceptance_by_position=tuple(map(round_figure, acceptance_by_position(successful(evidence.answers)))),
        claimed=claimed,
    )


def _gap_tails(arms: Mapping[str, PairedAnswers], known: Collection[str]) -> dict[str, Estimate]:
    """Return the tails of the gaps of both *arms*, each by its prefix and metric, but for those that are *known*.

    For prompts like these a p99 takes hundreds of canaries: with fewer it is that of these canaries.
    """
    tails: dict[str, Estimate] = {}
    for prefix, arm in arms.items():
        for metric in GAP_TAILS:
            if prefix + metric not in known:
                tail = estimate(metric, replace(arm, frozen=True))
                if isinstance(tail, Estimate):
                    tails[prefix + metric] = tail.round_figures()
    return tails


def _answered_canaries(evidence: PairedAnswers) -> tuple[Canary, ...]:
    """Return the canaries with an answer that did not fail, in the order of their file."""
    answered = {generation.canary for generation in successful(evidence.answers)}
    return tuple(canary for name, canary in evidence.canaries.items() if name in answered)


def _reported_models(evidence: PairedAnswers) -> tuple[str, ...]:
    """Return the names that the server called its model in answers, sorted; a name that no one would choose is none."""
    reported = {generation.answer.claims.model for generation in successful((*evidence.answers, *evidence.plain))}
    names = sorted(name for name in reported if name and len(name) <= MODEL_NAME_LENGTH and name.isprintable())
    return tuple(names[:MODEL_NAMES])
