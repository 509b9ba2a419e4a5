"""Plain repeats: canaries decoded plainly again after the soak, until each has two answers to compare."""

from collections import Counter

from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.stages.tasks import PassTask


def send(task: PassTask[Generation]) -> None:
    """Send each canary to plain decoding as often as it lacks an answer."""
    soak = task.soak
    requests = [
        soak.request(name, canary, "plain", prefix=f"repeat-{repeat}", role=Role.CLOSING, repeat=repeat)
        for name, lacking in task.needs.items()
        for repeat in range(max(Counter(lacking).values()))
        for canary in soak.canaries[name]
        if Counter(lacking)[canary.id] > repeat
    ]
    task.send_missing(plain_of(soak.plan.resident), requests)
