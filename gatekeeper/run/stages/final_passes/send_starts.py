"""The starts at the end of a run: a process for each, a request that waits for it, and one more."""

from dataclasses import replace

from gatekeeper.analysis.final_passes.starts import STARTS, start_requests
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.run.stages.tasks import FinalTask


def send(task: FinalTask) -> None:
    """Start both arms of each setting as often as the SLO says; what an interrupted run recorded is left out."""
    for workload, knobs in task.lacking:
        recorder = task.recorder(STARTS)
        missing = task.missing(STARTS, start_requests(task.slo, workload, knobs, task.canaries[workload]))
        recorder.planned = len(missing)
        for request in missing:
            recorder(_answered(task, knobs if request.arm == "candidate" else plain_of(knobs), request))


def _answered(task: FinalTask, resident: Setting, request: PlannedRequest) -> Generation:
    """Return the record of a request; one that waits for a start is sent before it."""
    if request.role is not Role.LOADED:
        if task.client.open(resident):
            task.client.send(request.as_warmup())  # the run was interrupted after the answer before this one
        return task.client.send(request)
    task.client.close()
    sent_ns = task.backend.clock.now_ns()
    task.client.open(resident)
    generation = task.client.send(request)
    return replace(generation, answer=replace(generation.answer, sent_ns=sent_ns))
