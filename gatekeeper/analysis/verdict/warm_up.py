"""The other way to keep a bound on the first token: a warm-up, which the policy then requires."""

from dataclasses import replace

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.pauses import warmed_delta
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case, looks_at, soak_answers
from gatekeeper.analysis.verdict.checks import check
from gatekeeper.core.slo import Objective
from gatekeeper.core.verdict import Check, Missing, Outcome

WARM_UP = "warm-up"


def late_first_tokens(case: Case, soak: SoakPlan) -> tuple[str, ...]:
    """Return the workloads of a soak whose first token is not proven to keep its bound, and that may warm up."""
    if soak.name not in case.soaks:
        return ()
    return tuple(name for name, knobs in soak.settings.items() if speculates(knobs) and _late(case, soak, name))


def _late(case: Case, soak: SoakPlan, name: str) -> bool:
    objectives = [one for one in case.slo.objectives_for(name, speculating=True) if one.or_with == WARM_UP]
    looks = [replace(soak_answers(case, soak, name, look.end), level=look.level) for look in looks_at(case, soak, name)]
    return any(all(_direct(one, seen) is not Outcome.PASS for seen in looks) for one in objectives)


def _direct(objective: Objective, seen: PairedAnswers) -> Outcome:
    seen = replace(seen, frozen=objective.scope == "frozen")
    return check(objective, estimate(objective.metric, seen)).outcome


def is_missing(case: Case, soak: SoakPlan) -> bool:
    """Return whether the warm-up pass of a soak is due and has not run yet."""
    return soak.pauses_file not in case.after_soak and bool(late_first_tokens(case, soak))


def damage(case: Case, soak: SoakPlan) -> list[str]:
    """Describe what is wrong with the file of the warm-up pass, where the verdict needs it."""
    recorded = case.after_soak.get(soak.pauses_file)
    if recorded is None or recorded.trouble is None or not late_first_tokens(case, soak):
        return []
    return [f"{soak.pauses_file}: {recorded.trouble}"]


def or_warmed(objective: Objective, direct: Check, evidence: PairedAnswers, void: str | None) -> Check:
    """Return the *direct* check; where it does not pass and the objective allows a warm-up, what both say together.

    The bound then holds between drafting right after another request, which is what a warm-up makes of a request, and
    plain decoding after a pause, which is how it is served without one.
    """
    if objective.or_with != WARM_UP or direct.outcome is Outcome.PASS:
        return direct
    warmed = check(objective, Missing(void) if void is not None else warmed_delta(evidence))
    both = f"{direct.because}; warmed, against plain decoding after a pause: {warmed.because}"
    if warmed.outcome is Outcome.PASS:
        return replace(direct, outcome=Outcome.PASS, because=both, passed_with=WARM_UP)
    fails = Outcome.FAIL in {direct.outcome} & {warmed.outcome}
    return replace(direct, outcome=Outcome.FAIL if fails else Outcome.UNPROVEN, because=both)
