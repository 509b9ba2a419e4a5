"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token."""

from dataclasses import replace

from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import TellsLogProbabilities
from gatekeeper.core.records import Scored
from gatekeeper.run.requests import PassTask

ARMS = ("candidate", "plain")


def send(task: PassTask[Scored]) -> None:
    """Answer the canaries that are not recorded yet, arm by arm."""
    done = {(record.workload, record.canary, record.arm) for record in task.recorded}
    wanted = [(name, canary, arm) for arm in ARMS for name, canaries in task.needs.items() for canary in canaries]
    missing = [key for key in wanted if key not in done]
    if not missing:
        return
    with task.open_client() as client:
        for number, (name, canary, arm) in enumerate(missing, start=1):
            knobs = task.soak.plan.settings[name]
            client.open(plain_of(knobs) if arm == "plain" else knobs, keep=True)
            request, subject = task.arm_request(name, canary, arm), client.subject
            scored = subject.scored(request) if isinstance(subject, TellsLogProbabilities) else None
            record = scored or Scored("", "", "", fault="the server told no log-probabilities")
            at = stamp(task.backend.clock.wall())
            task.record(replace(record, workload=name, canary=canary, arm=arm, segment=task.soak.segment, at=at))
            task.report_reading(number, len(missing))
