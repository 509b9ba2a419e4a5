"""The worker protocol: JSON lines as gatekeeper writes and reads them, and what it does not believe."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.backends.http.chat import ResolvedRequest
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer, Arrival, Rounds, Setting
from gatekeeper.core.slo import CHOSEN, CONDITIONS

VERSION = 1
LINE_BYTES = 8 << 20
"""The longest line of a worker: a hundred thousand arrivals need half of it."""
MANUAL = "see METHODOLOGY.md, 'The worker protocol'"

SEES = {
    "arrivals": Sight.ARRIVALS,
    "token_count": Sight.TOKEN_COUNT,
    "text": Sight.TEXT,
    "token_ids": Sight.TOKEN_IDS,
    "rounds": Sight.ROUNDS,
    "plain": Sight.PLAIN,
    "logits": Sight.LOGITS,
    "cold": Sight.COLD,
}
"""What a worker may say it sees; its memory is ours to measure, whatever it says."""
KNOBS = frozenset({*CHOSEN, *CONDITIONS} - {"concurrency"})
"""A worker answers one ask at a time."""
FINISHES = ("stop", "length", "tool_calls")
_EXCERPT = 80


class WorkerFault(Exception):  # noqa: N818  what the subject did, not an error of ours
    """What a worker did wrong, in words; it becomes the fault of the answer that was asked for."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker's greeting."""

    name: str
    sight: Sight
    knobs: frozenset[str] = frozenset()
    shares_process: bool = False
    versions: dict[str, str] = field(default_factory=dict)


def read_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object on *line*; raise WorkerFault for anything else, NaN and infinities included."""
    try:
        said = json.loads(line, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise WorkerFault(f"garbage on stdout ({error}): {_excerpt(line)}") from error
    if not isinstance(said, dict):
        raise WorkerFault(f"garbage on stdout (no JSON object): {_excerpt(line)}")
    return said


def hello_from(said: Mapping[str, Any], spoken: str) -> Hello:
    """Return the greeting a worker *said*; raise InputError naming its command line where it is none."""
    version = said.get("gatekeeper")
    if type(version) is not int:
        raise InputError(f'`{spoken}` did not greet: no "gatekeeper" in its first line', hint=MANUAL)
    if version != VERSION:
        message = f"`{spoken}` speaks worker protocol {version}, this gatekeeper speaks {VERSION}"
        raise InputError(message, hint="take a worker and a gatekeeper of the same time")
    name, versions = said.get("name"), said.get("versions", {})
    shares = said.get("shares_process", False)
    if not isinstance(name, str) or not name:
        raise InputError(f"`{spoken}` greets without a name", hint=MANUAL)
    if type(shares) is not bool:
        raise InputError(f"`{spoken}` greets with shares_process = {shares!r}", hint="true or false")
    if not isinstance(versions, dict):
        raise InputError(f"`{spoken}` greets with versions that are no object", hint=MANUAL)
    sight = Sight.NOTHING
    for word in _words(said, "sees", SEES, spoken):
        sight |= SEES[word]
    if shares and Sight.PLAIN not in sight:
        message = f'`{spoken}` shares its process with plain decoding, and does not list "plain" in sees'
        raise InputError(message, hint=MANUAL)
    told = {str(package): str(number) for package, number in versions.items() if number}
    return Hello(name, sight, frozenset(_words(said, "knobs", KNOBS, spoken)), shares, told)


def _words(said: Mapping[str, Any], field_name: str, allowed: Any, spoken: str) -> list[str]:
    words = said.get(field_name, [])
    if not isinstance(words, list):
        raise InputError(f"`{spoken}` greets with {field_name} that is no list", hint=MANUAL)
    for word in words:
        if word not in list(allowed):
            hint = did_you_mean(str(word), allowed)
            raise InputError(f"`{spoken}` greets with {field_name}: unknown word {word!r}", hint=hint)
    return words


def ask_line(number: int, asked: ResolvedRequest, setting: Setting, gap_after: tuple[int, ...] | None = None) -> bytes:
    """Return the line that asks for one answer or, with *gap_after*, for the target's logits after those tokens."""
    chosen = {knob: value for knob, value in setting if knob in CHOSEN and value is not None}
    ask: dict[str, Any] = {
        "ask": number,
        "messages": asked.messages,
        "tools": asked.tools,
        "setting": chosen if asked.draft is not None else {"draft": None},
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        "seed": asked.seed,
        "thinking": asked.thinking,
    }
    if gap_after is not None:
        ask["gap_after"] = gap_after
    return json.dumps(ask).encode() + b"\n"


def is_number(said: object, number: int) -> bool:
    """Tell whether *said* is that ask's number; JSON's true is not 1."""
    return type(said) is int and said == number


def answer_from(said: Mapping[str, Any], *, asked_ns: int, received_ns: int, drafting: bool) -> Answer:
    """Return the answer on a worker's line; raise WorkerFault where it contradicts itself or our own clock."""
    fault = said.get("fault")
    if fault is not None and not (isinstance(fault, str) and fault):
        raise WorkerFault(f"a fault that is no text: {fault!r}")
    arrivals = _arrivals(said.get("arrivals"))
    sent, ended = _instant(said, "sent_ns", asked_ns), _instant(said, "ended_ns", received_ns)
    _in_order(asked_ns, sent, arrivals, ended, received_ns)
    rounds = _rounds(said.get("rounds"))
    if rounds is not None and not drafting and (rounds.drafted or rounds.rounds):
        raise WorkerFault(f"drafted {rounds.drafted} tokens for a plain ask")
    finish, text = said.get("finish"), said.get("text")
    if finish is not None and finish not in FINISHES:
        raise WorkerFault(f"finish {finish!r} is none of {', '.join(FINISHES)}")
    if text is not None and not isinstance(text, str):
        raise WorkerFault("a text that is no text")
    return Answer(
        sent,
        ended,
        arrivals=arrivals,
        text=text or "",
        tool_calls=_calls(said.get("tool_calls")),
        finish=finish,
        prompt_tokens=_count(said, "prompt_tokens", least=1),
        output_tokens=_output(said, arrivals) if fault is None else None,
        rounds=rounds if drafting and fault is None else None,
        memory_active=_count(said, "memory_active"),
        memory_peak=_count(said, "memory_peak"),
        fault=fault,
    )


def gap_from(said: Mapping[str, Any]) -> float | None:
    """Return the gap on a worker's line, None where it could not tell or told nonsense."""
    gap = said.get("gap")
    if not isinstance(gap, int | float) or isinstance(gap, bool):
        return None
    return float(gap) if math.isfinite(gap) and gap >= 0 else None


def _arrivals(said: object) -> tuple[Arrival, ...]:
    if said is None:
        return ()
    if not isinstance(said, list):
        raise WorkerFault("arrivals that are no list")
    return tuple(_arrival(piece) for piece in said)


def _arrival(piece: object) -> Arrival:
    """Return `[at_ns, tokens, drafted, token_id]`, of which the last ones may be left out or null."""
    if not isinstance(piece, list) or not 1 <= len(piece) <= 4 or type(piece[0]) is not int:
        raise WorkerFault(f"an arrival that is none: {_excerpt(json.dumps(piece).encode())}")
    at, tokens, drafted, token = (*piece, None, None, None)[:4]
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise WorkerFault(f"an arrival of {tokens!r} tokens; unknown is null, never 0")
    if drafted is not None and type(drafted) is not bool:
        raise WorkerFault(f"an arrival whose drafted is {drafted!r}")
    if token is not None and (type(token) is not int or token < 0):
        raise WorkerFault(f"an arrival with token id {token!r}")
    return Arrival(at, tokens, drafted, token)


def _instant(said: Mapping[str, Any], name: str, otherwise: int) -> int:
    at = said.get(name, otherwise)
    if type(at) is not int:
        raise WorkerFault(f"{name} is {at!r}, not whole nanoseconds")
    return at


def _in_order(asked: int, sent: int, arrivals: tuple[Arrival, ...], ended: int, received: int) -> None:
    """Raise WorkerFault unless ask, sent, arrivals, end and receipt follow each other on this machine's clock."""
    told = [("sent_ns", sent), *((f"arrival {n}", one.at_ns) for n, one in enumerate(arrivals, 1)), ("ended_ns", ended)]
    before, at = "the ask", asked
    for name, instant in told:
        if instant < at:
            late = (at - instant) / 1e9
            raise WorkerFault(f"a worker that lies about time: {name} lies {late:.6f} s before {before}")
        before, at = name, instant
    if at > received:
        early = (at - received) / 1e9
        raise WorkerFault(f"a worker that lies about time: ended_ns lies {early:.6f} s after its line was read")


def _output(said: Mapping[str, Any], arrivals: tuple[Arrival, ...]) -> int | None:
    told = _count(said, "output_tokens")
    counted = [arrival.tokens for arrival in arrivals]
    if not counted or None in counted:
        return told
    total = sum(tokens or 0 for tokens in counted)
    if told is not None and told != total:
        raise WorkerFault(f"output_tokens is {told}, its arrivals carry {total}")
    return total


def _rounds(said: object) -> Rounds | None:
    if said is None:
        return None
    if not isinstance(said, dict):
        raise WorkerFault("rounds that are no object")
    numbers = [_count(said, name) for name in ("rounds", "drafted", "accepted")]
    tried, kept = (_counts(said, name) for name in ("tried_by_position", "accepted_by_position"))
    if None in numbers:
        raise WorkerFault("rounds without rounds, drafted and accepted")
    rounds, drafted, accepted = (number or 0 for number in numbers)
    sound = accepted <= drafted and bool(rounds) == bool(drafted) and len(tried) == len(kept)
    if not sound or any(a > b for a, b in zip(kept, tried, strict=True)) or (kept and sum(kept) != accepted):
        raise WorkerFault(f"rounds that cannot be: {_excerpt(json.dumps(said).encode())}")
    return Rounds(rounds, drafted, accepted, tried, kept)


def _counts(said: Mapping[str, Any], name: str) -> tuple[int, ...]:
    numbers = said.get(name) or []
    if not isinstance(numbers, list) or any(type(one) is not int or one < 0 for one in numbers):
        raise WorkerFault(f"{name} is no list of counts")
    return tuple(numbers)


def _count(said: Mapping[str, Any], name: str, least: int = 0) -> int | None:
    number = said.get(name)
    if number is not None and (type(number) is not int or number < least):
        raise WorkerFault(f"{name} is {number!r}; what a worker cannot see is left out")
    return number


def _calls(said: object) -> tuple[dict[str, Any], ...]:
    if said is None:
        return ()
    if not isinstance(said, list):
        raise WorkerFault("tool_calls that are no list")
    for call in said:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not all(isinstance(function.get(key), str) for key in _CALL_KEYS):
            raise WorkerFault("a tool call without a function's name and arguments, both text")
    return tuple(said)


_CALL_KEYS = ("name", "arguments")


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _excerpt(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…")
