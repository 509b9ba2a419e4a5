"""The warm-cache pass: the canaries requested again as deployed, repeated and as the second turn of a conversation."""

import random
from collections.abc import Iterator, Mapping, Sequence

from gatekeeper.analysis.metrics.words.warm_cache_words import CONTROL
from gatekeeper.analysis.passes.warm_cache import CONTROL_REPEATS, WARM_REPEATS, continued
from gatekeeper.analysis.plan.planned_request import PlannedRequest, shuffled
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.stages.tasks import KeptRecords, PassTask, SoakTask

TOGETHER = 4
"""Canaries shuffled together: 8 prompts with their second turns, which fit into mlx_lm.server's cache of 10."""

WITHOUT = frozenset({"temperature", "concurrency"})
GREEDY = (("temperature", 0.0), ("seed", None))
"""It overrides the SLO's sampling: only greedy answers, one at a time, can be compared token by token."""


def send(task: PassTask[Generation]) -> None:
    """Request plain decoding with the cache off, then the candidate with the cache on, greedily and one at a time.

    Both arms get the same prompts: plain decoding's answer is the first turn of every conversation.
    """
    soak = task.soak
    answers = KeptRecords(task.record, list(task.recorded))
    plain = plain_of(soak.plan.resident)
    singles = [(name, canary) for name in soak.plan.settings for canary in soak.canaries[name]]
    first_turns = [_request(soak, name, "plain", canary, canary.id) for name, canary in singles]
    task.send_missing(plain, first_turns, record=answers)
    later = _conversations(soak, answers.records)
    second_turns = [_request(soak, name, "plain", turn, first) for (name, first), turn in later.items()]
    task.send_missing(plain, second_turns, record=answers)
    task.send_missing(soak.plan.resident, _shuffled(soak, later), cache=True, record=answers)
    task.send_missing(plain, _control(soak, later), cache=True, record=answers)


def _conversations(soak: SoakTask, records: Sequence[Generation]) -> dict[tuple[str, str], Canary]:
    """Return, by workload and first canary, the prompt of the second turn; none where plain decoding failed."""
    answered = [record for record in records if record.arm == "plain" and record.answer.fault is None]
    answers = {(record.workload, record.canary): record.answer for record in answered}
    turns = {}
    for name in soak.plan.settings:
        canaries = soak.canaries[name]
        for first, then in zip(canaries, (*canaries[1:], canaries[0]), strict=True):
            if (name, first.id) in answers:
                turns[name, first.id] = continued(first, answers[name, first.id], then)
    return turns


def _shuffled(soak: SoakTask, later: Mapping[tuple[str, str], Canary]) -> Iterator[PlannedRequest]:
    for name in soak.plan.settings:
        canaries = soak.canaries[name]
        for start in range(0, len(canaries), TOGETHER):
            group = canaries[start : start + TOGETHER]
            requests = [
                _request(soak, name, "candidate", canary, canary.id, repeat)
                for canary in group
                for repeat in range(WARM_REPEATS)
            ]
            turns = [later[name, canary.id] for canary in group if (name, canary.id) in later]
            requests += [_request(soak, name, "candidate", turn, turn.id.partition("+")[0]) for turn in turns]
            yield from shuffled(requests, random.Random(f"{soak.seed}|{soak.plan.name}|{name}|{start}"))


def _control(soak: SoakTask, later: Mapping[tuple[str, str], Canary]) -> Iterator[PlannedRequest]:
    """Yield each canary as often as its first repeat with a cache needs, and its second turn, for plain decoding."""
    for (name, first), turn in later.items():
        canary = next(canary for canary in soak.canaries[name] if canary.id == first)
        for repeat in range(CONTROL_REPEATS):
            yield _request(soak, name, CONTROL, canary, first, repeat)
        yield _request(soak, name, CONTROL, turn, first)


def _request(soak: SoakTask, name: str, arm: str, canary: Canary, first: str, repeat: int = 0) -> PlannedRequest:
    return soak.request(
        name,
        canary,
        arm,
        without=WITHOUT,
        prefix=f"{arm}-{repeat}",
        role=Role.WARM,
        repeat=repeat,
        pair=first,
        sampling=GREEDY,
    )
