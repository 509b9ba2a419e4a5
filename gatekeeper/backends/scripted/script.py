"""The script of a scripted system: a JSON file that defines its behaviour.

Everything is optional; `{}` is a system of 50 tok/s whose draft proposes well. Durations and sizes take units.

    {
      "seed": 1,                    names the draw; the same script gives the same records
      "time": "virtual",            "virtual": ten minutes pass in milliseconds | "real": it waits
      "start": "2 s",               until a started system answers
      "sight": ["arrivals", "token_count", "text", "token_ids", "rounds", "memory", "plain",
                "logits", "prompt_time"],    "forced": the target can also read an answer in one pass; "replay":
                                    or round by round; "widths": or at two widths; "logprobs",
                                    "verified": plain and drafted answers have log-probabilities
      "arrivals": "token",          "token" | "round": one piece a round, as a coalescing server sends it
      "shares_process": true,
      "caches": false,              true: it has a prompt cache that can be switched on

      "prefill": "40 ms", "prefill_token": 0, "draft_prefill": 0, "draft_prefill_token": 0,
                                    until the first token; a prompt word is a token
      "first": "round",             the first token of a draft comes with its first "round", or from the "prefill"
      "token": "20 ms",             plain decoding
      "verify": "22 ms",            one verify pass; default: `token`; or {"2": "23 ms", "4": "30 ms"} by draft length
      "draft_token": {"heavy": "2 ms", "light": "1 ms"},               one proposed token; or one value for every draft
      "acceptance": {"heavy": 0.8, "light": 0.6},                      each proposed token's chance; or one value
      "acceptance_falloff": 0.97,   times this for each further position of a round
      "num_draft_tokens": 4,        where the setting names none
      "ratio": {"2": 1.2, "4": 1.5},    instead of verify and draft_token: `throughput_ratio` reads exactly this, by
                                        draft length; or one value
      "tokens": 64,                 length of an answer whose canary expects nothing
      "quality": {"plain": 1, "candidate": 0.95},     each canary's chance of a correct answer, drawn once
      "agreement": 1.0,             each canary's chance that the candidate's greedy tokens equal plain decoding's
      "gap": 5,                     by how much the target's best logit leads its second, at every position; a token
                                    that the draft changes at 0.125 or less is numerics
      "flips": 0.0,                 share of the tokens that passes of several tokens change, by numerics alone: the
                                    space before them is doubled, which changes no grade
      "warm": 1.0,                  each canary's chance that the candidate's answer is the same once a prompt it
                                    begins with was answered before with the cache on
      "reread": {"plain": 0.1, "candidate": 1.0},     share of the time until the first token that such a prompt takes
      "shortcut": false,            true: above temperature 0 it keeps a drafted token that is the likeliest one, with
                                    the chance of `acceptance`, instead of sampling: no longer lossless
      "wording": "right",           what the candidate writes: "right" | "other": other words | "twice": each word twice
      "engaged": true,              false: it silently decodes plainly, whatever draft is set
      "answers": {"list-001": "1. red"},              texts by canary id, where none can be constructed
      "canaries": {"tool-": {"acceptance": 0.9}},     overrides of anything from `prefill` to `engaged`, by prefix of
                                                      the canary's id (the longest wins) or by its category

      "noise": {"answer": 0.05, "autocorrelation": 0.6, "token": 0.1, "stall": "300 ms", "stall_share": 0.01},
                                    log-normal sigmas per answer (AR(1) from answer to answer) and per token; a stall
                                    falls before a random later token of that share of the answers
      "cold": {"start": "1 s", "pause": "80 ms", "after": "1 s"},   added to the first token of the first answer after
                                    a start, and of one that begins so long after the last
      "modes": [{"share": 0.3, "slower": 1.4, "arm": "plain"}],        that share of the answers is slower; with "file":
                                    as long as this file is beside the script
      "drift": [{"of": "time", "by": 0.10, "over": "600 s", "after": "0 s", "arm": "both"}],
                                    "time" | "acceptance": grows by this share, linearly, then stays
      "memory": {"active": "1 GB", "growth": "0 MB",  growth per answer, of what the allocator reports
                 "leak": "0 kB/s", "step": "64 MB",   what a host sees the process hold grows from its start, and shows
                                                      only in whole steps
                 "noise": "20 MB", "noise_kept": 0.9,                  normal, AR(1) from reading to reading
                 "sawtooth": "300 MB", "sawtooth_every": "60 s"},      fills up evenly, then is given back
      "batching": {"plain": 0.1, "candidate": 1.0,    what each further concurrent stream adds to every time,
                   "draft_token": 0.05},              and for each token of the draft length
      "slower": [{"axis": "temperature", "above": 0.7, "by": 2.0, "arm": "candidate"}],     every time of an arm, where
                                    the request's temperature, context (words), max_tokens or concurrency is above
      "counters": "honest",         "honest" | "silent": none | "zero": they claim that nothing was proposed
      "replays": {"arm": "candidate", "faster": 3.0, "whole": false},  every answer of an arm to a canary but its first
                                    comes so much faster, from a cache; whole: in one piece
      "claims": {"drafted": 1.0, "accepted": 1.2},    the server's claims, as a multiple of the truth
      "faults": [{"answer": 5, "fault": "die"}, {"every": 50, "arm": "candidate", "fault": "hang"},
                 {"canary": "json-003", "fault": "garble"}, {"above_streams": 4, "fault": "garble"},
                 {"warm": true, "fault": "empty"}]              only where a beginning of the prompt is in the cache
    }

Faults count every answer of the backend from 1: "die" and "hang" end the system, "garble" and "truncate" spoil one
answer, "short" cuts an answer at half its length as if it had reached its limit, "empty" is a complete answer without
content.
"""

import random
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import json_object
from gatekeeper.core.system.files import MOST_BYTES, read_input
from gatekeeper.core.toml_file import ByteRate, Bytes, InputTable, Seconds

Arm = Literal["plain", "candidate"]
Share = float
"""A share of one, or a chance."""


class Noise(InputTable):
    """Sigmas of the logarithm of time, and stalls."""

    answer: float = Field(default=0.0, ge=0)
    autocorrelation: float = Field(default=0.0, ge=0, lt=1)
    token: float = Field(default=0.0, ge=0)
    stall: Seconds = Field(default=0.0, ge=0)
    stall_share: Share = Field(default=0.0, ge=0, le=1)


class Cold(InputTable):
    """What a first token takes longer after a start, and after a pause."""

    start: Seconds = Field(default=0.0, ge=0)
    pause: Seconds = Field(default=0.0, ge=0)
    after: Seconds = Field(default=1.0, ge=0)


class Mode(InputTable):
    """A share of the answers that is slower than the others."""

    share: Share = Field(ge=0, le=1)
    slower: float = Field(gt=0)
    arm: Literal["both", "plain", "candidate"] = "both"
    file: str | None = None
    """It lasts as long as this file is beside the script, as a program that comes and goes."""


class Drift(InputTable):
    """A slow change of time or acceptance."""

    of: Literal["time", "acceptance"] = "time"
    by: float
    over: Seconds = Field(default=600.0, gt=0)
    after: Seconds = Field(default=0.0, ge=0)
    arm: Literal["both", "plain", "candidate"] = "both"
    since: Literal["run", "start"] = "run"
    """Start of the backend, or of the process that answers, which warms up; acceptance always drifts with the run."""

    def factor(self, seconds: float) -> float:
        """Return what the drifting value is multiplied with, *seconds* after it began."""
        return 1 + self.by * min(1.0, max(0.0, seconds - self.after) / self.over)


class Memory(InputTable):
    """What the allocator reports, and what a host sees the process hold."""

    active: Bytes = Field(default=1e9, ge=0)
    growth: Bytes = 0.0
    leak: ByteRate = 0.0
    step: Bytes = Field(default=0.0, ge=0)
    noise: Bytes = Field(default=0.0, ge=0)
    noise_kept: float = Field(default=0.0, ge=0, lt=1)
    sawtooth: Bytes = Field(default=0.0, ge=0)
    sawtooth_every: Seconds = Field(default=60.0, gt=0)


class Batching(InputTable):
    """What each further concurrent stream adds to every time, as a share."""

    plain: float = Field(default=0.0, ge=0)
    candidate: float = Field(default=0.0, ge=0)
    draft_token: float = Field(default=0.0, ge=0)


class Slower(InputTable):
    """What a request slows down that lies above a value of an axis."""

    axis: Literal["temperature", "context", "max_tokens", "concurrency"]
    above: float = Field(ge=0)
    by: float = Field(gt=0)
    arm: Literal["both", "plain", "candidate"] = "candidate"


class Replays(InputTable):
    """A cache of whole answers, in front of one arm or of both."""

    arm: Literal["both", "plain", "candidate"] = "candidate"
    faster: float = Field(default=3.0, gt=0)
    whole: bool = False


class Claimed(InputTable):
    """Multiples of the truth."""

    drafted: float = Field(default=1.0, ge=0)
    accepted: float = Field(default=1.0, ge=0)


class Fault(InputTable):
    """One kind of failure and where it strikes; what is left out matches everything."""

    fault: Literal["die", "hang", "garble", "truncate", "short", "empty"]
    answer: int | None = Field(default=None, ge=1)
    every: int | None = Field(default=None, ge=1)
    arm: Literal["both", "plain", "candidate"] = "both"
    canary: str = ""
    above_streams: int = Field(default=0, ge=0)
    """It strikes where more requests than these are in flight."""

    warm: bool = False
    """It strikes only where a beginning of the prompt is in the cache."""

    def strikes(self, number: int, arm: Arm, canary: str, streams: int, *, is_warm: bool) -> bool:
        """Tell whether it strikes answer *number*, one of *streams* at once."""
        return (
            (self.answer is None or number == self.answer)
            and (self.every is None or number % self.every == 0)
            and self.arm in {"both", arm}
            and canary.startswith(self.canary)
            and streams > self.above_streams
            and (is_warm or not self.warm)
        )


class Quality(InputTable):
    """How often each arm is right."""

    plain: Share = Field(default=1.0, ge=0, le=1)
    candidate: Share = Field(default=1.0, ge=0, le=1)


class Reread(InputTable):
    """Which share of a prompt's time each arm needs where a beginning of it is in the cache."""

    plain: Share = Field(default=1.0, ge=0, le=1)
    candidate: Share = Field(default=1.0, ge=0, le=1)


class Behaviour(InputTable):
    """How one answer is given; a script has one behaviour for all canaries and overrides for some."""

    prefill: Seconds = Field(default=0.04, ge=0)
    prefill_token: Seconds = Field(default=0.0, ge=0)
    draft_prefill: Seconds = Field(default=0.0, ge=0)
    draft_prefill_token: Seconds = Field(default=0.0, ge=0)
    first: Literal["round", "prefill"] = "round"
    token: Seconds = Field(default=0.02, gt=0)
    verify: Seconds | dict[str, Seconds] | None = None
    draft_token: Seconds | dict[str, Seconds] = 0.002
    acceptance: Share | dict[str, Share] = 0.7
    acceptance_falloff: float = Field(default=1.0, ge=0, le=1)
    num_draft_tokens: int = Field(default=4, ge=0)
    ratio: float | dict[str, float] | None = None
    tokens: int = Field(default=64, ge=1)
    quality: Quality = Quality()
    agreement: Share = Field(default=1.0, ge=0, le=1)
    gap: float | None = Field(default=5.0, ge=0)
    flips: Share = Field(default=0.0, ge=0, le=1)
    warm: Share = Field(default=1.0, ge=0, le=1)
    reread: Reread = Reread()
    shortcut: bool = False
    wording: Literal["right", "other", "twice"] = "right"
    engaged: bool = True

    @field_validator("acceptance")
    @classmethod
    def _check_chances(cls, written: Share | dict[str, Share]) -> Share | dict[str, Share]:
        for chance in written.values() if isinstance(written, dict) else (written,):
            if not 0 <= chance <= 1:
                raise ValueError(f"{chance} is not a probability; allowed: 0 to 1")
        return written

    @field_validator("verify")
    @classmethod
    def _check_times(cls, written: float | dict[str, float] | None) -> float | dict[str, float] | None:
        for seconds in written.values() if isinstance(written, dict) else (written,):
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{seconds:g} s is no time; it must be greater than 0")
        return written

    @field_validator("ratio")
    @classmethod
    def _check_ratios(cls, written: float | dict[str, float] | None) -> float | dict[str, float] | None:
        for ratio in written.values() if isinstance(written, dict) else (written,):
            if ratio is not None and ratio <= 0:
                raise ValueError(f"{ratio} is not a ratio; it must be greater than 0")
        return written

    def verify_seconds(self, draft_tokens: int) -> float:
        """Return the time of one verify pass at this draft length."""
        return self.token if self.verify is None else float(_value_for(self.verify, str(draft_tokens), self.token))

    def draft_seconds(self, draft: str) -> float:
        """Return the time *draft* takes to propose one token."""
        return float(_value_for(self.draft_token, draft, 0.002))

    def chance(self, draft: str) -> float:
        """Return the chance that a token of *draft* is accepted, before falloff and drift."""
        return float(_value_for(self.acceptance, draft, 0.7))

    def exact_ratio(self, draft_tokens: int) -> float | None:
        """Return the decode ratio that the script sets at this draft length, None where the costs decide."""
        return None if self.ratio is None else _value_for(self.ratio, str(draft_tokens), 1.0)


def _value_for(written: float | dict[str, float], name: str, otherwise: float) -> float:
    return written.get(name, otherwise) if isinstance(written, dict) else written


class Script(Behaviour):
    """The whole file."""

    seed: int = Field(default=1, ge=0)
    time: Literal["virtual", "real"] = "virtual"
    start: Seconds = Field(default=0.0, ge=0)
    sight: tuple[str, ...] = (
        "arrivals", "token_count", "text", "token_ids", "rounds", "memory", "plain", "logits", "prompt_time",
    )  # fmt: skip
    arrivals: Literal["token", "round"] = "token"
    shares_process: bool = True
    caches: bool = False
    answers: dict[str, str] = Field(default={})
    canaries: dict[str, dict[str, object]] = Field(default={})
    noise: Noise = Noise()
    cold: Cold = Cold()
    modes: tuple[Mode, ...] = ()
    drift: tuple[Drift, ...] = ()
    memory: Memory = Memory()
    batching: Batching = Batching()
    slower: tuple[Slower, ...] = ()
    counters: Literal["honest", "silent", "zero"] = "honest"
    replays: Replays | None = None
    claims: Claimed | None = None
    faults: tuple[Fault, ...] = ()

    @field_validator("sight")
    @classmethod
    def _check_sight(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        allowed = [member.name.lower() for member in Sight if member.name]
        for name in names:
            if name not in allowed:
                raise ValueError(f"unknown sight '{name}'; allowed: {', '.join(allowed)}")
        return names

    @field_validator("canaries")
    @classmethod
    def _overrides(cls, written: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        for prefix, overrides in written.items():
            try:
                Behaviour.model_validate(overrides)
            except ValidationError as error:
                raise ValueError(f"'{prefix}': {complaints(error)}") from error
        return written

    def draw(self, kind: str, key: object) -> random.Random:
        """Return the generator of one kind of draw: the same script and key draw the same."""
        return random.Random(f"{self.seed}|{kind}|{key}")

    def behaviour(self, canary: Canary) -> Behaviour:
        """Return how *canary* is answered: the longest matching prefix wins over its category, that over the rest."""
        defaults = {
            name: value for name, value in self.model_dump(exclude_unset=True).items() if name in Behaviour.model_fields
        }
        merged = defaults | self.canaries.get(canary.category or "", {})
        prefixes = [prefix for prefix in self.canaries if canary.id.startswith(prefix)]
        if prefixes:
            merged |= self.canaries[max(prefixes, key=len)]
        return Behaviour.model_validate(merged)


def complaints(error: ValidationError) -> str:
    """Write pydantic's errors as `where: what`, joined."""
    parts = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "script"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            message = f"unknown key; {did_you_mean(where, Script.model_fields)}"
        parts.append(f"{where}: {message}")
    return "; ".join(parts)


def read_script(path: Path) -> Script:
    """Read a script; raise InputError with the file, the place and what is wrong."""
    try:
        return Script.model_validate(json_object(read_input(path, MOST_BYTES)))
    except OSError as error:
        hint = "`script` is a path relative to the SLO file"
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error
    except ValueError as error:
        reason = complaints(error) if isinstance(error, ValidationError) else str(error)
        hint = "gatekeeper/backends/scripted/script.py describes its keys; `{}` is a valid script"
        raise InputError(f"{path}: not a valid script: {reason}", hint=hint) from error
