"""The scripted backend: deterministic answers at times that a script sets, for tests, demos and simulations.

Its target reads tokens again as the script defines its logits.
"""

import hashlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.http.chat_request import PLAIN, resolve
from gatekeeper.backends.scripted.script import Arm, Script, read_script
from gatekeeper.backends.scripted.scripted_answer import (
    EMIT_NS,
    AnswerContext,
    KnownCanary,
    ShownAnswer,
    flipped_places,
    plan_answer,
    token_id,
)
from gatekeeper.core.backend_registry import SCRIPTED
from gatekeeper.core.canary import OPTIONS, Canary
from gatekeeper.core.clock import Clock, SystemClock, VirtualClock
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.interfaces import DecodeRequest, ForcedPass, ReplayedRounds, RoundPasses, RunningSystem, TwoWidths
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import TIMEOUT, Answer, Likely, Parting, Scored, Setting
from gatekeeper.core.slo.subject_table import Subject

FACTS = BackendFacts(name=SCRIPTED, one_forward_a_token=True)
Messages = tuple[dict[str, Any], ...]

NUMERICS = 0.125
"""At a smaller gap, a token that the draft changes is the choice of a pass of several tokens, and no defect."""
FLIPPED = 0.05
"""The gap where numerics change a token; the pass that reads a prompt moves each gap by twice as much."""
LOGPROB = -0.1
"""The log-probability of each likeliest token."""
DRAWN = ((-0.1, -0.1, -0.189, 0.231), (-2.352, -0.1, -0.189, 0.231))
"""Scores of a sampled token that is the best of two, with a chance of 0.905, and of one that is the other."""


def open_scripted(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "ScriptedBackend":
    """Return the backend of the script that *subject* names; models and logs are not needed."""
    del models, logs
    if subject.script is None:
        raise InputError("the scripted backend needs a script", hint='add `script = "truth.json"` to [subject]')
    path = base / subject.script
    return ScriptedBackend(
        read_script(path),
        timeout=subject.timeout,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        folder=path.parent,
    )


class ScriptedBackend:
    """Starts scripted systems, which share its clock, its count of answers and its noise."""

    name = SCRIPTED
    streams = 64
    restart_knobs: tuple[str, ...] = ("draft",)
    knobs = frozenset(
        {"draft", "num_draft_tokens", "block_size", "temperature", "max_tokens", "thinking", "concurrency"}
    )
    options = frozenset(OPTIONS)
    uncached = True
    draft_hint = "let the script's draft propose something"

    def __init__(self, script: Script, *, timeout: float = 120.0, digest: str = "", folder: Path = Path()) -> None:
        self.script, self.timeout, self._digest, self.folder = script, timeout, digest, folder
        self.sight = Sight.COLD  # it has no prompt cache, except where it is started with one
        for name in script.sight:
            self.sight |= Sight[name.upper()]
        self.shares_process, self.caches, self.seed = script.shares_process, script.caches, script.seed
        self.realtime = script.time == "real"
        self.clock: Clock = SystemClock() if self.realtime else VirtualClock()
        self._opened_ns = self.clock.now_ns()
        self.lock = threading.RLock()
        """Virtual answers are computed one at a time, also for several threads."""
        self._answers = 0
        self._noise = 0.0
        self._answered: set[tuple[str, str]] = set()
        """Arm and canary of every answer so far: what a cache of answers would keep, beyond any one system's life."""
        self._lanes: list[int] = []
        """When each of several concurrent virtual streams is free again."""
        self._known: dict[int, KnownCanary] = {}
        """Canaries by their identity; each is kept, so that no other one has the same."""

    def residence(self, setting: Setting) -> str:
        """Return the draft, or `plain`."""
        return str(dict(setting).get("draft") or PLAIN)

    def start(self, setting: Setting, *, cache: bool = False) -> "ScriptedSystem":
        """Return a fresh system after the script's start time."""
        self.clock.sleep(self.script.start)
        return ScriptedSystem(self, self.residence(setting), cache=cache)

    def versions(self) -> Mapping[str, str]:
        """Return the script's checksum, which decides every answer."""
        return {"scripted": "1", "script": self._digest or hashlib.sha256(repr(self.script).encode()).hexdigest()}

    def next_number(self) -> tuple[int, float]:
        """Return the number of the next answer, from 1, and the logarithm of its noise."""
        with self.lock:
            self._answers += 1
            correlation = self.script.noise.autocorrelation if self._answers > 1 else 0.0
            fresh = self.script.draw("noise", self._answers).gauss(0, self.script.noise.answer)
            self._noise = correlation * self._noise + math.sqrt(1 - correlation**2) * fresh
            return self._answers, self._noise

    def context(self, request: DecodeRequest, **varying: Any) -> AnswerContext:
        """Return what the answer to *request* depends on; *varying* is what differs from answer to answer."""
        known, knobs = self.interpret_canary(request.canary), dict(request.setting)
        length = knobs.get("num_draft_tokens") or knobs.get("block_size") or known.behaviour.num_draft_tokens
        return AnswerContext(self.script, known, resolve(request), draft_tokens=length, **varying)

    def interpret_canary(self, canary: Canary) -> KnownCanary:
        """Return what the script makes of *canary*."""
        if (known := self._known.get(id(canary))) is None:
            known = self._known[id(canary)] = KnownCanary(canary, self.script)
        return known

    def replays(self, arm: Arm, canary: str) -> bool:
        """Tell whether an answer comes from the script's cache of answers; keep it there."""
        replays, again = self.script.replays, (arm, canary) in self._answered
        self._answered.add((arm, canary))
        return again and replays is not None and replays.arm in {"both", arm}

    def seconds(self, now_ns: int) -> float:
        """Return how long the backend has been open."""
        return (now_ns - self._opened_ns) / 1e9

    def begin(self, streams: int) -> int:
        """Return when the next answer begins: now, or without concurrency when all concurrent ones have ended."""
        if streams == 1 and self._lanes and not self.realtime:
            self.clock.sleep((max(self._lanes) - self.clock.now_ns()) / 1e9)
            self._lanes = []
        return self.clock.now_ns()

    def end(self, streams: int, ended_ns: int) -> None:
        """Advance virtual time to the answer's end or, with several streams, until the first of them is free."""
        if streams > 1:
            now = self.clock.now_ns()
            lanes = sorted([now] * (streams - len(self._lanes)) + self._lanes)[-streams:]
            self._lanes = [*lanes[1:], ended_ns]
            ended_ns = min(self._lanes)
        self.clock.sleep((ended_ns - self.clock.now_ns()) / 1e9)


class ScriptedTarget:
    """Reads tokens again on the backend's clock, as the script defines the target's logits."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend

    def logit_gap(self, request: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return the script's gap, or that of a token which numerics change."""
        gaps = _Gaps(self._plain_context(request))
        return gaps.at(len(tokens)) if Sight.LOGITS in self._backend.sight else None

    def force(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> ForcedPass | None:
        """Compare *tokens* with plain decoding's; reading them takes as long as reading a prompt."""
        del width
        if Sight.FORCED not in self._backend.sight:
            return None
        plain = self._read(request, len(tokens), passes=0)
        return ForcedPass(tuple(self._partings(request, tokens)), len(tokens) == len(plain))

    def replay(
        self, request: DecodeRequest, tokens: tuple[int, ...], rounds: RoundPasses, *, twice: bool = False
    ) -> ReplayedRounds | None:
        """Compare *tokens* with plain decoding's; one that differs at a small gap is its choice in a wider pass."""
        if Sight.REPLAY not in self._backend.sight:
            return None
        self._read(request, 0, passes=len(rounds) * (1 + twice))
        steady, nll = True if twice else None, -LOGPROB * len(tokens)
        if request.sampling.temperature > 0:
            return ReplayedRounds((), steady, nll, tuple(DRAWN[place % 21 in {0, 10}] for place in range(len(tokens))))
        parted = (place for place in self._partings(request, tokens) if place.gap is None or place.gap > NUMERICS)
        return ReplayedRounds(tuple(parted), steady, nll)

    def read_widths(self, request: DecodeRequest, tokens: tuple[int, ...], width: int) -> TwoWidths | None:
        """Return the script's gap at both widths."""
        if Sight.WIDTHS not in self._backend.sight:
            return None
        self._read(request, 0, passes=len(tokens) + len(tokens) // width)
        gaps = (self._plain_context(request).behaviour.gap or 0.0,) * len(tokens)
        return TwoWidths(gaps, gaps, NUMERICS / 2, -LOGPROB * len(tokens))

    def request_scores(self, request: DecodeRequest) -> Scored | None:
        """Return an answer whose tokens lead by the script's gap; drafted ones only where they are verified ones."""
        if not (Sight.LOGPROBS | Sight.VERIFIED) & self._backend.sight:
            return None
        context, gaps = (
            self._backend.context(request, number=0, pace=1.0, seconds=0.0),
            _Gaps(self._plain_context(request)),
        )
        planned, plain = plan_answer(context), gaps.tokens
        drafted = plan_answer(self._context_with_draft(request)).tokens
        self._backend.clock.sleep(sum(gap for gap, _ in planned.bursts))
        told = context.arm == "plain" or Sight.VERIFIED in self._backend.sight
        likeliest = [
            _likely(gaps.at(place), token, plain[place : place + 1], drafted[place : place + 1]) if told else ()
            for place, token in enumerate(planned.tokens)
        ]
        return Scored(
            "", "", "", text=planned.text, tokens=planned.tokens, likeliest=tuple(likeliest),
            logprobs=tuple(next((one.logprob for one in likely if one.name == token), 0.0)
                           for token, likely in zip(planned.tokens, likeliest, strict=True)),
        )  # fmt: skip

    def continue_answer(self, request: DecodeRequest, beginning: Scored, tokens: int) -> Scored | None:
        """Return plain decoding's tokens at the same places, each of which leads by the script's gap."""
        read, gaps = len(beginning.tokens), _Gaps(self._plain_context(request))
        plain = self._read(request, read, passes=tokens - 1)[read : read + tokens]
        drafted = plan_answer(self._context_with_draft(request)).tokens[read:]
        likeliest = []
        for place, token in enumerate(plain):
            gap = (gaps.at(read + place) or 0.0) - (gaps.moved if place == 0 else 0.0)
            names = (token, next(iter(drafted[place : place + 1]), ""))
            first, second = names if gap >= 0 else names[::-1]
            likeliest.append(_likely(abs(gap), first, (first,), ("" if second == first else second,)))
        tokens_read = tuple(likely[0].name for likely in likeliest)
        return Scored("", "", "", tokens=tokens_read, logprobs=(LOGPROB,) * len(plain), likeliest=tuple(likeliest))

    def _plain_context(self, request: DecodeRequest) -> AnswerContext:
        knobs = tuple((knob, None if knob == "draft" else value) for knob, value in request.setting)
        return self._backend.context(replace(request, setting=knobs), number=0, pace=1.0, seconds=0.0)

    def _context_with_draft(self, request: DecodeRequest) -> AnswerContext:
        knobs = {**dict(request.setting), "draft": request.draft or "draft"}
        return self._backend.context(
            replace(request, setting=tuple(sorted(knobs.items()))), number=0, pace=1.0, seconds=0.0
        )

    def _read(self, request: DecodeRequest, tokens: int, *, passes: int) -> tuple[str, ...]:
        """Take the time of a prompt, of *tokens* after it, and of *passes*; return plain decoding's tokens."""
        context = self._plain_context(request)
        behaviour = context.behaviour
        read_s = behaviour.prefill_token * (context.known.prompt_tokens + tokens)
        self._backend.clock.sleep(behaviour.prefill + read_s + passes * behaviour.token)
        return plan_answer(context).tokens

    def _partings(self, request: DecodeRequest, tokens: tuple[int, ...]) -> Iterator[Parting]:
        gaps = _Gaps(self._plain_context(request))
        for index, (token, expected) in enumerate(zip(tokens, map(token_id, gaps.tokens), strict=False)):
            if token != expected:
                yield Parting(index, expected, gaps.at(index))


class _Gaps:
    """How far the target's best logit leads its second while it decodes plainly."""

    def __init__(self, plain: AnswerContext) -> None:
        self.tokens = plan_answer(plain).tokens
        self._gap, self._flipped = plain.behaviour.gap, flipped_places(plain, self.tokens)
        self.moved = 2 * FLIPPED if plain.behaviour.flips else 0.0
        """How far reading a prompt moves them."""

    def at(self, place: int) -> float | None:
        """Return the gap at a place."""
        return FLIPPED if place in self._flipped else self._gap


def _likely(gap: float | None, token: str, plain: tuple[str, ...], drafted: tuple[str, ...]) -> tuple[Likely, ...]:
    """Return the likeliest tokens of a place: the written one and another; a large gap shows a changed token wrong."""
    gap = gap or 0.0
    first = plain[0] if plain and gap > NUMERICS else token
    second = next((other for other in (*plain, *drafted) if other != first), "")
    return (Likely(first, LOGPROB), Likely(second, LOGPROB - gap))


class ScriptedSystem(ScriptedTarget, RunningSystem):
    """A simulated system that behaves as its backend's script defines."""

    def __init__(self, backend: ScriptedBackend, residence: str, *, cache: bool = False) -> None:
        super().__init__(backend)
        self._script, self._residence = backend.script, residence
        self._cached: list[Messages] | None = [] if cache else None
        """The prompts answered so far, where a prompt cache keeps them."""
        self._alive = True
        self._started_s = backend.seconds(backend.clock.now_ns())
        self._ended_ns: int | None = None
        """When its last answer ended."""

    def answer(self, request: DecodeRequest) -> Answer:
        """Answer in virtual or real time; a fault of the script is the answer's fault."""
        if request.draft is not None and request.draft != self._residence:
            message = f"the system started for '{self._residence}' got a request with the draft '{request.draft}'"
            raise GatekeeperError(message, hint="this is a bug; please report it")
        if self._backend.realtime:
            return self._answer(request)
        with self._backend.lock:
            return self._answer(request)

    def pids(self) -> tuple[int, ...]:
        """Return none: no process answers here."""
        return ()

    def alive(self) -> bool:
        """Tell whether it runs: no fault and no close has ended it."""
        return self._alive

    def close(self) -> None:
        """End it."""
        self._alive = False

    def _answer(self, request: DecodeRequest) -> Answer:
        backend, script, canary, knobs = self._backend, self._script, request.canary, dict(request.setting)
        streams = int(knobs.get("concurrency") or 1)
        begun = backend.begin(streams)
        if not self._alive:
            return Answer(begun, begun, fault="not running: it ended before this request")
        number, noise = backend.next_number()
        arm: Arm = "plain" if request.draft is None else "candidate"
        replayed = script.replays if backend.replays(arm, canary.id) else None
        is_warm = self._is_warm(request)
        struck = (
            failure.fault
            for failure in script.faults
            if failure.strikes(number, arm, canary.id, streams, is_warm=is_warm)
        )
        fault = next(struck, None)
        context = backend.context(
            request,
            number=number,
            pace=math.exp(noise)
            * self._pace(arm, number, begun, streams)
            * self._slower(request, arm, streams)
            / (replayed.faster if replayed else 1.0),
            seconds=backend.seconds(begun),
            short=fault == "short",
            is_warm=is_warm,
        )
        context = replace(context, pace=context.pace * self._draft_pace(context, streams))
        planned = plan_answer(context)
        (first, tokens), *later = planned.bursts
        bursts = ((first + self._cold(begun), tokens), *later)
        if fault in {"die", "hang", "truncate"}:
            bursts = bursts[: max(1, len(bursts) // 2)]
        times = self._token_times(begun, bursts)
        ended = times[-1] + (round(backend.timeout * 1e9) if fault == "hang" else 0)
        if backend.realtime:
            backend.clock.sleep((ended - backend.clock.now_ns()) / 1e9)
            ended = max(ended, backend.clock.now_ns())
        else:
            backend.end(streams, ended)
        self._alive, self._ended_ns = fault not in {"die", "hang"}, ended
        at_once = replayed is not None and replayed.whole
        answer = ShownAnswer(context, planned, backend.sight, times, at_once).answer(begun, ended, self._words(fault))
        return replace(answer, text="", tool_calls=(), arrivals=()) if fault == "empty" else answer

    def _words(self, fault: str | None) -> str | None:
        """Return the fault of an answer, in the words of a record."""
        return {
            "die": "died: signal 9",
            "hang": f"{TIMEOUT}: no token for {self._backend.timeout:g} s",
            "garble": "garbled stream: a chunk is not JSON",
            "truncate": "cut off: the stream ended before the answer was complete",
        }.get(fault or "")

    def _cold(self, begun: int) -> float:
        """Return what the first token of an answer that begins now takes longer."""
        cold = self._script.cold
        if self._ended_ns is None:
            return cold.start
        return cold.pause if begun - self._ended_ns > cold.after * 1e9 else 0.0

    def _is_warm(self, request: DecodeRequest) -> bool:
        """Return whether a prompt that this one begins with was answered before; add this one to the cache."""
        if self._cached is None:
            return False
        messages = request.canary.messages
        is_warm = any(messages[: len(prompt)] == prompt for prompt in self._cached)
        self._cached.append(messages)
        return is_warm

    def _token_times(self, begun: int, bursts: tuple[tuple[float, int], ...]) -> list[int]:
        """Return when each token comes; in real time, wait for it."""
        clock, times, due = self._backend.clock, list[int](), begun
        for gap, tokens in bursts:
            due += round(gap * 1e9)
            if self._backend.realtime:
                clock.sleep((due - clock.now_ns()) / 1e9)
                due = max(due, clock.now_ns())
            times += range(due, due + tokens * EMIT_NS, EMIT_NS)
        return times

    def _pace(self, arm: Arm, number: int, begun: int, streams: int) -> float:
        """Return what every time of answer *number* is multiplied with, noise left out."""
        pace = 1.0
        if self._script.modes:
            draw = self._script.draw("mode", number)
            for mode in self._script.modes:
                slow = draw.random() < mode.share and (mode.file is None or (self._backend.folder / mode.file).exists())
                pace *= mode.slower if slow and mode.arm in {"both", arm} else 1.0
        for drift in self._script.drift:
            if drift.of == "time" and drift.arm in {"both", arm}:
                since_s = self._started_s if drift.since == "start" else 0.0
                pace *= drift.factor(self._backend.seconds(begun) - since_s)
        return pace * float(1 + getattr(self._script.batching, arm) * (streams - 1))

    def _slower(self, request: DecodeRequest, arm: Arm, streams: int) -> float:
        """Return what every time of an arm is multiplied with, by where the request lies on each axis."""
        where = {
            "temperature": request.sampling.temperature,
            "context": self._backend.interpret_canary(request.canary).prompt_tokens,
            "max_tokens": request.sampling.max_tokens,
            "concurrency": streams,
        }
        rules = (rule for rule in self._script.slower if rule.arm in {"both", arm} and where[rule.axis] > rule.above)
        return math.prod(rule.by for rule in rules)

    def _draft_pace(self, context: AnswerContext, streams: int) -> float:
        """Return what the length of the draft multiplies every time with, besides."""
        width = context.draft_tokens if context.arm == "candidate" else 0
        return 1 + self._script.batching.draft_token * width * (streams - 1)


def readings(script: Script, seconds: Sequence[float], process: str = "") -> list[float]:
    """Return the bytes held at each of *seconds* since the process began, for samples at even intervals.

    *process* seeds the noise: two processes of one script have the same leak and different noise.
    """
    memory, noise, footprints = script.memory, 0.0, []
    begun = script.draw("sawtooth", process).random()
    for number, second in enumerate(seconds):
        correlation = memory.noise_kept if number else 0.0
        fresh = script.draw("footprint", f"{process}|{number}").gauss(0, memory.noise)
        noise = correlation * noise + math.sqrt(1 - correlation**2) * fresh
        leaked = memory.leak * second
        if memory.step:
            leaked = memory.step * math.floor(leaked / memory.step)
        tooth = memory.sawtooth * math.modf(begun + second / memory.sawtooth_every)[0]
        footprints.append(max(0.0, memory.active + leaked + tooth + noise))
    return footprints
