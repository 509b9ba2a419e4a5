"""Plain words: canaries decoded plainly after the soak, where no forced pass shows what plain decoding writes."""

from collections.abc import Iterator, Sequence

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, RequestStep, Soaked, add_untimed, key_of
from gatekeeper.analysis.plan.objectives import forced_workloads
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Generation, Role


def _find_needs(soak: Soaked) -> Needs:
    """Return, by workload, the canaries without a plain answer."""
    lacking = {}
    for name in forced_workloads(soak.slo, soak.settings, soak.terms):
        words = soak.answers(name).words
        answered = {answer.canary for answer in words.plain}
        lacking[name] = tuple(dict.fromkeys(answer.canary for answer in words.answers if answer.canary not in answered))
    return {name: canaries for name, canaries in lacking.items() if canaries}


def _plan_steps(soak: Soaked, needs: Needs, _records: Sequence[Generation]) -> Iterator[RequestStep]:
    requests = [
        soak.request(name, canary, "plain", prefix="words", role=Role.CLOSING)
        for name, lacking in needs.items()
        for canary in soak.canaries[name]
        if canary.id in lacking
    ]
    yield RequestStep(plain_of(soak.plan.resident), requests)


FOLLOW_UP = FollowUp(
    name="plain_words",
    kind=Generation,
    title="plain answers, for their words",
    needs=_find_needs,
    steps=_plan_steps,
    identity=key_of,
    add=add_untimed,
)
