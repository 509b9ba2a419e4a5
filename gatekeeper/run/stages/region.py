"""The probes of a region: both arms on the same canaries at one point, look after look, until the point is decided."""

from collections.abc import Collection, Sequence

from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.region_points import WARMUPS, PointPlan
from gatekeeper.run.requests import Client, Recorder


def send_look(
    plan: PointPlan,
    blocks: Sequence[Sequence[PlannedRequest]],
    client: Client,
    recorder: Recorder,
    *,
    shares_process: bool,
    cold: bool,
    done: Collection[str],
) -> None:
    """Send what *done* lacks of one look; a *cold* point, or a process that was started for it, is warmed up first."""
    missing = [[request for request in block if request.key not in done] for block in blocks]
    recorder.planned = sum(map(len, missing))
    for block in filter(None, missing):
        arms = dict.fromkeys(request.arm for request in block)
        by_arm = {arm: [request for request in block if request.arm == arm] for arm in arms}
        drafting = shares_process or "candidate" in by_arm
        started = client.open(plan.knobs if drafting else plan.plain)
        if cold or started:
            warmups = [request.as_warmup() for requests in by_arm.values() for request in requests[:WARMUPS]]
            client.send_all(iter(warmups), 1, recorder)
        for group in [block] if plan.interleaved else by_arm.values():
            client.send_all(iter(group), plan.streams, recorder)
