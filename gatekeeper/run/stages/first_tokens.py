"""The distribution check: first tokens of a few short prompts, sampled many times in both arms."""

from collections.abc import Callable, Iterator, Mapping, Sequence

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
from gatekeeper.run.requests import Client, Observe, Request, SoakTask, build_request, send_missing

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: a draw is a few tokens long, and one request at a time."""


def sample_first_tokens(
    task: SoakTask, open_client: Callable[[], Client], *, record: Callable[[Generation], None], observe: Observe
) -> None:
    """Choose the prompts, then sample the plain arm and the speculative one; no two draws share a seed."""
    scouts = [one for one in task.before if one.pair == SCOUT]

    def note(one: Generation) -> None:
        record(one)
        scouts.append(one)

    plain = plain_of(task.resident)
    send_missing(task, open_client, plain, _scouts(task), record=note, observe=observe)
    chosen = {
        name: chosen_prompts(task.canaries[name], (one for one in scouts if one.workload == name))
        for name in task.settings
    }
    for arm, resident in (("plain", plain), ("candidate", task.resident)):
        send_missing(task, open_client, resident, _samples(task, arm, chosen), record=record, observe=observe)


def _scouts(task: SoakTask) -> Iterator[Request]:
    seed = task.slo.sampling.seed + len(task.settings) * PROMPTS * SAMPLES  # beyond those of the samples
    for name, candidate in task.settings.items():
        for canary in scouted_prompts(task.canaries[name]):
            for number in range(SCOUTS):
                seed += 1
                yield _draw(task, SCOUT, name, canary, "plain", plain_of(candidate), number, 2 * seed, pair=SCOUT)


def _samples(task: SoakTask, arm: str, chosen: Mapping[str, Sequence[Canary]]) -> Iterator[Request]:
    seed = task.slo.sampling.seed
    for name, candidate in task.settings.items():
        knobs = candidate if arm == "candidate" else plain_of(candidate)
        for canary in chosen[name]:
            for number in range(SAMPLES):
                seed += 1
                yield _draw(task, arm, name, canary, arm, knobs, number, 2 * seed + (arm == "candidate"))


def _draw(
    task: SoakTask,
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
        task.slo, task.name, key, name, short, arm, setting, Role.DRAW, repeat=number, pair=pair, seed=seed
    )
