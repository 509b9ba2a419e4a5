"""What explains that a greedy answer differs from plain decoding's: by what the backend shows of the target."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.exactness import (
    NOT_CORRECT,
    Explain,
    Explanation,
    Explanations,
    first_flip,
    leads_of_all,
    shared_tokens,
)
from gatekeeper.analysis.metrics.words.near_tie_rule import TIE_TOLERANCE, first_divergence, gap_at, token_column
from gatekeeper.analysis.metrics.words.numerics_null import ComparedLeads, null_of, numerics_of
from gatekeeper.analysis.metrics.words.replayed_rounds import drafted_replays, is_exact
from gatekeeper.analysis.metrics.words.scored_answers import (
    by_canary_and_arm,
    continuations,
    find_partings,
    is_of,
    later_leads,
    leads_of,
    own_answers,
    plain_lead,
    tells_its_passes,
)
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Answer, Generation, Scored, Tie
from gatekeeper.core.units import show_number

EARLY = 2
"""Tokens that must be alike before a difference may be numerics where nothing shows the target's logits.

A pass of several tokens changes up to one token in twenty on real chips, so that even among the first 16 tokens half of
the answers may differ. Only other words from the start are no numerics.
"""


_ONE_FLIP = "begin with the same other words as another one, which a single near-tie can do: open"
_NOT_LIKELIEST = "a token is not the likeliest in its own pass"


def explanations_for(paired: PairedAnswers, *, unread: bool = False) -> Explanations:
    """Return what explains the differences of these answers; *unread*: the backend shows no logits."""
    explanations = _explanations_of_readings(paired, unread=unread)
    if not any(canary.options for canary in paired.canaries.values()):
        return explanations
    return replace(explanations, explain=_by_place_with_options(paired, explanations.explain))


def _explanations_of_readings(paired: PairedAnswers, *, unread: bool) -> Explanations:
    """Return what explains the differences by what was read of the target, or by their place."""
    # The strongest evidence that a run has decides, and a weaker one is not looked at beside it: first the engine's own
    # pass over each drafted answer, then the log-probabilities of both answers, then those of the drafted answer alone,
    # then the gaps of the target's logits where the words part, and last, with none of these, the place of the parting.
    if drafted_replays(paired):
        means = "differ, and each of their tokens is the target's choice in its pass"
        return Explanations(_by_replay(paired), means, refutes=NOT_CORRECT)
    if by_canary_and_arm(own_answers(paired)):
        null = null_of(numerics_of(paired), paired.level)
        # Without the null, the numerics of plain passes, no lead is small or large.
        if not isinstance(null, Missing):
            means = "diverge where numerics may turn the lead of plain decoding's token (at most {widest})"
            return Explanations(
                _by_lead(paired, null.tolerance),
                means,
                null,
                leads_of(own_answers(paired), continuations(paired)),
                _leads_elsewhere(paired, null.tolerance),
                NOT_CORRECT,
            )
    if any(tells_its_passes(record) for record in own_answers(paired)):
        means = "differ, and each of their tokens is the likeliest in its pass"
        return Explanations(_by_told_passes(paired), means, refutes=NOT_CORRECT)
    if unread:
        means = f"differ after their first {EARLY} tokens, which near-ties can do"
        refutes = "the words are others from the start"
        return Explanations(_by_place(paired), means, refutes=refutes, reads=False, open_means=_ONE_FLIP)
    null = null_of(numerics_of(paired), paired.level)
    if not isinstance(null, Missing):
        leads = {record.canary: record.gaps for record in numerics_of(paired)}
        return replace(by_tie(paired.readings(Tie), null.tolerance), null=null, leads=leads, refutes=NOT_CORRECT)
    explanations = by_tie(paired.readings(Tie))
    return replace(explanations, means=f"{explanations.means}; the numerics of this run were not measured")


def by_tie(ties: Sequence[Tie], tolerance: float = TIE_TOLERANCE) -> Explanations:
    """Return what explains differences by the gaps of the target's logits: up to *tolerance*, they are numerics."""
    gaps = f"(gap at most {{widest}}, tolerance {show_number(tolerance)})"
    reads = any(tie.gap is not None for tie in ties)
    means = f"diverge only at a near-tie of the target's logits {gaps}"
    return Explanations(_by_tie(ties, tolerance), means, reads=reads)


def _by_replay(paired: PairedAnswers) -> Explain:
    exact = {replayed.key: is_exact(replayed) for replayed in drafted_replays(paired) if replayed.fault is None}
    by_output = {
        (answer.canary, token_column(answer.answer)): exact[answer.key]
        for answer in paired.answers
        if answer.key in exact
    }

    def explain(generation: Generation, _: Answer) -> Explanation:
        is_right = by_output.get((generation.canary, token_column(generation.answer)))
        if is_right is None:
            return Explanation(unread=True)
        return Explanation() if is_right else Explanation(reason="a token is not the target's choice in its own pass")

    return explain


def _by_told_passes(paired: PairedAnswers) -> Explain:
    scored = by_canary_and_arm(own_answers(paired))

    def explain(generation: Generation, _: Answer) -> Explanation:
        drafting = scored.get((generation.canary, "candidate"))
        if drafting is None or not is_of(drafting, generation.answer):
            return Explanation(unread=True)
        return Explanation(reason=_NOT_LIKELIEST) if find_partings(drafting) else Explanation()

    return explain


def _by_lead(paired: PairedAnswers, tolerance: float) -> Explain:
    scored, continued = by_canary_and_arm(own_answers(paired)), continuations(paired)

    def explain(generation: Generation, baseline: Answer) -> Explanation:
        plain, drafting = (scored.get((generation.canary, arm)) for arm in ("plain", "candidate"))
        if plain is None or drafting is None or not is_of(plain, baseline) or not is_of(drafting, generation.answer):
            return Explanation(unread=True)
        if tells_its_passes(drafting) and find_partings(drafting):
            return Explanation(reason=_NOT_LIKELIEST)
        leads = _leads_where_parted(scored, continued, drafting.canary)
        if not leads:
            place = plain_lead(plain, drafting)[1]
            return Explanation(reason=f"{place} the lead of plain decoding's token is unknown")
        beyond = tuple(abs(lead) for lead, _ in leads if abs(lead) > tolerance)
        largest, place = max(leads)
        if not beyond:
            return Explanation(largest)
        prefers = f"{place} plain decoding prefers its own token by {show_number(largest)}"
        reason = f"{prefers}, and numerics turn {show_number(tolerance)}"
        return Explanation(reason=reason, beyond=beyond)

    return explain


def _leads_elsewhere(paired: PairedAnswers, tolerance: float) -> ComparedLeads | None:
    """Return the leads of the other workloads, each compared as this one is; None where none was."""
    answers_elsewhere = [record for record in paired.readings(Scored) if record.workload != paired.workload]
    total = None
    for name in dict.fromkeys(record.workload for record in answers_elsewhere):
        records = [record for record in answers_elsewhere if record.workload == name]
        whole, continued = (
            tuple(record for record in records if bool(record.after) == later) for later in (False, True)
        )
        read, leads = by_canary_and_arm(whole), leads_of(whole, continued)
        differing = {canary: _leads_where_parted(read, continued, canary) for canary in leads}
        compared = {answer.canary for answer in paired.elsewhere if answer.workload == name}
        apart = [name for name, parted_at in differing.items() if parted_at or (name, "plain") not in read]
        places = leads_of_all(leads, apart, compared)
        beyond = (lead for parted_at in differing.values() for lead, _ in parted_at if abs(lead) > tolerance)
        total = (total or ComparedLeads()) + ComparedLeads(tuple(beyond), places)
    return total


def _leads_where_parted(
    read: Mapping[tuple[str, str], Scored], continued: Sequence[Scored], canary: str
) -> tuple[tuple[float, str], ...]:
    """Return plain decoding's leads at each place where a drafted answer parts from it, and where that is.

    A place in two records counts once. Of an answer that was not read whole there is only a window.
    """
    plain, drafting = read.get((canary, "plain")), read[canary, "candidate"]
    lead, place = (None, "") if plain is None else plain_lead(plain, drafting)
    later = later_leads(continued, drafting)
    if plain is None:
        return later
    return () if lead is None else tuple({at: (led, at) for led, at in (*later, (lead, place))}.values())


def _by_tie(ties: Sequence[Tie], tolerance: float = TIE_TOLERANCE) -> Explain:
    def explain(generation: Generation, baseline: Answer) -> Explanation:
        gap, place = gap_at(first_divergence(generation.canary, generation.answer, baseline), ties)
        if gap is None:
            return Explanation(reason=place)
        if 0 <= gap <= tolerance:
            return Explanation(gap)
        reason = f"{place} the target prefers its own token by {show_number(gap)}, {show_number(tolerance)} allowed"
        return Explanation(reason=reason, beyond=(gap,) if gap > tolerance else ())

    return explain


def _by_place_with_options(paired: PairedAnswers, explain_others: Explain) -> Explain:
    """Explain the differences of canaries that set options by their place, and those of others as they were read.

    Log-probabilities are told before a response format or a penalty is applied by some servers, and after it by others.
    """
    with_options = {name for name, canary in paired.canaries.items() if canary.options}

    def explain(generation: Generation, baseline: Answer) -> Explanation:
        if generation.canary not in with_options:
            return explain_others(generation, baseline)
        late = shared_tokens(generation.answer, baseline) >= EARLY
        return Explanation(by_place=True) if late else Explanation(reason="the words are others from the start")

    return explain


def _by_place(paired: PairedAnswers) -> Explain:
    """Explain differences by their place; of those that begin alike the first one counts, and the others are open.

    Answers of a workload may all begin with the same words. Where the target nearly ties there, a pass of several
    tokens turns the same token in all of them: text alone cannot tell it from a draft that writes other words.
    """
    at_tie = _by_tie(paired.readings(Tie))
    first_with_flip: dict[tuple[object, object], str] = {}

    def explain(generation: Generation, baseline: Answer) -> Explanation:
        if shared_tokens(generation.answer, baseline) >= EARLY:
            return Explanation()
        first = first_with_flip.setdefault(first_flip(generation.answer, baseline), generation.canary)
        return at_tie(generation, baseline) if first == generation.canary else Explanation(unread=True)

    return explain
