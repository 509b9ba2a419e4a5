"""Teacher forcing: one pass of the target over a candidate's greedy tokens can stand in for its plain answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.exactness import TIE_TOLERANCE, distinct_outputs, known_tokens
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.core.records import Forced, Generation
from gatekeeper.core.text import counted
from gatekeeper.core.verdict import Missing

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
    own = _by_canary(words.answers)
    wanted = [_of(one) for canary in paired.canaries if canary not in plain for one in own.get(canary, ())]
    if not wanted:
        return ()
    checks = [_of(one) for canary in paired.canaries for one in plain.get(canary, ()) if canary in own]
    checked = [one for one in checks if one.tokens]
    first = list(dict.fromkeys(one.canary for one in checked))[:CROSS_CHECKS]
    checked = [one for one in checked if one.canary in first]
    found = (*wanted, *checked, *(_altered(one) for one in checked[:CONTROLS]))
    return tuple(one for one in found if one.tokens)


def stand_ins(paired: PairedAnswers, made: Sequence[Forced]) -> tuple[Generation, ...] | Missing:
    """Return the plain answers that *made* passes show: the candidate's, where the target wrote every token of it.

    None where a cross-check contradicts plain decoding, or too few were made.
    """
    by_output = {(one.canary, one.tokens): one for one in made if one.altered is None}
    plain = _by_canary(paired.words.plain)
    if (why := _untrusted(plain, by_output, [one for one in made if one.altered is not None], paired)) is not None:
        return Missing(why)
    return tuple(
        replace(one, arm="plain")
        for canary, outputs in _by_canary(paired.words.answers).items()
        if canary not in plain
        for one in outputs
        if _is_exact(by_output.get((canary, known_tokens(one.answer))))
    )


def _untrusted(
    plain: Mapping[str, Sequence[Generation]],
    by_output: Mapping[tuple[str, tuple[int, ...]], Forced],
    controls: Sequence[Forced],
    paired: PairedAnswers,
) -> str | None:
    """Return why forced passes do not show what plain decoding writes; None where they do."""
    checked: dict[str, bool] = {}
    for canary, outputs in plain.items():
        for one in outputs:
            made = by_output.get((canary, known_tokens(one.answer)))
            if made is not None:
                checked[canary] = checked.get(canary, True) and _may_be_plain(made)
    wrong = [canary for canary, agrees in checked.items() if not agrees]
    if wrong:
        return f"a forced pass contradicts {counted(len(wrong), 'plain answer')} of {len(checked)}, first {wrong[0]}"
    enough = min(CROSS_CHECKS, len(paired.canaries))
    if len(checked) < enough:
        return f"only {len(checked)} of {enough} plain answers were compared with a forced pass"
    blind = [one.canary for one in controls if not any(place.position == one.altered for place in one.parted)]
    if blind or not controls:
        return f"a forced pass does not show a replaced token ({blind[0] if blind else 'no control was made'})"
    return None


def _may_be_plain(made: Forced) -> bool:
    """Return whether plain decoding can have written these tokens: the target parts from none, or at near-ties."""
    ties = all(place.gap is not None and place.gap <= TIE_TOLERANCE for place in made.parted)
    return made.fault is None and ties and made.ended


def _is_exact(made: Forced | None) -> bool:
    return made is not None and made.fault is None and not made.parted and made.ended


def _by_canary(answers: Iterable[Generation]) -> dict[str, list[Generation]]:
    """Return the distinct outputs of successful answers, by canary."""
    found: dict[str, list[Generation]] = {}
    for one in distinct_outputs(answers):
        found.setdefault(one.canary, []).append(one)
    return found


def _of(one: Generation) -> Forced:
    return Forced(one.workload, one.canary, known_tokens(one.answer))


def _altered(one: Forced) -> Forced:
    """Return a control: the middle token replaced by the one before it in the vocabulary."""
    middle = len(one.tokens) // 2
    other = one.tokens[middle] - 1 if one.tokens[middle] > 0 else 1
    return replace(one, tokens=(*one.tokens[:middle], other, *one.tokens[middle + 1 :]), altered=middle)
