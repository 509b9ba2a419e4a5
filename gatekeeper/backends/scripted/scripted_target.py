"""The target of a scripted system: what it makes of tokens that it reads again, as the script defines its logits."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from gatekeeper.backends.scripted.planned_answer import AnswerContext, flipped_places, plan_answer
from gatekeeper.backends.scripted.shown_answer import token_id
from gatekeeper.core.clock import Clock
from gatekeeper.core.interfaces import DecodeRequest, ForcedPass, ReplayedRounds, RoundPasses, TwoWidths
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Likely, Parting, Scored

NUMERICS = 0.125
"""At a smaller gap, a token that the draft changes is the choice of a pass of several tokens, and no defect."""
FLIPPED = 0.05
"""The gap where numerics change a token; the pass that reads a prompt moves each gap by twice as much."""
LOGPROB = -0.1
"""Of each likeliest token."""
DRAWN = ((-0.1, -0.1, -0.189, 0.231), (-2.352, -0.1, -0.189, 0.231))
"""Scores of a sampled token that is the best of two, with a chance of 0.905, and of one that is the other."""


class OfScript(Protocol):
    """What the target needs of its backend."""

    sight: Sight
    clock: Clock


class ScriptedTarget:
    """Reads tokens again on the backend's clock."""

    def __init__(self, backend: OfScript, context: Callable[..., AnswerContext]) -> None:
        self._target_of, self._context_of = backend, context

    def logit_gap(self, request: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return the script's gap, or that of a token which numerics change."""
        gaps = _Gaps(self._plain(request))
        return gaps.at(len(tokens)) if Sight.LOGITS in self._target_of.sight else None

    def force(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> ForcedPass | None:
        """Compare *tokens* with plain decoding's; reading them takes as long as reading a prompt."""
        del width
        if Sight.FORCED not in self._target_of.sight:
            return None
        plain = self._read(request, len(tokens), passes=0)
        return ForcedPass(tuple(self._partings(request, tokens)), len(tokens) == len(plain))

    def replay(
        self, request: DecodeRequest, tokens: tuple[int, ...], rounds: RoundPasses, *, twice: bool = False
    ) -> ReplayedRounds | None:
        """Compare *tokens* with plain decoding's; one that differs at a small gap is its choice in a wider pass."""
        if Sight.REPLAY not in self._target_of.sight:
            return None
        self._read(request, 0, passes=len(rounds) * (1 + twice))
        steady, nll = True if twice else None, -LOGPROB * len(tokens)
        if request.sampling.temperature > 0:
            return ReplayedRounds((), steady, nll, tuple(DRAWN[place % 21 in {0, 10}] for place in range(len(tokens))))
        parted = (place for place in self._partings(request, tokens) if place.gap is None or place.gap > NUMERICS)
        return ReplayedRounds(tuple(parted), steady, nll)

    def read_widths(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> TwoWidths | None:
        """Return the script's gap at both widths."""
        if Sight.WIDTHS not in self._target_of.sight:
            return None
        self._read(request, 0, passes=len(tokens) + len(tokens) // width)
        gaps = (self._plain(request).behaviour.gap or 0.0,) * len(tokens)
        return TwoWidths(gaps, gaps, NUMERICS / 2, -LOGPROB * len(tokens))

    def scored(self, request: DecodeRequest) -> Scored | None:
        """Return an answer whose tokens lead by the script's gap; drafted ones only where they are verified ones."""
        if not (Sight.LOGPROBS | Sight.VERIFIED) & self._target_of.sight:
            return None
        context, gaps = self._context_of(request, number=0, pace=1.0, seconds=0.0), _Gaps(self._plain(request))
        planned, plain = plan_answer(context), gaps.tokens
        drafted = plan_answer(self._drafted(request)).tokens
        self._target_of.clock.sleep(sum(gap for gap, _ in planned.bursts))
        told = context.arm == "plain" or Sight.VERIFIED in self._target_of.sight
        likeliest = [
            _likely(gaps.at(place), token, plain[place : place + 1], drafted[place : place + 1]) if told else ()
            for place, token in enumerate(planned.tokens)
        ]
        return Scored(
            "", "", "", text=planned.text, tokens=planned.tokens, likeliest=tuple(likeliest),
            logprobs=tuple(next((one.logprob for one in likely if one.name == token), 0.0)
                           for token, likely in zip(planned.tokens, likeliest, strict=True)),
        )  # fmt: skip

    def continued(self, request: DecodeRequest, beginning: Scored, tokens: int) -> Scored | None:
        """Return plain decoding's tokens at the same places, each of which leads by the script's gap."""
        read, gaps = len(beginning.tokens), _Gaps(self._plain(request))
        plain = self._read(request, read, passes=tokens - 1)[read : read + tokens]
        drafted = plan_answer(self._drafted(request)).tokens[read:]
        likeliest = []
        for place, token in enumerate(plain):
            gap = (gaps.at(read + place) or 0.0) - (gaps.moved if place == 0 else 0.0)
            names = (token, next(iter(drafted[place : place + 1]), ""))
            first, second = names if gap >= 0 else names[::-1]
            likeliest.append(_likely(abs(gap), first, (first,), ("" if second == first else second,)))
        tokens_read = tuple(likely[0].name for likely in likeliest)
        return Scored("", "", "", tokens=tokens_read, logprobs=(LOGPROB,) * len(plain), likeliest=tuple(likeliest))

    def _plain(self, request: DecodeRequest) -> AnswerContext:
        knobs = tuple((knob, None if knob == "draft" else value) for knob, value in request.setting)
        return self._context_of(replace(request, setting=knobs), number=0, pace=1.0, seconds=0.0)

    def _drafted(self, request: DecodeRequest) -> AnswerContext:
        knobs = {**dict(request.setting), "draft": request.draft or "draft"}
        return self._context_of(replace(request, setting=tuple(sorted(knobs.items()))), number=0, pace=1.0, seconds=0.0)

    def _read(self, request: DecodeRequest, tokens: int, *, passes: int) -> tuple[str, ...]:
        """Take the time of a prompt, of *tokens* after it, and of *passes*; return plain decoding's tokens."""
        context = self._plain(request)
        behaviour = context.behaviour
        read_s = behaviour.prefill_token * (context.known.prompt_tokens + tokens)
        self._target_of.clock.sleep(behaviour.prefill + read_s + passes * behaviour.token)
        return plan_answer(context).tokens

    def _partings(self, request: DecodeRequest, tokens: tuple[int, ...]) -> Iterator[Parting]:
        gaps = _Gaps(self._plain(request))
        for index, (token, expected) in enumerate(zip(tokens, map(token_id, gaps.tokens), strict=False)):
            if token != expected:
                yield Parting(index, expected, gaps.at(index))


class _Gaps:
    """By how much the target's best logit leads its second while it decodes plainly."""

    def __init__(self, plain: AnswerContext) -> None:
        self.tokens = plan_answer(plain).tokens
        self._gap, self._flipped = plain.behaviour.gap, flipped_places(plain, self.tokens)
        self.moved = 2 * FLIPPED if plain.behaviour.flips else 0.0
        """By how much reading a prompt moves them."""

    def at(self, place: int) -> float | None:
        """Return the gap at a place."""
        return FLIPPED if place in self._flipped else self._gap


def _likely(gap: float | None, token: str, plain: tuple[str, ...], drafted: tuple[str, ...]) -> tuple[Likely, ...]:
    """Return the likeliest tokens of a place: the written one and another; a large gap shows a changed token wrong."""
    gap = gap or 0.0
    first = plain[0] if plain and gap > NUMERICS else token
    second = next((other for other in (*plain, *drafted) if other != first), "")
    return (Likely(first, LOGPROB), Likely(second, LOGPROB - gap))
