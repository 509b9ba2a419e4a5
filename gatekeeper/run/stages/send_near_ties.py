"""Near-ties: the target's top-2 logit gap where greedy answers diverge, read after the soak."""

from gatekeeper.analysis.metrics.words.near_tie_rule import Divergence
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import ReadsLogits
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Tie
from gatekeeper.run.stages.tasks import PassTask


def send(task: PassTask[Tie]) -> None:
    """Record the target's top-2 gap at each divergence that is not recorded; without its logits, that it is hidden."""
    soak = task.soak
    missing = [
        (name, divergence)
        for name, diverged in task.needs.items()
        for divergence in diverged
        if not any(tie.workload == name and divergence.matches(tie) for tie in task.recorded)
    ]

    def note(name: str, divergence: Divergence, gap: float | None, fault: str | None) -> None:
        tie = Tie(
            workload=name, canary=divergence.canary, position=len(divergence.shared), shared=divergence.shared,
            plain_id=divergence.plain_id, candidate_id=divergence.candidate_id, gap=gap, fault=fault,
            segment=soak.segment, at=stamp(task.backend.clock.wall()),
        )  # fmt: skip
        task.record(tie)

    if Sight.LOGITS not in task.backend.sight:
        for name, divergence in missing:
            note(name, divergence, None, f"backend {soak.slo.subject.backend} does not expose the target's logits")
        return
    if not missing:
        return
    with task.open_client() as client:
        for number, (name, divergence) in enumerate(missing, start=1):
            request = task.arm_request(name, divergence.canary, "plain")
            client.open(request.setting, keep=True)
            subject = client.subject
            gap = subject.logit_gap(request, divergence.shared) if isinstance(subject, ReadsLogits) else None
            note(name, divergence, gap, None if gap is not None else "the target's logits could not be read")
            task.report_reading(number, len(missing))
