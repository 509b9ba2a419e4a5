"""The routing pass: a few requests at the end of a run, so that the routes can be compared with one setting for all."""

from collections.abc import Mapping

from gatekeeper.analysis.final_passes.routing import ROUTING
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.analysis.sweep.routing_gain import RoutingRequest
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting
from gatekeeper.run.stages.tasks import FinalTask


def send(task: FinalTask) -> None:
    """Send what is lacking, setting by setting, plain decoding first; the first request of each only warms it."""
    by_id = {(name, canary.id): canary for name, group in task.canaries.items() for canary in group}
    requests: list[RoutingRequest] = list(task.lacking)
    client, recorder, missing = task.client, task.recorder(ROUTING), task.missing(ROUTING, requests)
    drafting = next((request.trial.setting for request in requests if request.trial.arm == "candidate"), None)
    recorder.planned = len(missing)
    for trial in dict.fromkeys(request.trial for request in missing):
        resident: Setting = trial.setting
        if trial.arm == "plain":
            resident = drafting if task.shares_process and drafting is not None else plain_of(trial.setting)
        client.open(resident)
        planned = [_planned(request, by_id) for request in missing if request.trial == trial]
        client.send(planned[0].as_warmup())
        for request in planned:
            recorder(client.send(request))


def _planned(request: RoutingRequest, by_id: Mapping[tuple[str, str], Canary]) -> PlannedRequest:
    canary, trial = by_id[request.workload, request.canary], request.trial
    prefix = request.key.removesuffix(f":{request.workload}/{request.canary}")
    return PlannedRequest(request.workload, canary, trial.arm, trial.setting, trial=trial.name, prefix=prefix)
