"""A scripted answer: the plan of its tokens and their times, and what a scripted system shows of it."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from string import ascii_letters, digits
from typing import Any
from zlib import crc32

from gatekeeper.backends.http.chat_request import ResolvedRequest
from gatekeeper.backends.scripted.expected_texts import calls_for, text_for
from gatekeeper.backends.scripted.script import Arm, Behaviour, Script
from gatekeeper.backends.workers.rounds import count_rounds, round_shapes
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Claims, Rounds
from gatekeeper.core.records.arrivals import Arrival

EMIT_NS = 10_000
"""Nanoseconds between the tokens of one round."""
EMIT_S = EMIT_NS / 1e9
REJECTED = 1
"""The number of every drafted token that was rejected."""

_WORDS = (
    *("the", "a", "small", "river", "runs", "under", "one", "old", "bridge", "and", "every", "morning", "two"),
    *("grey", "herons", "stand", "there", "waiting", "for", "light", "while", "boats", "pass", "slowly"),
)
_TOKEN = re.compile(r"\s*\S{1,4}|\s+$")
"""A token of a constructed text: four characters, the average of English."""
_LETTERS = f"{ascii_letters}{digits}"
_NEXT_LETTERS = str.maketrans(_LETTERS, f"{_LETTERS[1:]}{_LETTERS[0]}")
"""Other words of as many letters: the tokens of a text do not become fewer."""
_WRONG = "I do not know that one."

Burst = tuple[float, int]
"""A gap in seconds, and how many tokens come after it."""
Calls = tuple[dict[str, Any], ...]


class KnownCanary:
    """A canary, and what a script makes of it alone: found once."""

    def __init__(self, canary: Canary, script: Script) -> None:
        self.canary, self.behaviour = canary, script.behaviour(canary)

    @cached_property
    def prompt_tokens(self) -> int:
        """Count the prompt's words, the scripted backend's tokens."""
        return sum(len(str(message.get("content") or "").split()) for message in self.canary.messages)

    @cached_property
    def text(self) -> str | None:
        """Return a text that meets its expectation; None where it expects none."""
        return text_for(self.canary)

    @cached_property
    def calls(self) -> Calls:
        """Return the calls that meet its expectation."""
        return calls_for(self.canary)


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """All that an answer depends on."""

    script: Script
    known: KnownCanary
    request: ResolvedRequest
    draft_tokens: int
    number: int
    """Counts the backend's answers from 1."""
    pace: float
    """The factor of every time."""
    seconds: float
    """Since the backend was opened."""
    short: bool = False
    """Cut the answer at half its length."""
    is_warm: bool = False
    """A prompt that this one begins with is in the cache, which may change the candidate's answer."""

    @property
    def canary(self) -> Canary:
        """Return the canary that is answered."""
        return self.known.canary

    @property
    def behaviour(self) -> Behaviour:
        """Return how it is answered."""
        return self.known.behaviour

    @property
    def arm(self) -> Arm:
        """Return the request's arm."""
        return "plain" if self.request.draft is None else "candidate"

    @property
    def text_key(self) -> str:
        """Return the key of the draws about the text: greedy answers depend only on their canary."""
        return self.canary.id if self.request.greedy else f"{self.canary.id}|{self.number}"

    def draw(self, kind: str) -> random.Random:
        """Return the generator of one kind of draw about the text."""
        return self.script.draw(kind, self.text_key)

    def happens(self, kind: str, chance: float) -> bool:
        """Draw whether something happens to the text; a generator takes longer to make than a whole answer to plan."""
        return chance >= 1 or self.draw(kind).random() < chance


@dataclass(frozen=True, slots=True)
class PlannedAnswer:
    """The plan of an answer."""

    tokens: tuple[str, ...]
    text: str
    """Empty where the tokens spell tool calls."""
    calls: Calls
    finish: str
    drafted: tuple[bool, ...]
    """Which tokens the draft proposed."""
    bursts: tuple[Burst, ...]
    rounds: Rounds | None
    prefill: float
    """Seconds to read the prompt."""


def plan_answer(context: AnswerContext) -> PlannedAnswer:
    """Plan one answer; the same context gives the same one."""
    script, behaviour, number = context.script, context.behaviour, context.number
    words, calls = _tokens_and_calls(context)
    if context.arm == "candidate":
        flipped = flipped_places(context, words)
        words = _flip(words, flipped)
        calls = (*calls[:-1], _add_space(calls[-1])) if flipped and calls else calls
        words = _reword_tokens(words, behaviour.wording)
    limit = max(1, len(words) // 2) if context.short else context.request.max_tokens
    tokens = words[:limit]
    jitter, sigma = script.draw("token", number), script.noise.token
    even = [] if sigma else [behaviour.token * context.pace] * len(tokens)
    plain = even or [behaviour.token * _lognormal(jitter, sigma) * context.pace for _ in tokens]
    prefill = behaviour.prefill + behaviour.prefill_token * context.known.prompt_tokens
    drafted, rounds, bursts = [False] * len(tokens), None, [(gap, 1) for gap in plain]
    if context.arm == "candidate" and not behaviour.engaged:
        rounds = Rounds(len(tokens), 0, 0)
    elif context.arm == "candidate":
        prefill += behaviour.draft_prefill + behaviour.draft_prefill_token * context.known.prompt_tokens
        drafted, bursts = _speculate(context, len(tokens), jitter)
        if (ratio := behaviour.exact_ratio(context.draft_tokens)) is not None:
            pace = (fmean(plain[1:]) if plain[1:] else 0.0) / ratio
            bursts = _stretch_gaps(bursts, pace, by_round=script.arrivals == "round")
        alone = behaviour.first == "prefill"
        most = context.request.max_tokens - alone
        rounds = count_rounds(drafted[alone:], draft_tokens=context.draft_tokens, max_tokens=most)
    if context.is_warm:
        prefill *= getattr(behaviour.reread, context.arm)
    bursts[0] = (bursts[0][0] + prefill * context.pace, bursts[0][1])
    if script.noise.stall_share and len(bursts) > 1:
        stall = script.draw("stall", number)
        if stall.random() < script.noise.stall_share:
            where = stall.randrange(1, len(bursts))
            bursts[where] = (bursts[where][0] + script.noise.stall, bursts[where][1])
    finish = "length" if len(words) >= limit else "tool_calls" if calls else "stop"
    text, calls = "" if calls else "".join(tokens), calls if len(words) <= limit else ()
    return PlannedAnswer(
        tokens,
        text,
        calls,
        finish,
        drafted=tuple(drafted),
        bursts=tuple(bursts),
        rounds=rounds,
        prefill=prefill * context.pace,
    )


def _tokens_and_calls(context: AnswerContext) -> tuple[tuple[str, ...], Calls]:
    """Return the tokens of the whole answer, and the tool calls that they spell."""
    script, canary, behaviour, candidate = context.script, context.canary, context.behaviour, context.arm == "candidate"
    right = context.happens("quality", getattr(behaviour.quality, context.arm))
    agrees = not candidate or context.happens("agreement", behaviour.agreement)
    if candidate and context.is_warm:
        agrees = agrees and context.happens("warm", behaviour.warm)
    text = script.answers.get(canary.id)
    calls: Calls = ()
    if canary.expect is None and text is None:
        words = _words(context.draw("words"), min(behaviour.tokens, context.request.max_tokens))
        if behaviour.shortcut and candidate and not context.request.greedy:
            words = _greedy_shortcut(context, words)
        return (words if agrees else (*words[:-1], " otherwise")), ()
    if not right:
        text = _WRONG
    elif text is None:
        text, calls = context.known.text, context.known.calls
    if calls:
        spelled = (f"{call['function']['name']} {call['function']['arguments']}" for call in calls)
        text = "".join(f"<tool_call>{call_text}</tool_call>" for call_text in spelled)
    tokens = tuple(_TOKEN.findall(text or "")) or ("",)
    # A final newline changes a token and not the grade, so that a script can set disagreement without lower quality.
    return (tokens if agrees else (*tokens[:-1], tokens[-1] + "\n")), calls


def flipped_places(context: AnswerContext, tokens: Sequence[str]) -> frozenset[int]:
    """Return which tokens of plain decoding the numerics of a wider pass change: some of those with a space before."""
    if not context.behaviour.flips:
        return frozenset()
    spaced = [place for place, token in enumerate(tokens) if token[:1].isspace()]
    chance, draw = context.behaviour.flips * len(tokens) / max(1, len(spaced)), context.draw("flips")
    flipped = frozenset(place for place in spaced if draw.random() < chance)
    calls = tuple(map(_add_space, context.known.calls))
    rewritten = Answer(0, 1, text="".join(_flip(tokens, flipped)), tool_calls=calls)
    return frozenset() if flipped and context.canary.grade(rewritten) is False else flipped


def _flip(tokens: Sequence[str], places: frozenset[int]) -> tuple[str, ...]:
    return tuple(token[0] + token if place in places else token for place, token in enumerate(tokens))


def _add_space(call: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call whose arguments are the same value in other words."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": f"{function['arguments']} "}}


def _reword_tokens(tokens: tuple[str, ...], wording: str) -> tuple[str, ...]:
    """Return the tokens as a system writes them that changes every word, or says each twice."""
    if wording == "twice":
        return tuple(token + token for token in tokens)
    return tuple(token.translate(_NEXT_LETTERS) for token in tokens) if wording == "other" else tokens


def _words(draw: random.Random, number: int) -> tuple[str, ...]:
    return tuple((" " if index else "") + draw.choice(_WORDS) for index in range(number))


def _greedy_shortcut(context: AnswerContext, words: tuple[str, ...]) -> tuple[str, ...]:
    """Replace each word that the draft proposes by the likeliest one, instead of sampling."""
    chance, draw = context.behaviour.chance(str(context.request.draft)), context.draw("shortcut")
    likeliest = _words(random.Random(0), 1)[0]
    return tuple(
        (" " if index else "") + likeliest if draw.random() < chance else word for index, word in enumerate(words)
    )


def _speculate(context: AnswerContext, length: int, jitter: random.Random) -> tuple[list[bool], list[Burst]]:
    """Draw which tokens are accepted; greedy draws depend only on the canary, the draft and its length."""
    script, behaviour = context.script, context.behaviour
    k, draft = context.draft_tokens, str(context.request.draft)
    draw, chance = script.draw("accept", f"{context.text_key}|{draft}|{k}"), behaviour.chance(draft)
    for drift in script.drift:
        if drift.of == "acceptance":
            chance *= drift.factor(context.seconds)
    verify_s, draft_s, sigma = behaviour.verify_seconds(k), behaviour.draft_seconds(draft), script.noise.token
    drafted: list[bool] = []
    bursts: list[Burst] = []
    if behaviour.first == "prefill":
        drafted, bursts = [False], [(behaviour.token * _lognormal(jitter, script.noise.token) * context.pace, 1)]
    while len(drafted) < length:
        width = min(k, context.request.max_tokens - len(drafted))
        draws = [draw.random() for _ in range(k)]
        accepted = 0
        while accepted < width and draws[accepted] < chance * behaviour.acceptance_falloff**accepted:
            accepted += 1
        burst = ([True] * accepted + [False])[: length - len(drafted)]
        drafted += burst
        bursts.append(((verify_s + width * draft_s) * _lognormal(jitter, sigma) * context.pace, len(burst)))
    return drafted, bursts


def _stretch_gaps(bursts: list[Burst], token_s: float, *, by_round: bool) -> list[Burst]:
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


def _lognormal(draw: random.Random, sigma: float) -> float:
    """Draw a factor whose median is 1."""
    return math.exp(draw.gauss(0, sigma)) if sigma else 1.0


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """A planned answer, seen by a backend that does not show everything."""

    context: AnswerContext
    planned: PlannedAnswer
    sight: Sight
    times: list[int]
    """When each of its tokens came; fewer than planned where it broke off."""
    at_once: bool
    """It came in one piece."""

    def answer(self, begun: int, ended: int, fault: str | None) -> Answer:
        """Return it as an answer from *begun* to *ended*."""
        memory, sight, planned = self.context.script.memory, self.sight, self.planned
        complete = len(self.times) == len(planned.tokens)
        counted = Sight.TOKEN_COUNT in sight
        active = round(memory.active + memory.growth * self.context.number) if Sight.MEMORY in sight else None
        return Answer(
            begun,
            ended,
            arrivals=self._arrivals_shown(),
            text=planned.text if complete else "".join(planned.tokens[: len(self.times)]),
            tool_calls=planned.calls if complete else (),
            finish=planned.finish if complete else None,
            prompt_tokens=self.context.known.prompt_tokens if counted else None,
            output_tokens=len(self.times) if counted and complete else None,
            rounds=self._rounds_shown() if complete else None,
            claims=self._claims_shown(),
            memory_active=active,
            memory_peak=active,
            fault=fault,
        )

    def _arrivals_shown(self) -> tuple[Arrival, ...]:
        planned, times, sight, arrivals, first = self.planned, self.times, self.sight, [], 0
        if self.at_once:
            return (Arrival(times[-1], len(times) if Sight.TOKEN_COUNT in sight else None),)
        by_token = self.context.script.arrivals == "token"
        counted, flagged, identified = (part in sight for part in (Sight.TOKEN_COUNT, Sight.ROUNDS, Sight.TOKEN_IDS))
        for size in (1,) * len(times) if by_token else (tokens for _, tokens in planned.bursts):
            last = first + size - 1
            if last >= len(times):
                break
            arrival = Arrival(
                times[last],
                size if counted else None,
                planned.drafted[first] if by_token and flagged else None,
                token_id(planned.tokens[first]) if by_token and identified else None,
            )
            arrivals.append(arrival)
            first += size
        return tuple(arrivals)

    def _rounds_shown(self) -> Rounds | None:
        rounds, counters = self.planned.rounds, self.context.script.counters
        if rounds is None or Sight.ROUNDS not in self.sight or counters == "silent":
            return None
        if counters != "honest":
            return Rounds(len(self.planned.tokens), 0, 0)
        return replace(rounds, proposals=self._proposals()) if Sight.REPLAY in self.sight else rounds

    def _proposals(self) -> str:
        """Return the drafted tokens of each round; those that were rejected are no tokens of the answer."""
        planned, request, rounds, begun = self.planned, self.context.request, [], 0
        shapes = round_shapes(planned.drafted, draft_tokens=self.context.draft_tokens, max_tokens=request.max_tokens)
        for width, length in shapes:
            written = [token_id(token) for token in planned.tokens[begun : begun + length]]
            kept = [token for token, drafted in zip(written, planned.drafted[begun:], strict=False) if drafted]
            rounds.append([*kept, *([REJECTED] * (width - len(kept)))])
            begun += length
        return ";".join(" ".join(map(str, proposal)) for proposal in rounds)

    def _claims_shown(self) -> Claims:
        rounds, claims, sight = self.planned.rounds, self.context.script.claims, self.sight
        read_s = self.planned.prefill if Sight.PROMPT_TIME in sight else None
        if rounds is None or (claims is None and Sight.CLAIMED_ROUNDS not in sight):
            return Claims(prompt_seconds=read_s)
        drafted, accepted = (claims.drafted, claims.accepted) if claims else (1.0, 1.0)
        numbers = round(rounds.drafted * drafted), round(rounds.accepted * accepted), rounds.rounds
        return Claims(*numbers, prompt_seconds=read_s)


def token_id(token: str) -> int:
    """Return the id of a token."""
    return crc32(token.encode())
