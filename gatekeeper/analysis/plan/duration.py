"""The forecast of a run's duration, stage by stage, before the first token: an estimate, not a measurement.

It assumes that every answer has its maximum length, at an assumed speed of plain decoding. Stages outside of the soak's
duration are included: plain blocks, the closing pass, near-ties, the warm cache and first tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics import first_tokens
from gatekeeper.analysis.plan.memory_fit import prompt_tokens
from gatekeeper.analysis.plan.objectives import first_token_workloads, warm_cache_workloads, workloads_with
from gatekeeper.analysis.plan.settings import PLAIN, sampling_for
from gatekeeper.analysis.plan.soak_schedule import (
    PLAIN_BLOCKS,
    WARM_REPEATS,
    WARMUPS,
    SoakRequest,
    closing_requests,
    plain_block,
)
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo

PREFILL = 10.0
"""Prompt tokens are read this many times faster than answer tokens are written; a low value for a GPU."""


@dataclass(frozen=True, slots=True)
class StageForecast:
    """One stage of a run: its answers, and the longest time they may take."""

    name: str
    answers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a forecast assumes of the system under test."""

    speed: float
    """Tokens a second of plain decoding."""
    vocabulary: int | None
    logits: bool
    """The target's logits can be read."""

    def seconds(self, canary: Canary, tokens: int) -> float:
        """Return the time to read the prompt of *canary* and write *tokens*."""
        return (prompt_tokens(canary, self.vocabulary) / PREFILL + tokens) / self.speed


def forecast_stages(
    slo: Slo, plan: SweepPlan, canaries: Mapping[str, Sequence[Canary]], assumed: Assumptions
) -> tuple[StageForecast, ...]:
    """Return the stages of a run whose sweep chooses the default setting for every workload, in their order.

    The soak counts with its shortest duration and no answers; near-ties as if every canary diverged once.
    """
    default = plan.candidates[0].setting if plan.candidates else PLAIN
    settings = dict.fromkeys((one.name for one in slo.workload), plan.fixed or default)
    sweep = [(one.canary, _longest(slo, one.canary, one.trial.setting)) for one in plan.requests]
    found = (
        _stage("sweep", sweep, assumed),
        StageForecast("soak", 0, slo.soak.duration),
        _stage("plain_blocks", _whole(slo, _plain_blocks(slo, plan, settings, canaries)), assumed),
        _stage("closing", _whole(slo, closing_requests(settings, canaries)), assumed),
        _near_ties(slo, settings, canaries, assumed),
        _warm(slo, settings, canaries, assumed),
        _stage("first_tokens", _draws(slo, settings, canaries), assumed),
    )
    return tuple(stage for stage in found if stage.seconds > 0)


def _stage(name: str, answers: Iterable[tuple[Canary, int]], assumed: Assumptions) -> StageForecast:
    spent = [assumed.seconds(canary, tokens) for canary, tokens in answers]
    return StageForecast(name, len(spent), sum(spent))


def _longest(slo: Slo, canary: Canary, knobs: Setting = ()) -> int:
    return sampling_for(slo, canary, knobs, 1).max_tokens


def _whole(slo: Slo, requests: Iterable[SoakRequest]) -> list[tuple[Canary, int]]:
    return [(one.canary, _longest(slo, one.canary)) for one in requests]


def _plain_blocks(
    slo: Slo, plan: SweepPlan, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]]
) -> list[SoakRequest]:
    """Return the plain requests before, midway and after a soak that does not interleave them."""
    if plan.shares_process and slo.soak.concurrency == 1:
        return []
    blocks = [plain_block(settings, canaries, number) for number in range(PLAIN_BLOCKS)]
    return [request for block in blocks for request in (*block[:WARMUPS], *block)]


def _near_ties(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumptions
) -> StageForecast:
    """Count one pass per canary: the target reads the prompt and the tokens that both arms share."""
    greedy = slo.sampling.temperature == 0
    names = workloads_with(slo, settings, "token_agreement") if assumed.logits and greedy else ()
    read = [canary for name in names for canary in canaries[name]]
    seconds = sum(assumed.seconds(one, 0) + _longest(slo, one) / PREFILL / assumed.speed for one in read)
    return StageForecast("near_ties", len(read), seconds)


def _warm(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumptions
) -> StageForecast:
    """Count every canary once plainly and *WARM_REPEATS* times with the draft, and its second turn once in each arm.

    A second turn reads the first prompt, its answer and the next prompt; what the cache saves is ignored.
    """
    answers, seconds = 0, 0.0
    for name in warm_cache_workloads(slo, settings):
        some = canaries[name]
        for first, then in zip(some, (*some[1:], *some[:1]), strict=True):
            tokens = _longest(slo, first)
            before = assumed.seconds(first, 0) + tokens / PREFILL / assumed.speed
            seconds += (1 + WARM_REPEATS) * assumed.seconds(first, tokens)
            seconds += 2 * (before + assumed.seconds(then, _longest(slo, then)))
            answers += 1 + WARM_REPEATS + 2
    return StageForecast("warm_cache", answers, seconds)


def _draws(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]]
) -> list[tuple[Canary, int]]:
    """Return the samples of both arms: a few first tokens, each with the whole prompt."""
    return [
        (canary, first_tokens.TOKENS)
        for name in first_token_workloads(slo, settings)
        for canary in first_tokens.shortest_prompts(canaries[name])
        for _ in range(2 * first_tokens.SAMPLES)
    ]
