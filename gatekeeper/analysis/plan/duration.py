"""The duration of a run, stage by stage, forecast before the first token: an allowance, not a measurement.

Every answer is taken as long as it may be, at the speed that plain decoding is assumed to have. What is outside of
the soak's clock is counted as well: plain blocks, the closing pass, near-ties, the warm cache and first tokens.
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
"""How many times faster than an answer is written its prompt is read: an allowance, small for a GPU."""


@dataclass(frozen=True, slots=True)
class StageForecast:
    """One stage of a run: how many answers, and how long they take at most."""

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
    """It shows the logits of its target."""

    def seconds(self, canary: Canary, tokens: int) -> float:
        """Return what reading the prompt of *canary* and writing *tokens* takes."""
        return (prompt_tokens(canary, self.vocabulary) / PREFILL + tokens) / self.speed


def forecast_stages(
    slo: Slo, plan: SweepPlan, canaries: Mapping[str, Sequence[Canary]], assumed: Assumptions
) -> tuple[StageForecast, ...]:
    """Return the stages of a run whose sweep chooses its default setting for every workload, in their order.

    The soak is counted with its shortest duration and without answers; near-ties as if every canary diverged once.
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
    """Return the plain requests before, midway and after a soak that has none among its own."""
    if plan.shares_process and slo.soak.concurrency == 1:
        return []
    blocks = [plain_block(settings, canaries, number) for number in range(PLAIN_BLOCKS)]
    return [request for block in blocks for request in (*block[:WARMUPS], *block)]


def _near_ties(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumptions
) -> StageForecast:
    """Count one reading a canary: the prompt and the tokens both arms share go through the target once."""
    greedy = slo.sampling.temperature == 0
    names = workloads_with(slo, settings, "token_agreement") if assumed.logits and greedy else ()
    read = [canary for name in names for canary in canaries[name]]
    seconds = sum(assumed.seconds(one, 0) + _longest(slo, one) / PREFILL / assumed.speed for one in read)
    return StageForecast("near_ties", len(read), seconds)


def _warm(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumptions
) -> StageForecast:
    """Count every canary once plainly and *WARM_REPEATS* times drafting, and its second turn once in each arm.

    A second turn reads the first prompt, its answer and the next prompt; that the cache spares some of it is left out.
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
    """Return the draws of both arms: a few first tokens, and the whole prompt each time."""
    return [
        (canary, first_tokens.TOKENS)
        for name in first_token_workloads(slo, settings)
        for canary in first_tokens.shortest_prompts(canaries[name])
        for _ in range(2 * first_tokens.SAMPLES)
    ]
