"""Plain repeats: canaries decoded plainly again after the soak, until each has two answers to compare."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, RequestStep, Soaked, add_untimed, key_of
from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.metrics.shares import plain_answers
from gatekeeper.analysis.plan.objectives import workloads_measured_by
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy, plain_of
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo

ANSWERS = 2
"""Plain decoding answers each canary so often."""


def _workloads(slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    return tuple(
        name for name in workloads_measured_by(FOLLOW_UP.name, slo, settings) if is_greedy(slo, settings[name])
    )


def _find_needs(soak: Soaked) -> Needs:
    """Return, by workload, each canary as often as it still needs a plain answer."""
    lacking = {}
    for name in _workloads(soak.slo, soak.settings):
        answers = soak.answers(name)
        count = Counter(generation.canary for generation in successful(plain_answers(answers)))
        lacking[name] = tuple(
            canary for canary in answers.canaries for _ in range(ANSWERS - min(count[canary], ANSWERS))
        )
    return {name: canaries for name, canaries in lacking.items() if canaries}


def _plan_steps(soak: Soaked, needs: Needs, _records: Sequence[Generation]) -> Iterator[RequestStep]:
    """Yield each canary for plain decoding as often as it lacks an answer."""
    requests = []
    for name, canaries in needs.items():
        lacking = Counter(canaries)
        requests += [
            soak.request(name, canary, "plain", prefix=f"repeat-{repeat}", role=Role.CLOSING, repeat=repeat)
            for repeat in range(max(lacking.values()))
            for canary in soak.canaries[name]
            if lacking[canary.id] > repeat
        ]
    yield RequestStep(plain_of(soak.plan.resident), requests)


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count one answer a canary: the other one comes with the baseline requests of the soak."""
    for name in _workloads(costs.slo, settings):
        for canary in costs.canaries[name]:
            yield costs.answering(name, canary, plain_of(settings[name]))


FOLLOW_UP = FollowUp(
    name="plain_repeats",
    kind=Generation,
    title="plain answers again, to see whether they repeat",
    needs=_find_needs,
    steps=_plan_steps,
    identity=key_of,
    add=add_untimed,
    forecast=_forecast,
)
