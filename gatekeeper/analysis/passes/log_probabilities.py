"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import NamedTuple

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.words.exactness import divergent_canaries
from gatekeeper.analysis.metrics.words.likelihood import LEAST as NLL_CANARIES
from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Recorded, Soaked
from gatekeeper.analysis.plan.objectives import scored_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.analysis.plan.soak_schedule import ENOUGH_PAIRS
from gatekeeper.core.records import Scored, Setting

CANARIES = 12
"""For each workload; where the answers of one workload alone differ, most are its own. Three take some minutes."""
DIFFERING = 18
"""For each workload, where so many answers differ: a defect that few of them have hides among those that numerics turn.
"""
LEAST = 4
"""Of each workload."""
TAIL = 0.5
"""The share of a plain answer that is read once more where a drafted one differs, in the forecast."""


class CanaryToRead(NamedTuple):
    """A canary to answer in both arms."""

    id: str
    differs: bool
    """Its answers are not the same in both arms."""
    least: int
    """So many answers of its workload are to be read whole."""


def _needs(soak: Soaked) -> Needs:
    """Return canaries to answer in both arms, by workload: those whose answers differ come first.

    Not those that set options: with a response format or a penalty the token that is written need not be the likeliest
    one of its pass, so that sound answers would look wrong.
    """
    chosen, differing, alike = (
        dict[str, list[CanaryToRead]](),
        list[list[tuple[str, CanaryToRead]]](),
        list[list[tuple[str, CanaryToRead]]](),
    )
    for workload in scored_workloads(soak.slo, soak.settings, soak.terms):
        answers = soak.answers(workload)
        readable = [name for name, canary in answers.canaries.items() if not canary.options]
        divergent = divergent_canaries(successful(answers.answers), answers.words.plain)
        differ = [name for name in divergent if name in readable]
        alike_names = [name for name in readable if name not in divergent]
        in_both = {answer.canary for answer in answers.answers} & {answer.canary for answer in answers.words.plain}
        least = max(NLL_CANARIES, ENOUGH_PAIRS - len(in_both - set(divergent)))
        canaries = [CanaryToRead(name, name in differ, least) for name in (*differ, *alike_names)]
        chosen[workload] = canaries[:LEAST]
        differing.append([(workload, canary) for canary in canaries[LEAST:] if canary.differs])
        alike.append([(workload, canary) for canary in canaries[LEAST:] if not canary.differs])
    for places, most in ((differing, DIFFERING), (alike, CANARIES)):
        left = most * len(chosen) - sum(map(len, chosen.values()))
        for name, canary in islice(_in_turn(places), max(0, left)):
            chosen[name].append(canary)
    return {name: tuple(canaries) for name, canaries in chosen.items() if canaries}


def _in_turn(places: Iterable[Sequence[tuple[str, CanaryToRead]]]) -> Iterator[tuple[str, CanaryToRead]]:
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
