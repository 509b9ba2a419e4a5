"""The distribution check: first tokens of a few short prompts, sampled many times in both arms."""

from collections.abc import Iterator, Mapping, Sequence

from gatekeeper.analysis.metrics.words.first_token_distribution import (
    PROMPTS,
    SAMPLES,
    SCOUT,
    SCOUTS,
    TOKENS,
    chosen_prompts,
    scouted_prompts,
)
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.stages.tasks import KeptRecords, PassTask, SoakTask

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: a draw is a few tokens long, and one request at a time."""


def send(task: PassTask[Generation]) -> None:
    """Choose the prompts, then sample the plain arm and the speculative one; no two draws share a seed."""
    soak = task.soak
    scouts = KeptRecords(task.record, [answer for answer in task.recorded if answer.pair == SCOUT])
    plain = plain_of(soak.plan.resident)
    task.send_missing(plain, _scouts(soak), record=scouts)
    chosen = {
        name: chosen_prompts(soak.canaries[name], (answer for answer in scouts.records if answer.workload == name))
        for name in soak.plan.settings
    }
    for arm, resident in (("plain", plain), ("candidate", soak.plan.resident)):
        task.send_missing(resident, _samples(soak, arm, chosen))


def _scouts(soak: SoakTask) -> Iterator[PlannedRequest]:
    seed = soak.slo.sampling.seed + len(soak.plan.settings) * PROMPTS * SAMPLES  # beyond those of the samples
    for name in soak.plan.settings:
        for canary in scouted_prompts(soak.canaries[name]):
            for number in range(SCOUTS):
                seed += 1
                yield _draw(soak, name, canary, "plain", number, seed=2 * seed, scout=True)


def _samples(soak: SoakTask, arm: str, chosen: Mapping[str, Sequence[Canary]]) -> Iterator[PlannedRequest]:
    seed = soak.slo.sampling.seed
    for name in soak.plan.settings:
        for canary in chosen[name]:
            for number in range(SAMPLES):
                seed += 1
                yield _draw(soak, name, canary, arm, number, seed=2 * seed + (arm == "candidate"))


def _draw(
    soak: SoakTask, name: str, canary: Canary, arm: str, number: int, *, seed: int, scout: bool = False
) -> PlannedRequest:
    return soak.request(
        name, canary.model_copy(update={"max_tokens": TOKENS}), arm, without=WITHOUT,
        prefix=f"{SCOUT if scout else arm}-{number}", role=Role.DRAW, repeat=number, pair=SCOUT if scout else "",
        sampling=(("seed", seed),),
    )  # fmt: skip
