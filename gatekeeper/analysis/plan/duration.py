"""The duration of a run, stage by stage, forecast before the first token: an allowance, not a measurement.

Every answer is taken as long as it may be, at the speed that plain decoding is assumed to have. What lies beside the
soak's clock is counted as well: plain blocks, the closing pass, near-ties, the warm cache and first tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics import first_tokens
from gatekeeper.analysis.plan.ladder import PLAIN
from gatekeeper.analysis.plan.memory_fit import prompt_tokens
from gatekeeper.analysis.plan.objectives import promised, sampled, warmed
from gatekeeper.analysis.plan.soak_schedule import BLOCKS, REPEATS, WARMUPS, closing, plain_block
from gatekeeper.analysis.plan.sweep_plan import Plan, sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo

PREFILL = 10.0
"""How many times faster than an answer is written its prompt is read: an allowance, small for a GPU."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a run: how many answers, and how long they take at most."""

    name: str
    answers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a forecast assumes of the subject."""

    speed: float
    """Tokens a second of plain decoding."""
    vocabulary: int | None
    shares_process: bool
    logits: bool
    """It can tell its target's logits."""

    def seconds(self, canary: Canary, tokens: int) -> float:
        """Return what reading the prompt of *canary* and writing *tokens* takes."""
        return (prompt_tokens(canary, self.vocabulary) / PREFILL + tokens) / self.speed


def stages(slo: Slo, plan: Plan, canaries: Mapping[str, Sequence[Canary]], assumed: Assumed) -> tuple[Stage, ...]:
    """Return the stages of a run whose sweep chooses its default setting for every workload, in their order.

    The soak is counted with its shortest duration and without answers; near-ties as if every canary parted once.
    """
    default = next((trial.setting for trial in plan.trials if trial.arm == "candidate"), PLAIN)
    settings = dict.fromkeys((one.name for one in slo.workload), plan.fixed or default)
    steps = [step for block in plan.blocks for step in block.steps]
    swept = [(step.canary, _most(slo, step.canary, step.trial.setting)) for step in steps]
    found = (
        _asked("sweep", swept, assumed),
        Stage("soak", 0, slo.soak.duration),
        _asked("plain_blocks", _blocks(slo, settings, canaries, assumed), assumed),
        _asked("closing", [(one.canary, _most(slo, one.canary)) for one in closing(settings, canaries)], assumed),
        _near_ties(slo, settings, canaries, assumed),
        _warm(slo, settings, canaries, assumed),
        _asked("first_tokens", _draws(slo, settings, canaries), assumed),
    )
    return tuple(stage for stage in found if stage.seconds > 0)


def _asked(name: str, asked: Iterable[tuple[Canary, int]], assumed: Assumed) -> Stage:
    spent = [assumed.seconds(canary, tokens) for canary, tokens in asked]
    return Stage(name, len(spent), sum(spent))


def _most(slo: Slo, canary: Canary, knobs: Setting = ()) -> int:
    return sampling_for(slo, canary, knobs, 1).max_tokens


def _blocks(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumed
) -> list[tuple[Canary, int]]:
    """Return the plain answers before, midway and after a soak that has none woven in."""
    if assumed.shares_process and slo.soak.concurrency == 1:
        return []
    out = []
    for number in range(BLOCKS):
        turns = plain_block(settings, canaries, number, BLOCKS)
        out += [(one.canary, _most(slo, one.canary)) for one in (*turns[:WARMUPS], *turns)]
    return out


def _near_ties(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumed
) -> Stage:
    """Count one reading a canary: the prompt and the tokens both arms share go through the target once."""
    greedy = slo.sampling.temperature == 0
    names = promised(slo, settings, "token_agreement") if assumed.logits and greedy else ()
    read = [canary for name in names for canary in canaries[name]]
    seconds = sum(assumed.seconds(one, 0) + _most(slo, one) / PREFILL / assumed.speed for one in read)
    return Stage("near_ties", len(read), seconds)


def _warm(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], assumed: Assumed
) -> Stage:
    """Count every canary once plainly and *REPEATS* times drafting, and its second turn once in each arm.

    A second turn reads the first prompt, its answer and the next prompt; that the cache spares some of it is left out.
    """
    answers, seconds = 0, 0.0
    for name in warmed(slo, settings):
        some = canaries[name]
        for first, then in zip(some, (*some[1:], *some[:1]), strict=True):
            said = _most(slo, first)
            before = assumed.seconds(first, 0) + said / PREFILL / assumed.speed
            seconds += (1 + REPEATS) * assumed.seconds(first, said)
            seconds += 2 * (before + assumed.seconds(then, _most(slo, then)))
            answers += 1 + REPEATS + 2
    return Stage("warm_cache", answers, seconds)


def _draws(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]]
) -> list[tuple[Canary, int]]:
    """Return the draws of both arms: a few first tokens, and the whole prompt each time."""
    return [
        (canary, first_tokens.TOKENS)
        for name in sampled(slo, settings)
        for canary in first_tokens.shortest_prompts(canaries[name])
        for _ in range(2 * first_tokens.SAMPLES)
    ]
