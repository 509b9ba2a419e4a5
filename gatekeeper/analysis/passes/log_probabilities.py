"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.words.exactness import divergent_canaries
from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Recorded, Soaked
from gatekeeper.analysis.plan.objectives import scored_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Scored, Setting

Place = tuple[str, str]
"""A workload and a canary of it."""
CANARIES = 12
"""For each workload; where the answers of one workload alone differ, most are its own. Three take some minutes."""
DIFFERING = 24
"""For each workload, where so many answers differ: a defect that few of them have hides among those that numerics turn.
"""
LEAST = 4
"""Of each workload."""
TAIL = 0.5
"""The share of a plain answer that is read once more where a drafted one differs, in the forecast."""


def _needs(soak: Soaked) -> Needs:
    """Return canaries to answer in both arms, by workload: those whose answers differ come first."""
    chosen, differing, alike = dict[str, list[str]](), list[list[Place]](), list[list[Place]]()
    for name in scored_workloads(soak.slo, soak.settings, soak.terms):
        answers = soak.answers(name)
        differ = divergent_canaries(successful(answers.answers), answers.words.plain)
        rest = [canary for canary in answers.canaries if canary not in differ]
        first = [*differ, *rest][:LEAST]
        chosen[name] = first
        differing.append([(name, canary) for canary in differ if canary not in first])
        alike.append([(name, canary) for canary in rest if canary not in first])
    for places, most in ((differing, DIFFERING), (alike, CANARIES)):
        left = most * len(chosen) - sum(map(len, chosen.values()))
        for name, canary in islice(_in_turn(places), max(0, left)):
            chosen[name].append(canary)
    return {name: tuple(canaries) for name, canaries in chosen.items()}


def _in_turn(places: Iterable[Sequence[Place]]) -> Iterator[Place]:
    """Yield the first canary of each workload, then the second ones."""
    return (place for turn in zip_longest(*places) for place in turn if place is not None)


def _add(answers: PairedAnswers, recorded: Recorded[Scored]) -> PairedAnswers:
    own = [record for record in recorded.records if record.workload == answers.workload]
    return replace(
        answers,
        scored=tuple(record for record in own if not record.after),
        continued=tuple(record for record in own if record.after),
        scored_elsewhere=tuple(record for record in recorded.records if record.workload != answers.workload),
    )


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    for name in scored_workloads(costs.slo, settings, costs.terms):
        for canary in costs.canaries[name][:CANARIES]:
            plain = costs.answering(name, canary, plain_of(settings[name]))
            yield from (costs.answering(name, canary, settings[name]), plain, TAIL * plain)


PASS = Pass(
    name="log_probabilities",
    stem="scored",
    kind=Scored,
    stage="log-probabilities",
    title="answers with log-probabilities, in both arms",
    needs=_needs,
    add=_add,
    forecast=_forecast,
    each_part=False,
    of_all_workloads=True,
)
