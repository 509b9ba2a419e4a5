"""Timed turns: passes of a running target by width, turn after turn, and the ceiling that they show."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from typing import Any

from gatekeeper.analysis.sweep.ceiling import WIDTHS, Ceiling, ceiling_of, medians_of, rounds_of_answers
from gatekeeper.core import canary
from gatekeeper.core.canary import Canary
from gatekeeper.core.canary.filler import CHARACTERS
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem, SamplingParameters, TimesPasses
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, PassTimes, Rounds, Setting, setting
from gatekeeper.core.system import inputs
from gatekeeper.core.verdict import Missing

CONTEXT = 256
"""Tokens of the beginning that every pass follows, which its cache holds."""
CONFIDENCE = 0.95
LEAST_TURNS = 6
"""Turns that are timed even where they take longer than they should: the first warms up, five make bounds."""
LONGEST_S, LONGER = 60.0, 6.0
"""Fewer turns are accepted after so many seconds, and after so many times the seconds that were wanted."""
ROUNDS = (*range(1, 9), 12, 15)
"""Draft lengths whose rounds are timed by answers: the longest take most of a turn, and costs between them are even."""
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
class CountedRounds:
    """The target with its draft in a server that counts the rounds of an answer, of a length that a request names."""

    system: RunningSystem
    draft: str
    prompts: Iterator[Canary]
    """One for each turn."""
    more_tokens: int = 8
    """Of an answer, beyond those that a round emits at most."""

    def seconds(self, lengths: Iterable[int]) -> dict[int, float] | Missing:
        """Return the seconds of a round of each of the draft *lengths*; of none where answers end in their first one.

        Each length is timed by one answer. Answers of one token, at the least and at the longest length, show what any
        request takes, and what a drafted token takes.
        """
        prompt, timed = next(self.prompts), list[tuple[int, Rounds, float]]()
        lengths = tuple(lengths)
        limits = [(length, length + 1 + self.more_tokens) for length in lengths]
        self._answer(prompt, 1, 1)  # reads the prompt
        for length, tokens in ((min(lengths), 1), *limits, (max(lengths), 1)):
            answer = self._answer(prompt, length, tokens)
            if answer.fault is not None:
                return Missing(answer.fault)
            if answer.rounds is not None:
                timed.append((length, answer.rounds, answer.seconds))
        return rounds_of_answers(timed)

    def _answer(self, prompt: Canary, length: int, tokens: int) -> Answer:
        knobs = setting(draft=self.draft, num_draft_tokens=length)
        return self.system.answer(DecodeRequest(prompt, knobs, SamplingParameters(max_tokens=tokens)))


@dataclass(frozen=True, slots=True)
class TimedSystems:
    """The running target, and beside it the draft where both are not in one process with it."""

    backend: Backend
    target: TimesPasses
    setting: Setting
    draft: TimesPasses | None = None
    """The draft alone, in a server of its own: in a round it reads all tokens of the pass again, in a pass of its own.
    """
    drafting: CountedRounds | None = None

    def turn(self, widths: tuple[int, ...], context: int) -> PassTimes | Missing:
        """Time one turn; rounds of a draft on a server of its own are the pass and what the draft does, together."""
        request = DecodeRequest(_text(), self.setting, SamplingParameters())
        if self.drafting is not None:
            return self._turn_of_answers(request, self.drafting, widths, context)
        times = self.target.time_passes(request, widths, context)
        if isinstance(times, Missing):
            return times
        if self.draft is None:
            return times
        alone = self.draft.time_passes(request, widths, context)
        if isinstance(alone, Missing):
            return Missing(f"the draft: {alone.because}")
        timed = [width for width in times.passes if width > 1 and width in alone.passes]
        return replace(
            times,
            rounds={
                width - 1: times.passes[width] + (width - 1) * alone.plain + alone.passes[width] for width in timed
            },
        )

    def _turn_of_answers(
        self, request: DecodeRequest, drafting: CountedRounds, widths: Iterable[int], context: int
    ) -> PassTimes | Missing:
        """Time rounds by answers, between plain decoding and again; one more pass shows that its cache works."""
        before = self.target.time_passes(request, (1, 2), context)
        if isinstance(before, Missing):
            return before
        rounds = drafting.seconds(dict.fromkeys(width - 1 for width in widths if width - 1 in ROUNDS))
        if isinstance(rounds, Missing):
            return rounds
        after = self.target.time_passes(request, (1, 2), context)
        return after if isinstance(after, Missing) else replace(medians_of([before, after]), rounds=rounds)


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
    if systems.drafting is not None and not any(turn.rounds for turn in turns):
        return Missing("its answers with the draft end within two rounds, or do not tell their rounds")
    return turns


def questions_after(context: int) -> Iterator[Canary]:
    """Yield the prompts of the shipped canaries again and again, each after a text of about *context* tokens."""
    text = "\n".join(_prompts())[: context * CHARACTERS]
    return cycle(_asking(f"{text}\n\n{prompt}") for prompt in _prompts())


@cache
def _text() -> Canary:
    """Return one prompt with the prompts of shipped canaries."""
    return _asking("\n".join(_prompts()))


def _asking(text: str) -> Canary:
    return Canary.model_validate({"id": "text", "messages": [{"role": "user", "content": text}]})


@cache
def _prompts() -> list[str]:
    folder = inputs.shipped_folder("canaries")
    return [
        str(message["content"])
        for name in TEXTS
        for prompt in canary.parse((folder / f"{name}.jsonl").read_text("utf-8"), name)
        for message in prompt.messages
    ]
