"""Plain words: canaries decoded plainly after the soak, where no forced pass shows what plain decoding writes."""

from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.stages.tasks import PassTask


def send(task: PassTask[Generation]) -> None:
    """Send the canaries without a plain answer to plain decoding, for the words of its answers."""
    soak = task.soak
    requests = [
        soak.request(name, canary, "plain", prefix="words", role=Role.CLOSING)
        for name, lacking in task.needs.items()
        for canary in soak.canaries[name]
        if canary.id in lacking
    ]
    task.send_missing(plain_of(soak.plan.resident), requests)
