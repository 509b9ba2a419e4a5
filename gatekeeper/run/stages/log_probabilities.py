"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token.

Where a drafted answer leaves plain decoding's, plain decoding goes on from the token that the draft wrote there, again
and again: so every token of that answer is held against what plain decoding would write in its place.
"""

from collections import defaultdict
from dataclasses import replace

from gatekeeper.analysis.metrics.words.scored_answers import Continuation, left_to_continue
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, TellsLogProbabilities
from gatekeeper.core.records import Scored
from gatekeeper.run.stages.tasks import PassTask

ARMS = ("candidate", "plain")


def send(task: PassTask[Scored]) -> None:
    """Answer the canaries that are not recorded yet, arm by arm."""
    done = {(record.workload, record.canary, record.arm) for record in task.recorded}
    wanted = [(name, canary, arm) for arm in ARMS for name, canaries in task.needs.items() for canary in canaries]
    missing = [key for key in wanted if key not in done]
    records = defaultdict[tuple[str, str], list[Scored]](list)
    for record in task.recorded:
        records[record.workload, record.canary].append(record)
    if not missing and not any(map(left_to_continue, records.values())):
        return
    with task.open_client() as client:
        for number, (name, canary, arm) in enumerate(missing, start=1):
            knobs = task.soak.plan.settings[name]
            client.open(plain_of(knobs) if arm == "plain" else knobs, keep=True)
            request, subject = task.arm_request(name, canary, arm), client.subject
            scored = subject.scored(request) if isinstance(subject, TellsLogProbabilities) else None
            record = scored or Scored("", "", "", fault="the server told no log-probabilities")
            records[name, canary].append(_keep(task, record, (name, canary, arm)))
            task.report_reading(number, len(missing))
        for number, ((name, canary), of_canary) in enumerate(records.items(), start=1):
            while (left := left_to_continue(of_canary)) is not None:
                request = task.arm_request(name, canary, "plain")
                client.open(request.setting, keep=True)
                of_canary.append(_keep(task, _continued(client.subject, request, left), (name, canary, "plain")))
            task.report_reading(number, len(records))


def _continued(subject: RunningSystem | None, request: DecodeRequest, left: Continuation) -> Scored:
    record = None
    if isinstance(subject, TellsLogProbabilities):
        record = subject.continued(request, left.drafting.first(left.after), left.tokens)
    missing = Scored("", "", "", fault="the server cannot read the beginning of an answer")
    return replace(record or missing, after=left.after)


def _keep(task: PassTask[Scored], record: Scored, place: tuple[str, str, str]) -> Scored:
    name, canary, arm = place
    at = stamp(task.backend.clock.wall())
    kept = replace(record, workload=name, canary=canary, arm=arm, segment=task.soak.segment, at=at)
    task.record(kept)
    return kept
