"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token.

Where a drafted answer leaves plain decoding's, plain decoding goes on from the token that the draft wrote there, again
and again: so every token of that answer is held against what plain decoding would write in its place. Where a server
tells what its verify passes preferred, plain decoding first writes two pieces of each answer that differs, and goes
through those whole whose leads moved most there; through all where it then prefers another token by far.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.words.scored_answers import (
    Continuation,
    Place,
    left_to_continue,
    read_whole,
    windows,
)
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, TellsLogProbabilities
from gatekeeper.core.records import Scored
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.tasks import PassTask


def send(task: PassTask[Scored]) -> None:
    """Read what is not recorded yet: drafted answers, pieces of those that differ, then plain answers."""
    differs = {(name, canary.id): canary.differs for name, canaries in task.needs.items() for canary in canaries}
    least = {name: max(canary.least for canary in canaries) for name, canaries in task.needs.items()}
    records: dict[Place, list[Scored]] = {place: [] for place in differs}
    for record in task.recorded:
        records.setdefault((record.workload, record.canary), []).append(record)
    with task.open_client() as client:
        for place in _reported(task, records):
            if all(record.arm == "plain" for record in records[place]):  # none, or its line was damaged
                records[place].insert(0, _answer(task, client, place, "candidate"))
        for place in _reported(task, [place for place, are_different in differs.items() if are_different]):
            done = {record.after for record in records[place]}
            for window in (window for window in windows(records[place][0]) if window.after not in done):
                records[place].append(_continue(task, client, place, window))
        while unread := [place for place in read_whole(records, least) if _is_left(records[place])]:
            for place in _reported(task, unread):
                _write_plainly(task, client, place, records[place])


def _write_plainly(task: PassTask[Scored], client: Client, place: Place, records: list[Scored]) -> None:
    if not any(map(_is_plain, records)):
        records.append(_answer(task, client, place, "plain"))
    while (left := left_to_continue(records)) is not None:
        records.append(_continue(task, client, place, left))


def _is_plain(record: Scored) -> bool:
    """Return whether it is a whole plain answer."""
    return record.arm == "plain" and not record.after


def _is_left(records: Sequence[Scored]) -> bool:
    return not any(map(_is_plain, records)) or left_to_continue(records) is not None


def _reported(task: PassTask[Scored], places: Collection[Place]) -> Iterator[Place]:
    for number, place in enumerate(places, start=1):
        yield place
        task.report_reading(number, len(places))


def _answer(task: PassTask[Scored], client: Client, place: Place, arm: str) -> Scored:
    request = task.arm_request(*place, arm)
    client.open(task.soak.plan.settings[place[0]] if arm == "candidate" else request.setting, keep=True)
    scored = client.subject.scored(request) if isinstance(client.subject, TellsLogProbabilities) else None
    return _keep(task, scored or Scored("", "", "", fault="the server told no log-probabilities"), place, arm)


def _continue(task: PassTask[Scored], client: Client, place: Place, left: Continuation) -> Scored:
    request = task.arm_request(*place, "plain")
    client.open(request.setting, keep=True)
    return _keep(task, _continued(client.subject, request, left), place, "plain")


def _continued(subject: RunningSystem | None, request: DecodeRequest, left: Continuation) -> Scored:
    record = None
    if isinstance(subject, TellsLogProbabilities):
        record = subject.continued(request, left.drafting.first(left.after), left.tokens)
    missing = Scored("", "", "", fault="the server cannot read the beginning of an answer")
    return replace(record or missing, after=left.after)


def _keep(task: PassTask[Scored], record: Scored, place: Place, arm: str) -> Scored:
    at = stamp(task.backend.clock.wall())
    kept = replace(record, workload=place[0], canary=place[1], arm=arm, segment=task.soak.segment, at=at)
    task.record(kept)
    return kept
