"""The near-ties: how sure the target was where greedy answers parted, read when the soak's clock has stopped."""

from collections.abc import Callable, Mapping, Sequence

from gatekeeper.analysis.metrics.exactness import Divergence
from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.interfaces import DecodeRequest, ReadsLogits
from gatekeeper.core.records import Setting, Tie
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Desk


def read_ties(
    slo: Slo,
    partings: Mapping[str, Sequence[Divergence]],
    settings: Mapping[str, Setting],
    canaries: Mapping[str, Sequence[Canary]],
    open_desk: Callable[[], Desk] | None,
    clock: Clock,
    *,
    segment: int,
    before: Sequence[Tie],
    record: Callable[[Tie], None],
    observe: Callable[[str, dict[str, object]], None],
) -> None:
    """Record the target's top-2 gap at every parting that *before* lacks; without a desk, that nobody can read it."""
    missing = [
        (name, where)
        for name, found in partings.items()
        for where in found
        if not any(tie.workload == name and where.read_in(tie) for tie in before)
    ]
    if not missing:
        return
    if open_desk is None:
        for name, where in missing:
            blind = f"backend {slo.subject.backend} does not show its target's logits"
            record(_tie(name, where, None, blind, segment, stamp(clock.wall())))
        return
    by_id = {(name, canary.id): canary for name, some in canaries.items() for canary in some}
    with open_desk() as desk:
        for read, (name, where) in enumerate(missing, start=1):
            knobs = plain_of(settings[name])
            desk.open(knobs)
            canary = by_id[name, where.canary]
            ask = DecodeRequest(canary, knobs, sampling_for(slo, canary, knobs, 1))
            subject = desk.subject
            gap = subject.logit_gap(ask, where.shared) if isinstance(subject, ReadsLogits) else None
            fault = None if gap is not None else "the target did not tell its logits"
            record(_tie(name, where, gap, fault, segment, stamp(clock.wall())))
            observe("tie", {"answered": read, "of": len(missing)})


def _tie(workload: str, where: Divergence, gap: float | None, fault: str | None, segment: int, at: str) -> Tie:
    return Tie(
        workload,
        where.canary,
        len(where.shared),
        where.shared,
        where.plain_id,
        where.candidate_id,
        gap,
        fault,
        segment,
        at,
    )
