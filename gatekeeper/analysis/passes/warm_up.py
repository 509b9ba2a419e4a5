"""The warm-up: requests after a pause, for objectives on them, and where a warm-up may keep the bound of a first token.

The policy then requires the warm-up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.warm_up_gain import delta_after_pause
from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Soaked
from gatekeeper.analysis.plan.objectives import workloads_measured_by
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Objective
from gatekeeper.core.verdict import Check, Missing, Outcome

WARM_UP = "warm-up"
CANARIES = 10
"""Per workload: enough for an interval on a ratio, and four minutes a workload with both arms."""
PAUSE_S = 10.0
"""Before a request that counts as one after a pause. macOS unwires the weights of an idle process after about a second
(llama.cpp's pull requests 11427 and 17766), and a reader pauses for longer than ten."""
ANSWER_TOKENS = 32
"""Of an answer in this pass, at most: only its first token is judged, and the first round must draft in full."""


def sent_after_pauses(canaries: Sequence[Canary]) -> list[Canary]:
    """Return evenly picked canaries of a workload for this pass."""
    number = min(CANARIES, len(canaries))
    return [canaries[index * len(canaries) // number] for index in range(number)]


def _needs(soak: Soaked) -> Needs:
    """Return the workloads with an objective after a pause, or whose first token is not proven and may be warmed."""
    named = workloads_measured_by(PASS.name, soak.slo, soak.settings)
    speculating = (name for name, knobs in soak.settings.items() if speculates(knobs))
    return dict.fromkeys((name for name in speculating if name in named or _is_late(soak, name)), ())


def _is_late(soak: Soaked, name: str) -> bool:
    objectives = [bound for bound in soak.slo.objectives_for(name, speculating=True) if bound.or_with == WARM_UP]
    looks = soak.looks(name) if objectives else ()
    return any(all(_direct(bound, answers) is not Outcome.PASS for answers in looks) for bound in objectives)


def _direct(objective: Objective, answers: PairedAnswers) -> Outcome:
    answers = replace(answers, frozen=objective.scope == "frozen")
    return check(objective, estimate(objective.metric, answers)).outcome


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count the pass as if each first token came too late: both arms, after a pause and right after it."""
    named = workloads_measured_by(PASS.name, costs.slo, settings)
    for name, knobs in settings.items():
        bounds = costs.slo.objectives_for(name, speculating=True) if speculates(knobs) else ()
        due = name in named or any(bound.or_with for bound in bounds)
        for canary in sent_after_pauses(costs.canaries[name]) if due else ():
            answer = costs.assumed.seconds(canary, ANSWER_TOKENS)
            yield from (answer + PAUSE_S, answer + PAUSE_S, answer, answer)


PASS = Pass(
    name="warm_up",
    stem="pauses",
    kind=Generation,
    stage="warm-up",
    title="first tokens after a pause, if an objective needs them",
    conditional=True,
    needs=_needs,
    add=lambda answers, recorded: replace(answers, pauses=recorded.sound),
    forecast=_forecast,
    each_part=False,
    fresh=True,
    key="pauses",
)


def or_warmed(objective: Objective, direct: Check, answers: PairedAnswers, void: str | None) -> Check:
    """Return the *direct* check; where it does not pass and the objective allows a warm-up, what both say together.

    The bound then holds between drafting right after another request, which is what a warm-up makes of a request, and
    plain decoding after a pause, which is how it is served without one.
    """
    if objective.or_with != WARM_UP or direct.outcome is Outcome.PASS:
        return direct
    warmed = check(objective, Missing(void) if void is not None else delta_after_pause(answers, Role.FOLLOWING))
    because = f"{direct.because}; warmed, against plain decoding after a pause: {warmed.because}"
    if warmed.outcome is Outcome.PASS:
        return replace(direct, outcome=Outcome.PASS, because=because, passed_with=WARM_UP)
    fails = Outcome.FAIL in {direct.outcome} & {warmed.outcome}
    return replace(direct, outcome=Outcome.FAIL if fails else Outcome.UNPROVEN, because=because)
