"""Findings: problems of the system under test that the records show, and the metrics that are unproven by them."""

from collections.abc import Iterable, Mapping, Sequence

from gatekeeper.analysis.metrics.comparability import length_mismatches, length_shift, total_failure, unstable_plain_arm
from gatekeeper.analysis.metrics.consistency import bundled_first_pieces
from gatekeeper.analysis.metrics.order_effect import order_effects
from gatekeeper.analysis.metrics.over_time import acceptance_collapse, plain_swings
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.server_claims import drafted_by_answer
from gatekeeper.analysis.metrics.words import exactness
from gatekeeper.analysis.metrics.words.explanations import explanations_for
from gatekeeper.analysis.verdict.run_verdict import WorkloadVerdict
from gatekeeper.analysis.verdict.wrong_counters import counter_lie, counter_lies
from gatekeeper.core.judgement import Check, Finding, FindingKind, Outcome
from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Generation, Role, Setting

PREFILLED = frozenset(metric.name for metric in ALL if Sight.COLD in metric.needs)
"""Metrics that need a prompt without cached tokens."""


def examine(evidence: PairedAnswers, knobs: Setting, about: str) -> tuple[Finding, ...]:
    """Return what is wrong with the answers of one workload at one speculating setting, and with their baseline."""
    lies = [counter_lie(about, lie) for lie in counter_lies(evidence, knobs)]
    arms = (evidence.answers, evidence.plain)
    served = (*(flaw for arm in arms for flaw in model_swaps(arm, about)), *warm_prompts((*arms[0], *arms[1]), about))
    return (
        *total_failure(evidence.answers, about),
        *lies,
        *silent_speculation(evidence, about),
        *unstable_plain_arm(arms[1], about),
        *length_mismatches(evidence, about),
        *acceptance_collapse(evidence, about),
        *plain_swings(evidence, about),
        *order_effects(evidence, about),
        *length_shift(evidence, about),
        *bundled_first_pieces(evidence, about),
        *served,
    )


def model_swaps(arm: Sequence[Generation], about: str) -> tuple[Finding, ...]:
    """Return a finding if answers of one arm name different models: it is unknown which model was measured."""
    claimed = {generation.answer.claims.model for generation in successful(arm)}
    names = sorted(name for name in claimed if name is not None)
    if len(names) < 2:
        return ()
    advice = "keep one model loaded in the server, and check which other clients send it requests"
    detail = f"answers of one arm came from different models: {' and '.join(names)}"
    voids = frozenset(metric.name for metric in ALL if not metric.host)
    return (Finding(FindingKind.MODEL_SWAPPED, about, detail, advice, voids),)


def warm_prompts(answers: Iterable[Generation], about: str) -> tuple[Finding, ...]:
    """Return a finding if prompts were cached although the cache should be off: the time to first token is void."""
    timed = [answer for answer in successful(answers) if answer.role is not Role.WARMUP]
    warm = [generation for generation in timed if (generation.answer.claims.cached_tokens or 0) > 0]
    if not warm:
        return ()
    warmest = max(warm, key=lambda generation: generation.answer.claims.cached_tokens or 0)
    detail = (
        f"{len(warm)} of {len(timed)} prompts were partly cached, at most {warmest.answer.claims.cached_tokens} of "
        f"{warmest.answer.prompt_tokens} tokens ({warmest.canary})"
    )
    return (Finding(FindingKind.WARM_PROMPT, about, detail, "switch the server's prompt cache off", PREFILLED),)


def differing_answers(evidence: PairedAnswers, checks: Iterable[Check], about: str) -> tuple[Finding, ...]:
    """Return a finding if greedy answers have other words than plain decoding's, where no failed check says so."""
    failed = any(check.metric == "token_agreement" and check.outcome is Outcome.FAIL for check in checks)
    if failed or not evidence.greedy:
        return ()
    compared = exactness.compare(evidence.answers, evidence.plain, explanations_for(evidence))
    not_read = "its request sets options, so that no log-probabilities were read"
    open_differences = compared.unexplained | dict.fromkeys(
        sorted(compared.by_place & compared.excused.keys()), not_read
    )
    if not open_differences:
        return ()
    canary, difference = next(iter(open_differences.items()))
    detail = (
        f"at temperature 0, {len(open_differences)} of {len(compared.agree)} canaries get other words than with "
        f"plain decoding, first {canary}: {difference}"
    )
    advice = "compare the answers in the records: a draft may change the speed, and no word"
    return (Finding(FindingKind.ANSWERS_DIFFER, about, detail, advice),)


def silent_speculation(evidence: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding if a draft is set and proposes nothing, which the check `speculation_engaged` judges."""
    drafted_tokens = drafted_by_answer(successful(evidence.answers))
    idle = drafted_tokens.count(0)
    if not idle:
        return ()
    detail = f"the draft proposed no tokens in {idle} of {len(drafted_tokens)} answers"
    advice = "find out why the server ignores the draft: check its log, its version and the vocabularies of the pair"
    return (Finding(FindingKind.SILENT_SPECULATION, about, detail, advice),)


def cache_findings(cache_off: str | None, soak: str, verdicts: Mapping[str, WorkloadVerdict]) -> list[Finding]:
    """Return a finding for each workload whose answers change with a warm prompt cache; *cache_off* is what to do."""
    return [
        Finding(
            FindingKind.WARM_CACHE_CHANGES_ANSWERS,
            f"{soak}, {name}",
            f"greedy answers change with the prompt cache on, as deployed: {check.because}",
            f"{cache_off or 'deploy it with the prompt cache off'}, or use plain decoding",
        )
        for name, verdict in verdicts.items()
        for check in verdict.checks
        if check.metric == "warm_cache_agreement" and check.outcome is Outcome.FAIL
    ]
