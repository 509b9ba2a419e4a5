"""The conversations at the end of a run: turn after turn, plain decoding and the draft."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from gatekeeper.analysis.plan.planned_conversations import conversation_blocks
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Observe, Recorder
from gatekeeper.run.stages.tasks import KeptRecords


@dataclass(frozen=True, slots=True)
class ConversationsTask:
    """What is needed to send the conversations of a run."""

    slo: Slo
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    settings: Mapping[str, Setting]
    """By workload whose conversations are sent."""
    shares_process: bool
    """One process serves both arms."""
    answers: KeptRecords[Generation]
    """Those of interrupted segments, and of this one."""
    client: Client
    observe: Observe


def send_conversations(task: ConversationsTask) -> None:
    """Send the conversations of each workload, on a prompt cache where the server is deployed with one."""
    resumed = task.slo.subject.prompt_cache == "as-deployed"
    with task.client.caching() if resumed else nullcontext():
        for workload, knobs in task.settings.items():
            blocks = conversation_blocks(
                workload, knobs, task.canaries[workload], seed=task.seed,
                shares_process=task.shares_process, resumed=resumed,
            )  # fmt: skip
            _send_blocks(task, blocks, knobs)


def _send_blocks(task: ConversationsTask, blocks: Sequence[Sequence[PlannedRequest]], knobs: Setting) -> None:
    """Send what is not recorded of each block; a process that is started for it is warmed up with its first turn.

    A conversation that was cut off begins again where its answers end: its prompt is read whole once more.
    """
    done = {answer.key for answer in task.answers.records}
    missing = [[request for request in block if request.key not in done] for block in blocks]
    recorder = Recorder(task.answers, task.observe, planned=sum(map(len, missing)))
    for block in filter(None, missing):
        drafting = task.shares_process or block[0].arm == "candidate"
        if task.client.open(knobs if drafting else plain_of(knobs)):
            task.client.send(block[0].as_warmup())
        task.client.send_all(iter(block), 1, recorder)
