"""Replay: the target reads the soak's answers again in the rounds that verified them."""

from dataclasses import replace

from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.replayed_rounds import TWICE, ImpossibleRoundsError, round_passes
from gatekeeper.core.clock import stamp
from gatekeeper.core.interfaces import ReplayedRounds, ReplaysRounds, RoundPasses
from gatekeeper.core.records import Generation, Replayed
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.tasks import PassTask

AT_ONCE = 64
"""Tokens of a plain answer in one pass, which is read for its likelihood alone."""


def send(task: PassTask[Replayed]) -> None:
    """Read the answers again that are not recorded yet, and record what each shows."""
    done = {(replayed.workload, replayed.key) for replayed in task.recorded}
    missing = [
        generation
        for answers in task.needs.values()
        for generation in answers
        if (generation.workload, generation.key) not in done
    ]
    if not missing:
        return
    again = {generation.key for answers in task.needs.values() for generation in answers[:TWICE]}
    with task.open_client() as client:
        for number, generation in enumerate(missing, start=1):
            client.open(task.arm_request(generation.workload, generation.canary, "plain").setting, keep=True)
            task.record(_replayed(task, client, generation, twice=generation.key in again))
            task.report_reading(number, len(missing))


def _replayed(task: PassTask[Replayed], client: Client, generation: Generation, *, twice: bool) -> Replayed:
    tokens, drafted = known_tokens(generation.answer), generation.arm == "candidate"
    replayed = Replayed(
        workload=generation.workload, canary=generation.canary, key=generation.key, arm=generation.arm,
        positions=len(tokens), segment=task.soak.segment, at=stamp(task.backend.clock.wall()),
    )  # fmt: skip
    try:
        passes = round_passes(generation.answer) if drafted else _at_once(len(tokens))
    except ImpossibleRoundsError as error:
        return replace(replayed, impossible=str(error))
    if not passes:
        return replace(replayed, fault="its rounds were not kept")
    reading = _read(task, client, generation, passes, twice=twice and drafted)
    if reading is None:
        return replace(replayed, fault="the target could not read it again")
    replayed = replace(replayed, rounds=len(passes), nll=reading.nll, steady=reading.steady)
    return replace(replayed, parted=reading.parted, scores=reading.scores) if drafted else replayed


def _at_once(tokens: int) -> RoundPasses:
    """Return passes of many tokens: the likelihood needs no more."""
    return tuple((min(AT_ONCE, tokens - begun),) for begun in range(0, tokens, AT_ONCE))


def _read(
    task: PassTask[Replayed], client: Client, generation: Generation, passes: RoundPasses, *, twice: bool
) -> ReplayedRounds | None:
    subject = client.subject
    if not isinstance(subject, ReplaysRounds):
        return None
    return subject.replay(
        task.arm_request(generation.workload, generation.canary, "plain"),
        known_tokens(generation.answer),
        passes,
        twice=twice,
    )
