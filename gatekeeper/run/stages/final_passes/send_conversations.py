"""The conversations at the end of a run: turn after turn, plain decoding and the draft."""

from collections.abc import Sequence
from contextlib import nullcontext

from gatekeeper.analysis.plan.planned_conversations import CONVERSATIONS, TRIAL, conversation_blocks
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Setting
from gatekeeper.run.stages.tasks import FinalTask


def send(task: FinalTask) -> None:
    """Send the conversations of each promoted workload, on a prompt cache where the server is deployed with one."""
    resumed = task.slo.subject.prompt_cache == "as-deployed"
    task.phase(TRIAL)
    with task.client.caching() if resumed else nullcontext():
        for workload, knobs in task.lacking:
            blocks = conversation_blocks(
                workload, knobs, task.canaries[workload], seed=task.seed,
                shares_process=task.shares_process, resumed=resumed,
            )  # fmt: skip
            _send_blocks(task, blocks, knobs)


def _send_blocks(task: FinalTask, blocks: Sequence[Sequence[PlannedRequest]], knobs: Setting) -> None:
    """Send what is not recorded of each block; a process that is started for it is warmed up with its first turn.

    A conversation that was cut off begins again where its answers end: its prompt is read whole once more.
    """
    recorder = task.recorder(CONVERSATIONS)
    missing = [task.missing(CONVERSATIONS, block) for block in blocks]
    recorder.planned = sum(map(len, missing))
    for block in filter(None, missing):
        drafting = task.shares_process or block[0].arm == "candidate"
        if task.client.open(knobs if drafting else plain_of(knobs)):
            task.client.send(block[0].as_warmup())
        task.client.send_all(iter(block), 1, recorder)
