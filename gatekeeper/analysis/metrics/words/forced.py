"""Teacher forcing: one pass of the target over a candidate's greedy tokens can stand in for its plain answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.exactness import distinct_outputs
from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.numerics_null import widest_pass
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Forced, Generation
from gatekeeper.core.text import show_count

CROSS_CHECKS = 12
"""Canaries of a workload whose plain answers are forced as well: the pass must not contradict plain decoding."""
CONTROLS = 3
"""Plain answers that are forced with one token replaced: the target must part from it, or the pass shows nothing."""


def passes_wanted(paired: PairedAnswers) -> tuple[Forced, ...]:
    """Return the passes to make, without their results, in the order of the canaries.

    Each output of the candidate to a canary without a plain answer; then the cross-checks and the controls.
    """
    words = paired.words
    plain = _by_canary(words.plain)
    outputs = _by_canary(words.answers)
    unanswered = [canary for canary in paired.canaries if canary not in plain]
    width = widest_pass(words.answers)
    needed = [_forced_pass(generation, width) for canary in unanswered for generation in outputs.get(canary, ())]
    if not needed:
        return ()
    in_both = [canary for canary in paired.canaries if canary in plain and canary in outputs]
    checks = [_forced_pass(generation, width) for canary in in_both for generation in plain[canary]]
    checks = [forced for forced in checks if forced.tokens]
    first = list(dict.fromkeys(forced.canary for forced in checks))[:CROSS_CHECKS]
    checks = [forced for forced in checks if forced.canary in first]
    passes = (*needed, *checks, *(_replace_middle_token(forced) for forced in checks[:CONTROLS]))
    return tuple(forced for forced in passes if forced.tokens)


def stand_ins(paired: PairedAnswers, passes: Sequence[Forced]) -> tuple[Generation, ...] | Missing:
    """Return the plain answers that *passes* show: the candidate's, where the target wrote every token of it.

    None where a cross-check contradicts plain decoding, or too few were made.
    """
    by_output = {(forced.canary, forced.tokens): forced for forced in passes if forced.altered is None}
    plain = _by_canary(paired.words.plain)
    controls = [forced for forced in passes if forced.altered is not None]
    if (reason := _find_pass_defect(plain, by_output, controls, paired)) is not None:
        return Missing(reason)
    return tuple(
        replace(generation, arm="plain")
        for canary, outputs in _by_canary(paired.words.answers).items()
        if canary not in plain
        for generation in outputs
        if _is_exact(by_output.get((canary, known_tokens(generation.answer))))
    )


def _find_pass_defect(
    plain: Mapping[str, Sequence[Generation]],
    by_output: Mapping[tuple[str, tuple[int, ...]], Forced],
    controls: Sequence[Forced],
    paired: PairedAnswers,
) -> str | None:
    """Return why forced passes do not show what plain decoding writes; None where they do."""
    checked: dict[str, bool] = {}
    for canary, outputs in plain.items():
        for generation in outputs:
            forced = by_output.get((canary, known_tokens(generation.answer)))
            if forced is not None:
                checked[canary] = checked.get(canary, True) and _is_exact(forced)
    wrong = [canary for canary, agrees in checked.items() if not agrees]
    if wrong:
        return f"a forced pass contradicts {show_count(len(wrong), 'plain answer')} of {len(checked)}, first {wrong[0]}"
    enough = min(CROSS_CHECKS, len(paired.canaries))
    if len(checked) < enough:
        return f"only {len(checked)} of {enough} plain answers were compared with a forced pass"
    blind = [
        forced.canary for forced in controls if not any(place.position == forced.altered for place in forced.parted)
    ]
    if blind or not controls:
        return f"a forced pass does not show a replaced token ({blind[0] if blind else 'no control was made'})"
    return None


def _is_exact(forced: Forced | None) -> bool:
    """Return whether plain decoding can have written these tokens: the target parts from none.

    A pass parts where its width is another kernel than plain decoding's: then it shows what drafting writes, and not
    what plain decoding does.
    """
    return forced is not None and forced.fault is None and not forced.parted and forced.ended


def _by_canary(answers: Iterable[Generation]) -> dict[str, list[Generation]]:
    """Return the distinct outputs of successful answers, by canary."""
    return by_canary((generation.canary, generation) for generation in distinct_outputs(answers))


def _forced_pass(generation: Generation, width: int) -> Forced:
    return Forced(generation.workload, generation.canary, known_tokens(generation.answer), width)


def _replace_middle_token(forced: Forced) -> Forced:
    """Return a control: the middle token replaced by the one before it in the vocabulary."""
    middle = len(forced.tokens) // 2
    replacement = forced.tokens[middle] - 1 if forced.tokens[middle] > 0 else 1
    return replace(forced, tokens=(*forced.tokens[:middle], replacement, *forced.tokens[middle + 1 :]), altered=middle)
