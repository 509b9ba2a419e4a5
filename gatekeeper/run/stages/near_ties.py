"""Near-ties: the target's top-2 logit gap where greedy answers diverge, read after the soak."""

from collections.abc import Callable, Mapping, Sequence

from gatekeeper.analysis.metrics.exactness import Divergence
from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.interfaces import DecodeRequest, ReadsLogits
from gatekeeper.core.records import Tie
from gatekeeper.run.requests import Client, Observe, SoakTask


def read_ties(
    task: SoakTask,
    divergences: Mapping[str, Sequence[Divergence]],
    open_client: Callable[[], Client] | None,
    clock: Clock,
    *,
    before: Sequence[Tie],
    record: Callable[[Tie], None],
    observe: Observe,
) -> None:
    """Record the target's top-2 gap at each divergence that *before* lacks; without a client, that it is unreadable."""
    missing = [
        (name, where)
        for name, found in divergences.items()
        for where in found
        if not any(tie.workload == name and where.matches(tie) for tie in before)
    ]

    def note(workload: str, where: Divergence, gap: float | None, fault: str | None) -> None:
        ids = (where.plain_id, where.candidate_id)
        at = stamp(clock.wall())
        record(Tie(workload, where.canary, len(where.shared), where.shared, *ids, gap, fault, task.segment, at))

    if open_client is None:
        for name, where in missing:
            note(name, where, None, f"backend {task.slo.subject.backend} does not expose the target's logits")
        return
    if not missing:
        return
    by_id = {(name, canary.id): canary for name, some in task.canaries.items() for canary in some}
    with open_client() as client:
        for read, (name, where) in enumerate(missing, start=1):
            knobs = plain_of(task.settings[name])
            client.open(knobs)
            canary = by_id[name, where.canary]
            request = DecodeRequest(canary, knobs, sampling_for(task.slo, canary, knobs, 1))
            subject = client.subject
            gap = subject.logit_gap(request, where.shared) if isinstance(subject, ReadsLogits) else None
            note(name, where, gap, None if gap is not None else "the target's logits could not be read")
            observe("tie", {"answered": read, "of": len(missing)})
