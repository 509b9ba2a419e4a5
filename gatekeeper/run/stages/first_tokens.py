"""The draws: first tokens of a few short prompts, sampled many times in both arms, each with a seed of its own."""

from collections.abc import Callable, Iterator

from gatekeeper.analysis.metrics.first_tokens import SAMPLES, TOKENS, shortest_prompts
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.requests import Desk, Errand, Observe, Request, ask_missing, request

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that have no say: a draw is a few tokens long and asked alone."""


def draw(
    given: Errand, open_desk: Callable[[], Desk], *, record: Callable[[Generation], None], observe: Observe
) -> None:
    """Draw in the plain arm, then in the candidate's; no two draws share a seed, so all are independent."""
    for arm, resident in (("plain", plain_of(given.resident)), ("candidate", given.resident)):
        ask_missing(given, open_desk, resident, _requests(given, arm), record=record, observe=observe)


def _requests(given: Errand, arm: str) -> Iterator[Request]:
    seed = given.slo.sampling.seed
    for name in given.settings:
        for canary in shortest_prompts(given.canaries[name]):
            short = canary.model_copy(update={"max_tokens": TOKENS})
            for number in range(SAMPLES):
                seed += 1
                own = {"seed": 2 * seed + (arm == "candidate")}
                yield request(given, name, arm, short, Role.DRAW, without=WITHOUT, sampling=own, repeat=number)
