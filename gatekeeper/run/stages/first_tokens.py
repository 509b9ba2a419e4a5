"""The distribution check: first tokens of a few short prompts, sampled many times in both arms."""

from collections.abc import Callable, Iterator

from gatekeeper.analysis.metrics.first_tokens import SAMPLES, TOKENS, shortest_prompts
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.requests import Client, Observe, Request, SoakTask, build_request, send_missing

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: a draw is a few tokens long, and one request at a time."""


def sample_first_tokens(
    task: SoakTask, open_client: Callable[[], Client], *, record: Callable[[Generation], None], observe: Observe
) -> None:
    """Sample the plain arm, then the speculative one; no two draws share a seed, so all are independent."""
    for arm, resident in (("plain", plain_of(task.resident)), ("candidate", task.resident)):
        send_missing(task, open_client, resident, _requests(task, arm), record=record, observe=observe)


def _requests(task: SoakTask, arm: str) -> Iterator[Request]:
    seed = task.slo.sampling.seed
    for name, candidate in task.settings.items():
        knobs = candidate if arm == "candidate" else plain_of(candidate)
        setting = tuple((knob, value) for knob, value in knobs if knob not in WITHOUT)
        for canary in shortest_prompts(task.canaries[name]):
            short = canary.model_copy(update={"max_tokens": TOKENS})
            for number in range(SAMPLES):
                seed += 1
                yield build_request(
                    task.slo,
                    task.name,
                    f"{arm}-{number}",
                    name,
                    short,
                    arm,
                    setting,
                    Role.DRAW,
                    repeat=number,
                    seed=2 * seed + (arm == "candidate"),
                )
