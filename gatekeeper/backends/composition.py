"""The composition of a scripted answer: its tokens, their bursts and rounds, before time is spent on giving it."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.backends.asked import Asked
from gatekeeper.backends.rounds import count_rounds
from gatekeeper.backends.script import Arm, Manner, Script
from gatekeeper.backends.specimen import calls_for, text_for, words
from gatekeeper.terms.canary import Canary
from gatekeeper.terms.records import Rounds

EMIT_S = 10e-6
"""Between the tokens of one round: as fast as a loop yields them."""

_PIECE = re.compile(r"\s*\S{1,4}|\s+$")
"""A token of a constructed text: four characters, as of English on average."""

_WRONG = "I do not know that one."


@dataclass(frozen=True, slots=True)
class Occasion:
    """When and for what an answer is composed."""

    canary: Canary
    asked: Asked
    manner: Manner
    draft_tokens: int
    number: int
    """Counts the backend's answers from 1."""
    pace: float
    """What every time is multiplied with."""
    seconds: float
    """Since the backend was opened."""
    short: bool = False
    """Cut it at half its length."""
    warm: bool = False
    """A prompt cache holds the beginning of its prompt."""

    @property
    def arm(self) -> Arm:
        """Return which arm asked."""
        return "plain" if self.asked.draft is None else "candidate"

    @property
    def key(self) -> str:
        """Name the draw of what is said: greedy answers depend on their canary alone."""
        return self.canary.id if self.asked.greedy else f"{self.canary.id}|{self.number}"


@dataclass(frozen=True, slots=True)
class Composition:
    """An answer before it is given."""

    pieces: tuple[str, ...]
    text: str
    calls: tuple[dict[str, Any], ...]
    finish: str
    flags: tuple[bool, ...]
    """Which tokens the draft proposed."""
    bursts: tuple[tuple[float, int], ...]
    """Gaps in seconds, each with the tokens that come after it."""
    rounds: Rounds | None


def compose(script: Script, occasion: Occasion) -> Composition:
    """Compose one answer; the same script and occasion give the same composition."""
    asked, manner = occasion.asked, occasion.manner
    whole, calls = _said(script, occasion)
    limit = max(1, len(whole) // 2) if occasion.short else asked.max_tokens
    cut = len(whole) > limit
    pieces = whole[:limit]
    said = Composition(
        pieces,
        text="" if calls else "".join(pieces),
        calls=() if cut else calls,
        finish="length" if len(whole) >= limit else "tool_calls" if calls else "stop",
        flags=(False,) * len(pieces),
        bursts=(),
        rounds=None,
    )
    jitter = random.Random(f"{script.seed}|token|{occasion.number}")
    plain = [manner.token * _lognormal(jitter, script.noise.token) * occasion.pace for _ in pieces]
    prefill = manner.prefill + manner.prefill_token * prompt_tokens(occasion.canary)
    if asked.draft is None:
        composed = replace(said, bursts=tuple((gap, 1) for gap in plain))
    elif not manner.engaged:
        composed = replace(said, bursts=tuple((gap, 1) for gap in plain), rounds=Rounds(len(pieces), 0, 0))
    else:
        prefill += manner.draft_prefill
        composed = _speculated(script, occasion, said, jitter, plain[1:])
    (gap, tokens), *later = composed.bursts
    bursts = [(gap + prefill * occasion.pace, tokens), *later]
    return replace(composed, bursts=tuple(_stalled(script, occasion, bursts)))


def prompt_tokens(canary: Canary) -> int:
    """Count a prompt's words, the scripted subject's tokens."""
    return sum(len(str(message.get("content") or "").split()) for message in canary.messages)


def _said(script: Script, occasion: Occasion) -> tuple[tuple[str, ...], tuple[dict[str, Any], ...]]:
    """Return the tokens of the whole answer, and its calls."""
    canary, manner, key = occasion.canary, occasion.manner, occasion.key
    right = random.Random(f"{script.seed}|quality|{key}").random() < manner.quality.of(occasion.arm)
    agrees = occasion.arm == "plain" or random.Random(f"{script.seed}|agreement|{key}").random() < manner.agreement
    if occasion.warm and occasion.arm == "candidate":
        agrees = agrees and random.Random(f"{script.seed}|warm|{key}").random() < manner.warm
    text = script.answers.get(canary.id)
    if canary.expect is None and text is None:
        length = min(manner.tokens, occasion.asked.max_tokens)
        spoken = words(random.Random(f"{script.seed}|words|{key}"), length)
        if manner.shortcut and occasion.arm == "candidate" and not occasion.asked.greedy:
            spoken = _cut_short(script, occasion, spoken)
        return (spoken if agrees else (*spoken[:-1], " otherwise")), ()
    calls: tuple[dict[str, Any], ...] = ()
    if not right:
        text = _WRONG
    elif text is None:
        text, calls = text_for(canary), calls_for(canary)
    if calls:
        spelled = (f"{call['function']['name']} {call['function']['arguments']}" for call in calls)
        text = "".join(f"<tool_call>{one}</tool_call>" for one in spelled)
    pieces = tuple(_PIECE.findall(text or "")) or ("",)
    # A newline at the end differs in its token alone, so that disagreement and quality can be decreed apart.
    return (pieces if agrees else (*pieces[:-1], pieces[-1] + "\n")), calls


def _cut_short(script: Script, occasion: Occasion, spoken: tuple[str, ...]) -> tuple[str, ...]:
    """Put the likeliest word wherever the draft proposes it: a greedy shortcut instead of sampling."""
    chance = occasion.manner.chance(str(occasion.asked.draft))
    draw = random.Random(f"{script.seed}|shortcut|{occasion.key}")
    likeliest = words(random.Random(0), 1)[0]
    return tuple((" " if at else "") + likeliest if draw.random() < chance else one for at, one in enumerate(spoken))


def _speculated(
    script: Script, occasion: Occasion, said: Composition, jitter: random.Random, plain: Sequence[float]
) -> Composition:
    """Draw which tokens are accepted; greedy draws depend on the canary, the draft and its length alone."""
    manner, k, draft = occasion.manner, occasion.draft_tokens, str(occasion.asked.draft)
    draw, chance = random.Random(f"{script.seed}|accept|{occasion.key}|{draft}|{k}"), manner.chance(draft)
    for drift in script.drift:
        if drift.of == "acceptance":
            chance *= drift.factor(occasion.seconds)
    flags: list[bool] = []
    bursts: list[tuple[float, int]] = []
    while len(flags) < len(said.pieces):
        width = min(k, occasion.asked.max_tokens - len(flags))
        draws = [draw.random() for _ in range(k)]
        accepted = 0
        while accepted < width and draws[accepted] < chance * manner.acceptance_falloff**accepted:
            accepted += 1
        burst = ([True] * accepted + [False])[: len(said.pieces) - len(flags)]
        flags += burst
        cost = (manner.verify or manner.token) + width * manner.draft_seconds(draft)
        bursts.append((cost * _lognormal(jitter, script.noise.token) * occasion.pace, len(burst)))
    if (ratio := manner.exact_ratio(k)) is not None:
        bursts = _paced(bursts, math.fsum(plain) / max(1, len(plain)) / ratio, by_round=script.arrivals == "round")
    rounds = count_rounds(flags, draft_tokens=k, max_tokens=occasion.asked.max_tokens)
    return replace(said, flags=tuple(flags), bursts=tuple(bursts), rounds=rounds)


def _paced(bursts: list[tuple[float, int]], token_s: float, *, by_round: bool) -> list[tuple[float, int]]:
    """Stretch the gaps after the first burst so that each of its later tokens takes *token_s* seconds.

    A decode rate leaves out the tokens of the first burst and counts the time from its first arrival, which is its last
    token where a whole round arrives at once.
    """
    later = [tokens for _, tokens in bursts[1:]]
    raw = sum(gap for gap, _ in bursts[1:])
    if not raw:
        return bursts
    # A gap is counted from the first token of its burst; the last burst's own tokens trail behind it.
    trailing = (later[-1] - 1) * EMIT_S - (bursts[0][1] - 1) * EMIT_S * by_round
    scale = max(0.0, sum(later) * token_s - trailing) / raw
    return [bursts[0], *((gap * scale, tokens) for gap, tokens in bursts[1:])]


def _stalled(script: Script, occasion: Occasion, bursts: list[tuple[float, int]]) -> list[tuple[float, int]]:
    noise, draw = script.noise, random.Random(f"{script.seed}|stall|{occasion.number}")
    if draw.random() < noise.stall_share and len(bursts) > 1:
        where = draw.randrange(1, len(bursts))
        bursts[where] = (bursts[where][0] + noise.stall, bursts[where][1])
    return bursts


def _lognormal(draw: random.Random, sigma: float) -> float:
    """Draw a factor whose median is 1."""
    return math.exp(draw.gauss(0, sigma)) if sigma else 1.0
