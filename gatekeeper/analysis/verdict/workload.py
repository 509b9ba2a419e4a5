"""The verdict on one workload of a soak: its records examined, its objectives checked, its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gatekeeper.analysis.metrics import exactness
from gatekeeper.analysis.metrics.comparability import voided_metrics
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.over_time import decay, last_third
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, has_no_decode_speed
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed, labelled_as_claims, with_claimed_rounds
from gatekeeper.analysis.metrics.shares import pass_rate
from gatekeeper.analysis.metrics.timed_rounds import estimate_from_timing
from gatekeeper.analysis.plan.objectives import Implicit, all_objectives
from gatekeeper.analysis.plan.settings import PLAIN, setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import ENOUGH_PAIRS, SoakPlan
from gatekeeper.analysis.sweep import cost_model
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.against_certified import check_against
from gatekeeper.analysis.verdict.case import Case, looks_at, soak_answers, soaked_seconds
from gatekeeper.analysis.verdict.checks import check
from gatekeeper.analysis.verdict.findings import differing_answers, examine
from gatekeeper.analysis.verdict.replays import examine_repeats, history
from gatekeeper.analysis.verdict.warm_up import or_warmed
from gatekeeper.core.metrics import BY_NAME, MEASURED, PASS_RATES, Sight
from gatekeeper.core.slo import Objective
from gatekeeper.core.verdict import (
    Check,
    Estimate,
    Finding,
    Missing,
    Outcome,
    WorkloadVerdict,
    fact,
    figures,
    rounded,
    worst,
)


def judge_workload(
    case: Case, soak: SoakPlan, name: str, choice: Choice, controls: Sequence[Finding]
) -> tuple[WorkloadVerdict, tuple[Finding, ...]]:
    """Judge one workload of a soak, and return the findings of its records; metrics they void are unproven."""
    evidence, knobs = soak_answers(case, soak, name), soak.settings[name]
    speculating = speculates(knobs)
    terms, about = case.plan.terms, f"{name}, {soak.name}"
    findings = examine(evidence, knobs, about) if speculating else ()
    replays: tuple[Finding, ...] = ()
    if speculating and terms.rules > 1:
        evidence, replays = examine_repeats(history(case, soak, name), evidence, about)
        findings = (*findings, *replays)
    lost = voided_metrics((*controls, *findings))
    required = next(one.speculation == "required" for one in case.slo.workload if one.name == name)
    *before, last = looks_at(case, soak, name)
    evidence = replace(evidence, level=last.level)
    earlier = [
        replace(soak_answers(case, soak, name, look.end), level=look.level) for look in (before if not replays else ())
    ]
    looks = [*earlier, evidence]
    objectives = [
        measurable(one, evidence) for one in all_objectives(case.slo, name, speculating=speculating, terms=terms)
    ]
    logits = Sight.LOGITS in terms.sight
    beyond = [unseen(case, one) for one in looks] if speculating else looks
    checks = tuple(
        or_warmed(
            one,
            _check(one, beyond if one.beyond_canaries else looks, lost, logits=logits),
            evidence,
            lost.get(one.metric),
        )
        for one in objectives
    )
    if speculating and not case.certified.none_yet:
        against = (check_against(one, looks, case.certified, lost) for one in case.slo.against_certified(name))
        checks = (*checks, *against)
    if speculating and terms.rules > 1:
        findings = (*findings, *differing_answers(evidence, checks, about))
    outcome = worst(one.outcome for one in checks)
    if not checks and not speculating and evidence.answers:
        outcome = Outcome.PASS  # no objective applies to plain decoding, and it has answers
    word = {Outcome.FAIL: "failed", Outcome.UNPROVEN: "unproven"}.get(
        outcome, "promoted" if speculating else "graded_back"
    )
    worst_checks = [one for one in checks if one.outcome is outcome and outcome is not Outcome.PASS]
    because = "; ".join(f"{one.metric}: {one.because}" for one in worst_checks) or choice.because
    if word == "graded_back" and choice.doubt is not None:
        word = "unproven"
        because = f"plain decoding meets its objectives, but it is unproven whether a draft would help: {choice.doubt}"
    seconds = soaked_seconds(case.soaks[soak.name].records)
    shown, measured = setting_document(knobs), {"soak_seconds": rounded(seconds)} | _measured(evidence, lost)
    return WorkloadVerdict(name, word, shown, checks, required, because, measured, choice.document()), findings


def unseen(case: Case, evidence: PairedAnswers) -> PairedAnswers:
    """Return what the soak recorded of canaries that the sweep never sent, so that they had no part in the choice."""
    swept = {one.canary for many in case.sweep_records.values() for one in many if one.workload == evidence.workload}
    return replace(
        evidence,
        canaries={name: canary for name, canary in evidence.canaries.items() if name not in swept},
        answers=tuple(one for one in evidence.answers if one.canary not in swept),
        plain=tuple(one for one in evidence.plain if one.canary not in swept),
        pairs=tuple(pair for pair in evidence.pairs if pair[0].canary not in swept),
        untimed=tuple(one for one in evidence.untimed if one.canary not in swept),
        swept=((), ()),
    )


def no_gain_proven(checks: Sequence[Check]) -> str | None:
    """Describe the ratios whose intervals do not decide them; None without any, or where one was not measured."""
    ratios = [
        one
        for one in checks
        if BY_NAME[one.metric].speed_ratio and one.outcome is Outcome.UNPROVEN and one.against is None
    ]
    if not ratios or any(one.center is None for one in ratios):
        return None
    return "no gain was proven: " + "; ".join(f"{one.metric}: {one.because}" for one in ratios)


def judge_baseline(case: Case, soak: SoakPlan, name: str, choice: Choice, because: str) -> WorkloadVerdict | None:
    """Judge plain decoding by the baseline requests of a soak; None unless they prove all its objectives."""
    evidence = replace(soak_answers(case, soak, name), level=looks_at(case, soak, name)[-1].level)
    plain = replace(evidence, answers=evidence.plain, plain=(), pairs=(), before=())
    objectives = all_objectives(case.slo, name, speculating=False)
    others = unseen(case, plain)
    checks = tuple(
        check(one, objective_estimate(one, others if one.beyond_canaries else plain, {}, logits=False))
        for one in objectives
    )
    if not plain.answers or any(one.outcome is not Outcome.PASS for one in checks):
        return None
    shown, measured = setting_document(PLAIN), _measured(plain, {})
    return WorkloadVerdict(name, "graded_back", shown, checks, False, because, measured, choice.document())


def measurable(objective: Objective, evidence: PairedAnswers) -> Objective:
    """Return the objective; the implicit one on decode speed is on whole answers where these have no decode speed."""
    if isinstance(objective, Implicit) and objective.metric == "throughput_ratio" and has_no_decode_speed(evidence):
        return objective.model_copy(update={"metric": "answer_throughput_ratio"})
    return objective


def _check(objective: Objective, looks: Sequence[PairedAnswers], lost: Mapping[str, str], *, logits: bool) -> Check:
    """Check an objective at the last look; where that leaves it open, the latest look that decided it counts.

    The bounds of all looks hold together, so a decision of any of them does. What is counted, and what is void, is
    taken from all records.
    """
    now = check(objective, objective_estimate(objective, looks[-1], lost, logits=logits))
    widened = now.center is not None or objective.of.quantile is not None
    if now.outcome is Outcome.UNPROVEN and widened and objective.metric not in lost:
        for evidence in reversed(looks[:-1]):
            before = check(objective, objective_estimate(objective, evidence, lost, logits=logits))
            if before.outcome is not Outcome.UNPROVEN:
                return before
    return now


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
    if objective.of.speed_ratio and objective.bound == "at_least" and (fell := decay(evidence)) is not None:
        return _after_decay(objective, evidence, fell)
    if objective.source != "claims":
        return (estimate if objective.source == "ours" else estimate_from_timing)(objective.metric, evidence)
    seen = estimate(objective.metric, replace(evidence, answers=with_claimed_rounds(evidence.answers)))
    return labelled_as_claims(seen) if isinstance(seen, Estimate) else seen


def _after_decay(objective: Objective, evidence: PairedAnswers, fell: str) -> Estimate | Missing:
    """Return the ratio of the soak's last third where all of it misses the bound; else why the ratio is unproven."""
    late = estimate(objective.metric, last_third(evidence))
    if isinstance(late, Estimate) and late.hi < objective.threshold:
        return replace(late, notes=(*late.notes, f"in the last third of the soak: {fell}"))
    return Missing(fell, len(evidence.pairs))


def _implied_agreement(evidence: PairedAnswers, *, logits: bool) -> Estimate | Missing:
    """Count agreement over the canaries answered in both arms; who wants every canary names the metric."""
    evidence = evidence.words
    compared = exactness.compare(evidence.answers, evidence.plain, evidence.ties, unread=not logits)
    n, whole = len(compared.agree), len(evidence.canaries)
    if n < min(whole, ENOUGH_PAIRS):
        return Missing(f"{n} of {whole} canaries were answered in both arms, too few to compare the words", n)
    part = (f"compared on the {n} of {whole} canaries answered in both arms",) if n < whole else ()
    return fact(sum(compared.agree.values()) / n, n, *part, *compared.notes())


def _longest(evidence: PairedAnswers) -> dict[str, int]:
    """Return the tokens of the longest prompt and of the longest answer, where they are counted."""
    counts = [(one.answer.prompt_tokens or 0, one.answer.output_tokens or 0) for one in evidence.answers]
    prompt, answer = (max(column, default=0) for column in (zip(*counts, strict=True) if counts else ((), ())))
    return {name: most for name, most in (("longest_prompt", prompt), ("longest_answer", answer)) if most}


def _measured(evidence: PairedAnswers, lost: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {"answers": len(evidence.answers), "plain_answers": len(evidence.plain)}
    out |= _longest(evidence)
    answers, claimed = counted_or_claimed(evidence.answers)
    evidence = replace(evidence, answers=answers, frozen=False)  # what is deployed meets other prompts
    for metric in MEASURED:
        if metric in lost or (BY_NAME[metric].default_when == "speculating" and not evidence.plain):
            continue
        seen = estimate(metric, evidence)
        if isinstance(seen, Estimate):
            out[metric] = figures("center", seen) | ({"scope": seen.scope} if seen.scope else {})
            if claimed and BY_NAME[metric].from_rounds:
                out[metric]["from"] = "claims"
    if evidence.plain and "decode_throughput" in out:
        plain = estimate("decode_throughput", replace(evidence, answers=evidence.plain, plain=(), pairs=(), before=()))
        if isinstance(plain, Estimate):
            out["plain_decode_throughput"] = figures("center", plain)
    for rate in PASS_RATES.values():
        if (share := pass_rate(evidence, rate.kind)) is not None:
            out[rate.figure] = figures("center", share)
    if chances := cost_model.positions(evidence.answers):
        out["acceptance_by_position"] = [rounded(chance) for chance in chances]
    return out
