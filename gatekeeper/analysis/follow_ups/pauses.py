"""Pauses: requests after a start, after a pause and right after another, in both arms, for objectives on them.

They are sent as well where a warm-up may keep the bound of a first token; the policy then requires the warm-up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.follow_ups.follow_up import (
    FollowUp,
    Needs,
    RequestStep,
    Soaked,
    drop_recorded,
    key_of,
    warm_first,
)
from gatekeeper.analysis.metrics.checks import check
from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.warm_up_gain import delta_after_pause
from gatekeeper.analysis.plan.objectives import workloads_measured_by
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Check, Missing, Outcome
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Objective

WARM_UP = "warm-up"
CANARIES = 10
"""Per workload: enough for an interval on a ratio, and four minutes a workload with both arms."""
PAUSE_S = 10.0
"""Before a request that counts as one after a pause. macOS unwires the weights of an idle process after about a second
(llama.cpp's pull requests 11427 and 17766), and a reader pauses for longer than ten."""
ANSWER_TOKENS = 32
"""Tokens of an answer, at most: only its first one is judged, and the first round must draft in full."""
WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: the answers are short, and come one at a time."""


def sent_after_pauses(canaries: Sequence[Canary]) -> list[Canary]:
    """Return evenly picked canaries of a workload, which are sent after pauses."""
    number = min(CANARIES, len(canaries))
    return [canaries[index * len(canaries) // number] for index in range(number)]


def _find_needs(soak: Soaked) -> Needs:
    """Return the workloads with an objective after a pause, or whose first token is not proven and may be warmed."""
    named = workloads_measured_by(FOLLOW_UP.name, soak.slo, soak.settings)
    speculating = (name for name, knobs in soak.settings.items() if speculates(knobs))
    return dict.fromkeys((name for name in speculating if name in named or _is_late(soak, name)), ())


def _is_late(soak: Soaked, name: str) -> bool:
    objectives = [bound for bound in soak.slo.objectives_for(name, speculating=True) if bound.or_with == WARM_UP]
    looks = soak.looks(name) if objectives else ()
    return any(all(_judge_alone(bound, answers) is not Outcome.PASS for answers in looks) for bound in objectives)


def _judge_alone(objective: Objective, answers: PairedAnswers) -> Outcome:
    answers = replace(answers, frozen=objective.scope == "frozen")
    return check(objective, estimate(objective.metric, answers)).outcome


def _plan_steps(soak: Soaked, needs: Needs, records: Sequence[Generation]) -> Iterator[RequestStep]:
    """Yield each canary once after a pause and once right after another request; plain decoding first.

    The first request of an arm is the one after its start. An interrupted arm begins again with a request that only
    warms, for its start was another one.
    """
    for arm, resident in (("plain", plain_of(soak.plan.resident)), ("candidate", soak.plan.resident)):
        missing = drop_recorded(_plan_requests(soak, needs, arm), records)
        if missing and missing[0].role is not Role.LOADED:
            missing = warm_first(missing[0], missing, soak.segment)
        yield RequestStep(resident, missing)


def _plan_requests(soak: Soaked, needs: Needs, arm: str) -> Iterator[PlannedRequest]:
    for number, name in enumerate(needs):
        canaries = sent_after_pauses(soak.canaries[name])
        if number == 0:
            yield _plan_request(soak, arm, name, canaries[0], Role.LOADED)
        for paused, following in zip(canaries, (*canaries[1:], *canaries[:1]), strict=True):
            yield _plan_request(soak, arm, name, paused, Role.IDLE)
            yield _plan_request(soak, arm, name, following, Role.FOLLOWING)


def _plan_request(soak: Soaked, arm: str, name: str, canary: Canary, role: Role) -> PlannedRequest:
    most = min(canary.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    short = canary.model_copy(update={"max_tokens": most})
    pause_s = PAUSE_S if role is Role.IDLE else 0.0
    return soak.request(name, short, arm, without=WITHOUT, prefix=f"{arm}-{role}", role=role, pause_s=pause_s)


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count the requests as if each first token came too late: both arms, after a pause and right after it."""
    named = workloads_measured_by(FOLLOW_UP.name, costs.slo, settings)
    for name, knobs in settings.items():
        bounds = costs.slo.objectives_for(name, speculating=True) if speculates(knobs) else ()
        due = name in named or any(bound.or_with for bound in bounds)
        if not due:
            continue
        for canary in sent_after_pauses(costs.canaries[name]):
            answer = costs.assumed.seconds(canary, ANSWER_TOKENS)
            yield from (answer + PAUSE_S, answer + PAUSE_S, answer, answer)


FOLLOW_UP = FollowUp(
    name="pauses",
    kind=Generation,
    title="first tokens after a pause, if an objective needs them",
    needs=_find_needs,
    steps=_plan_steps,
    identity=key_of,
    forecast=_forecast,
    each_part=False,
    conditional=True,
    fresh=True,
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
