"""Timed turns: passes of a running target by width, turn after turn, and the ceiling that they show."""

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gatekeeper.analysis.sweep.ceiling import WIDTHS, Ceiling, ceiling_of
from gatekeeper.core import canary
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem, SamplingParameters, TimesPasses
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import PassTimes, Setting
from gatekeeper.core.system import inputs
from gatekeeper.core.verdict import Missing

CONTEXT = 256
"""Tokens of the beginning that every pass follows, which its cache holds."""
CONFIDENCE = 0.95
LEAST_TURNS = 6
"""Turns that are timed even where they take longer than they should: the first warms up, five make bounds."""
LONGEST_S, LONGER = 60.0, 6.0
"""Fewer turns are accepted after so many seconds, and after so many times the seconds that were wanted."""
TEXTS = ("prose", "chat", "qa")
"""The shipped canaries whose prompts are the text that is read."""


def ceiling_beside(backend: Backend, system: RunningSystem | None, knobs: Setting, seconds: float) -> Ceiling | None:
    """Return the ceiling of a target that runs anyway, in process; None where its passes cannot be timed there."""
    if not isinstance(system, TimesPasses) or Sight.WIDTHS not in backend.sight:
        return None
    ceiling = ceiling_from(take_turns(TimedSystems(backend, system, knobs), seconds, CONTEXT))
    return ceiling if isinstance(ceiling, Ceiling) else None


def ceiling_from(turns: list[PassTimes] | Missing) -> Ceiling | Missing:
    """Return the ceiling of *turns*, whose first one warmed up."""
    return turns if isinstance(turns, Missing) else ceiling_of(turns[1:], CONFIDENCE)


def ceiling_document(ceiling: Ceiling | Missing) -> dict[str, Any]:
    """Return what was measured, or why it could not be."""
    if isinstance(ceiling, Missing):
        return {"measurable": False, "because": ceiling.because}
    return {"measurable": True, "because": None, **ceiling.document()}


@dataclass(frozen=True, slots=True)
class TimedSystems:
    """The running target, and the draft where it is a server of its own."""

    backend: Backend
    target: TimesPasses
    setting: Setting
    draft: TimesPasses | None = None
    rereads_drafts: bool = False
    """As `BackendFacts.rereads_drafts`."""

    def turn(self, widths: tuple[int, ...], context: int) -> PassTimes | Missing:
        """Time one turn; rounds of a draft on a server of its own are the pass and what the draft does, together."""
        request = DecodeRequest(_text(), self.setting, SamplingParameters())
        times = self.target.time_passes(request, widths, context)
        if self.draft is None or isinstance(times, Missing):
            return times
        alone = self.draft.time_passes(request, widths if self.rereads_drafts else (1, 2), context)
        if isinstance(alone, Missing):
            return Missing(f"the draft: {alone.because}")
        reread = alone.passes if self.rereads_drafts else dict.fromkeys(times.passes, 0.0)
        timed = [width for width in times.passes if width > 1 and width in reread]
        return replace(
            times,
            rounds={width - 1: times.passes[width] + (width - 1) * alone.plain + reread[width] for width in timed},
        )


def take_turns(systems: TimedSystems, seconds: float, context: int) -> list[PassTimes] | Missing:
    """Time turns for about *seconds*, each with the widths in another order; if it can, as many as bounds need."""
    clock, order, turns = systems.backend.clock, random.Random(0), list[PassTimes]()
    begun = clock.now_ns()
    end, last = begun + seconds * 1e9, begun + max(LONGEST_S, LONGER * seconds) * 1e9
    while clock.now_ns() < (last if len(turns) < LEAST_TURNS else end):
        times = systems.turn(tuple(order.sample(WIDTHS, len(WIDTHS))), context)
        if isinstance(times, Missing):
            return times
        turns.append(times)
    return turns


@cache
def _text() -> Canary:
    """Return one prompt with the prompts of shipped canaries."""
    folder = inputs.shipped_folder("canaries")
    texts = [
        str(message["content"])
        for name in TEXTS
        for prompt in canary.parse((folder / f"{name}.jsonl").read_text("utf-8"), name)
        for message in prompt.messages
    ]
    return Canary.model_validate({"id": "text", "messages": [{"role": "user", "content": "\n".join(texts)}]})
