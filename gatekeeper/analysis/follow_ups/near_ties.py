"""Near-ties: the target's logits where greedy answers diverge, which tell a near-tie from a wrong answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, PlannedReading, ReadingStep, Soaked
from gatekeeper.analysis.metrics.words.exactness import divergences
from gatekeeper.analysis.plan.objectives import forced_workloads, workloads_with
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.interfaces import DecodeRequest, ReadsLogits, RunningSystem
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Setting, Tie


def _find_needs(soak: Soaked) -> Needs:
    """Return, by workload, where greedy answers diverge from plain decoding's against an objective."""
    places = {}
    for name in workloads_with(soak.slo, soak.settings, "token_agreement", soak.terms):
        words = soak.answers(name).words
        if words.greedy and (diverged := divergences(words.answers, words.plain)):
            places[name] = diverged
    return places


def _plan_steps(soak: Soaked, needs: Needs, _records: Sequence[Tie]) -> Iterator[ReadingStep[Tie]]:
    """Yield a reading for each divergence; without the target's logits it records that they are hidden."""
    readable, fault = Sight.LOGITS in soak.terms.sight, None
    if not readable:
        fault = f"backend {soak.slo.subject.backend} does not expose the target's logits"
    readings = []
    for name, diverged in needs.items():
        for place in diverged:
            tie = Tie(
                workload=name, canary=place.canary, position=len(place.shared), shared=place.shared,
                plain_id=place.plain_id, candidate_id=place.candidate_id, gap=None, fault=fault,
            )  # fmt: skip
            readings.append(PlannedReading(tie, _read_gap if readable else None))
    yield ReadingStep(readings)


def _read_gap(tie: Tie, subject: RunningSystem | None, request: DecodeRequest) -> Tie:
    gap = subject.logit_gap(request, tie.shared) if isinstance(subject, ReadsLogits) else None
    return replace(tie, gap=gap, fault=None if gap is not None else "the target's logits could not be read")


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count one pass per canary, as if each diverged once: the target reads the prompt and the shared tokens."""
    if not costs.assumed.logits or costs.slo.sampling.temperature != 0:
        return
    forced = forced_workloads(costs.slo, settings, costs.terms)  # the forced check reads every canary already
    for name in workloads_with(costs.slo, settings, "token_agreement", costs.terms):
        if name not in forced:
            yield from map(costs.reading, costs.canaries[name])


FOLLOW_UP = FollowUp(
    name="near_ties",
    kind=Tie,
    title="near-ties, if every canary diverges",
    needs=_find_needs,
    steps=_plan_steps,
    identity=lambda tie: (tie.workload, tie.canary, tie.shared, tie.plain_id, tie.candidate_id),
    forecast=_forecast,
)
