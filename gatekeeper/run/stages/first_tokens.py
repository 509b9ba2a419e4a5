"""The distribution check: first tokens of a few short prompts, sampled many times in both arms."""

from collections.abc import Iterator, Mapping, Sequence

from gatekeeper.analysis.metrics.first_tokens import (
    PROMPTS,
    SAMPLES,
    SCOUT,
    SCOUTS,
    TOKENS,
    chosen_prompts,
    scouted_prompts,
)
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.run.requests import PassTask, Request, SoakTask, build_request

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: a draw is a few tokens long, and one request at a time."""


def send(task: PassTask[Generation]) -> None:
    """Choose the prompts, then sample the plain arm and the speculative one; no two draws share a seed."""
    soak = task.soak
    scouts = [answer for answer in task.recorded if answer.pair == SCOUT]

    def note(answer: Generation) -> None:
        task.record(answer)
        scouts.append(answer)

    plain = plain_of(soak.resident)
    task.send_missing(plain, _scouts(soak), record=note)
    chosen = {
        name: chosen_prompts(soak.canaries[name], (answer for answer in scouts if answer.workload == name))
        for name in soak.settings
    }
    for arm, resident in (("plain", plain), ("candidate", soak.resident)):
        task.send_missing(resident, _samples(soak, arm, chosen))


def _scouts(soak: SoakTask) -> Iterator[Request]:
    seed = soak.slo.sampling.seed + len(soak.settings) * PROMPTS * SAMPLES  # beyond those of the samples
    for name, candidate in soak.settings.items():
        for canary in scouted_prompts(soak.canaries[name]):
            for number in range(SCOUTS):
                seed += 1
                yield _draw(soak, SCOUT, name, canary, "plain", plain_of(candidate), number, 2 * seed, pair=SCOUT)


def _samples(soak: SoakTask, arm: str, chosen: Mapping[str, Sequence[Canary]]) -> Iterator[Request]:
    seed = soak.slo.sampling.seed
    for name, candidate in soak.settings.items():
        knobs = candidate if arm == "candidate" else plain_of(candidate)
        for canary in chosen[name]:
            for number in range(SAMPLES):
                seed += 1
                yield _draw(soak, arm, name, canary, arm, knobs, number, 2 * seed + (arm == "candidate"))


def _draw(
    soak: SoakTask,
    prefix: str,
    name: str,
    canary: Canary,
    arm: str,
    knobs: Setting,
    number: int,
    seed: int,
    pair: str = "",
) -> Request:
    short = canary.model_copy(update={"max_tokens": TOKENS})
    setting = tuple((knob, value) for knob, value in knobs if knob not in WITHOUT)
    key = f"{prefix}-{number}"
    return build_request(
        soak.slo, soak.name, key, name, short, arm, setting, Role.DRAW, repeat=number, pair=pair, seed=seed
    )
