"""The worker protocol: the JSON lines that gatekeeper writes to a worker, and the checks of those it reads.

A line about tokens that were read again shows nothing where it is invalid or contradicts itself.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.backends.http.chat_request import ResolvedRequest
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.interfaces import ForcedPass, ReplayedRounds, TwoWidths
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import COUNTS, ParseError, json_object
from gatekeeper.core.records import Answer, Claims, Parting, Rounds, Setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.slo import CHOSEN, CONDITIONS
from gatekeeper.core.text import quote

VERSION = 1
LINE_BYTES = 8 << 20
"""The longest line of a worker: a hundred thousand arrivals need half of it."""
MANUAL = "see: gatekeeper explain worker-protocol"

SEES = {
    "arrivals": Sight.ARRIVALS,
    "token_count": Sight.TOKEN_COUNT,
    "text": Sight.TEXT,
    "token_ids": Sight.TOKEN_IDS,
    "rounds": Sight.ROUNDS,
    "plain": Sight.PLAIN,
    "logits": Sight.LOGITS,
    "cold": Sight.COLD,
    "forced": Sight.FORCED,
    "prompt_time": Sight.PROMPT_TIME,
    "replay": Sight.REPLAY,
    "widths": Sight.WIDTHS,
}
"""What a worker may declare that its answers show. Memory is missing here: we always measure it ourselves."""
KNOBS = frozenset({*CHOSEN, *CONDITIONS} - {"concurrency"})
"""A worker answers one request at a time."""
FINISHES = ("stop", "length", "tool_calls")
_EXCERPT = 80
_PROPOSALS = re.compile(r"(?:[0-9]{1,15}(?: [0-9]{1,15})*)?(?:;(?:[0-9]{1,15}(?: [0-9]{1,15})*)?)*")
"""Rounds between semicolons; one without a draft is empty."""


class WorkerFault(Exception):  # noqa: N818  it becomes a fault in a record, not an error of ours
    """An error of a worker; its message becomes the fault of the answer."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """A worker's first line: what it is, shows and takes, sent before it loads its models."""

    name: str
    sight: Sight
    knobs: frozenset[str] = frozenset()
    shares_process: bool = False
    versions: dict[str, str] = field(default_factory=dict)


def read_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object on *line*; raise WorkerFault for anything else, NaN and infinities included."""
    try:
        return json_object(line, most=LINE_BYTES)
    except ParseError as error:
        raise WorkerFault(f"garbage on stdout ({error}): {_excerpt(line)}") from error


def greeting_from(greeting: Mapping[str, Any], command: str) -> Greeting:
    """Return a worker's greeting; raise InputError naming its command line where the greeting is not valid."""
    version = greeting.get("gatekeeper")
    if type(version) is not int:
        raise InputError(f'`{command}` did not greet: no "gatekeeper" in its first line', hint=MANUAL)
    if version != VERSION:
        message = f"`{command}` uses version {version} of the worker protocol, this gatekeeper uses {VERSION}"
        raise InputError(message, hint="update the worker or gatekeeper")
    name, versions = greeting.get("name"), greeting.get("versions", {})
    shares = greeting.get("shares_process", False)
    if not isinstance(name, str) or not name:
        raise InputError(f"`{command}`: its greeting has no name", hint=MANUAL)
    if type(shares) is not bool:
        message = f"`{command}`: its greeting has shares_process = {quote(repr(shares))}"
        raise InputError(message, hint="allowed: true, false")
    if not isinstance(versions, dict):
        raise InputError(f"`{command}`: versions in its greeting is not an object", hint=MANUAL)
    sight = Sight.NOTHING
    for word in _words(greeting, "sees", SEES, command):
        sight |= SEES[word]
    if shares and Sight.PLAIN not in sight:
        message = f'`{command}`: its greeting has shares_process = true, but not "plain" in sees'
        raise InputError(message, hint=MANUAL)
    numbers = {str(package): str(number) for package, number in versions.items() if number}
    return Greeting(name, sight, frozenset(_words(greeting, "knobs", KNOBS, command)), shares, numbers)


def _words(greeting: Mapping[str, Any], key: str, allowed: Any, command: str) -> list[str]:
    words = greeting.get(key, [])
    if not isinstance(words, list):
        raise InputError(f"`{command}`: {key} in its greeting is not a list", hint=MANUAL)
    for word in words:
        if word not in list(allowed):
            hint = did_you_mean(str(word), allowed)
            raise InputError(f"`{command}`: {key} in its greeting has the unknown word {quote(repr(word))}", hint=hint)
    return words


def request_line(
    number: int,
    request: ResolvedRequest,
    setting: Setting,
    **reading: Any,
) -> bytes:
    """Return the line that requests an answer; with *reading* the keys of a reading of tokens instead."""
    chosen = {knob: value for knob, value in setting if knob in CHOSEN and value is not None}
    line: dict[str, Any] = {
        "ask": number,
        "messages": request.messages,
        "tools": request.tools,
        "setting": chosen if request.draft is not None else {"draft": None},
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "seed": request.seed,
        "thinking": request.thinking,
        **reading,
    }
    return json.dumps(line).encode() + b"\n"


def is_number(value: object, number: int) -> bool:
    """Tell whether *value* is a request's *number*; JSON's true is not 1."""
    return type(value) is int and value == number


def answer_from(message: Mapping[str, Any], *, sent_ns: int, received_ns: int, drafting: bool) -> Answer:
    """Return the answer on a worker's line; raise WorkerFault where it contradicts itself or our own clock."""
    fault = message.get("fault")
    if fault is not None and not (isinstance(fault, str) and fault):
        raise WorkerFault(f"fault is not a text: {fault!r}")
    arrivals = _arrivals(message.get("arrivals"))
    sent, ended = _instant(message, "sent_ns", sent_ns), _instant(message, "ended_ns", received_ns)
    _in_order(sent_ns, sent, arrivals, ended, received_ns)
    rounds = _rounds(message.get("rounds"))
    if rounds is not None and not drafting and (rounds.drafted or rounds.rounds):
        raise WorkerFault(f"drafted {rounds.drafted} tokens for a plain request")
    finish, text = message.get("finish"), message.get("text")
    if finish is not None and finish not in FINISHES:
        raise WorkerFault(f"finish is {finish!r}; allowed: {', '.join(FINISHES)}")
    if text is not None and not isinstance(text, str):
        raise WorkerFault("text is not a string")
    return Answer(
        sent,
        ended,
        arrivals=arrivals,
        text=text or "",
        tool_calls=_calls(message.get("tool_calls")),
        finish=finish,
        prompt_tokens=_count(message, "prompt_tokens", least=1),
        output_tokens=_output(message, arrivals) if fault is None else None,
        rounds=rounds if drafting and fault is None else None,
        claims=_prompt_read(message, ended - sent),
        memory_active=_count(message, "memory_active"),
        memory_peak=_count(message, "memory_peak"),
        fault=fault and quote(fault),
    )


def _prompt_read(message: Mapping[str, Any], whole_ns: int) -> Claims:
    """Return how many tokens of the prompt the worker says to have read, in how many seconds."""
    seconds, tokens = message.get("prompt_seconds"), _count(message, "prompt_read", least=1)
    if seconds is None:
        return Claims()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds * 1e9 <= whole_ns + 1:
        raise WorkerFault(f"prompt_seconds is {seconds!r}; allowed: from 0 to the time of the answer")
    return Claims(prompt_tokens=tokens, prompt_seconds=float(seconds))


def _arrivals(value: object) -> tuple[Arrival, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise WorkerFault("arrivals is not a list")
    return tuple(_arrival(piece) for piece in value)


def _arrival(piece: object) -> Arrival:
    """Return `[at_ns, tokens, drafted, token_id]`, of which the last ones may be left out or null."""
    if not isinstance(piece, list) or not 1 <= len(piece) <= 4 or type(piece[0]) is not int:
        raise WorkerFault(f"invalid arrival: {_excerpt(json.dumps(piece).encode())}")
    at_ns, tokens, drafted, token = (*piece, None, None, None)[:4]
    if tokens is not None and (type(tokens) is not int or tokens < 1 or tokens not in COUNTS):
        raise WorkerFault(f"arrival of {tokens!r} tokens; allowed: 1 or more, null for unknown")
    if drafted is not None and type(drafted) is not bool:
        raise WorkerFault(f"arrival with drafted = {drafted!r}; allowed: true, false, null")
    if token is not None and (type(token) is not int or token not in COUNTS):
        raise WorkerFault(f"arrival with token id {token!r}; allowed: 0 or more, null")
    return Arrival(at_ns, tokens, drafted, token)


def _instant(message: Mapping[str, Any], name: str, otherwise: int) -> int:
    instant = message.get(name, otherwise)
    if type(instant) is not int:
        raise WorkerFault(f"{name} is {instant!r}, not a whole number of nanoseconds")
    return instant


def _in_order(requested: int, sent: int, arrivals: tuple[Arrival, ...], ended: int, received: int) -> None:
    """Raise WorkerFault unless request, sent, arrivals, end and receipt follow each other on this machine's clock."""
    instants = [
        ("sent_ns", sent),
        *((f"arrival {n}", arrival.at_ns) for n, arrival in enumerate(arrivals, 1)),
        ("ended_ns", ended),
    ]
    before, latest = "the request", requested
    for name, instant in instants:
        if instant < latest:
            late = (latest - instant) / 1e9
            raise WorkerFault(f"times out of order: {name} is {late:.6f} s before {before}")
        before, latest = name, instant
    if latest > received:
        early = (latest - received) / 1e9
        raise WorkerFault(f"times out of order: ended_ns is {early:.6f} s after its line was read")


def _output(message: Mapping[str, Any], arrivals: tuple[Arrival, ...]) -> int | None:
    claimed = _count(message, "output_tokens")
    counted = [arrival.tokens for arrival in arrivals]
    if not counted or None in counted:
        return claimed
    total = sum(tokens or 0 for tokens in counted)
    if claimed is not None and claimed != total:
        raise WorkerFault(f"output_tokens is {claimed}, but its arrivals hold {total}")
    return total


def _rounds(value: object) -> Rounds | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise WorkerFault("rounds is not an object")
    numbers = [_count(value, name) for name in ("rounds", "drafted", "accepted")]
    tried, accepted_by_position = (_counts(value, name) for name in ("tried_by_position", "accepted_by_position"))
    if None in numbers:
        raise WorkerFault("rounds needs the counts rounds, drafted and accepted")
    rounds, drafted, accepted = (number or 0 for number in numbers)
    sound = accepted <= drafted and bool(rounds) == bool(drafted) and len(tried) == len(accepted_by_position)
    if (
        not sound
        or any(a > b for a, b in zip(accepted_by_position, tried, strict=True))
        or (accepted_by_position and sum(accepted_by_position) != accepted)
    ):
        raise WorkerFault(f"impossible rounds: {_excerpt(json.dumps(value).encode())}")
    texts = (_rounds_text(value, name) for name in ("proposals", "chosen"))
    return Rounds(rounds, drafted, accepted, tried, accepted_by_position, *texts)


def _rounds_text(value: Mapping[str, Any], name: str) -> str:
    """Return the tokens of each round; whether they fit the answer is a result, and checked after the soak."""
    tokens = value.get(name)
    if tokens is None:
        return ""
    if not isinstance(tokens, str) or _PROPOSALS.fullmatch(tokens) is None:
        raise WorkerFault(f"{name} is not a text of token ids, as in '12 7 9;44 3'")
    return tokens


def _counts(message: Mapping[str, Any], name: str) -> tuple[int, ...]:
    numbers = message.get(name) or []
    if not isinstance(numbers, list) or any(type(number) is not int or number not in COUNTS for number in numbers):
        raise WorkerFault(f"{name} is not a list of counts")
    return tuple(numbers)


def _count(message: Mapping[str, Any], name: str, least: int = 0) -> int | None:
    number = message.get(name)
    if number is not None and (type(number) is not int or number < least or number not in COUNTS):
        raise WorkerFault(f"{name} is {number!r}; allowed: {least} or more, or leave it out")
    return number


def _calls(value: object) -> tuple[dict[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise WorkerFault("tool_calls is not a list")
    for call in value:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not all(isinstance(function.get(key), str) for key in _CALL_KEYS):
            raise WorkerFault("a tool call needs a function with name and arguments, both strings")
    return tuple(value)


_CALL_KEYS = ("name", "arguments")


def _excerpt(line: bytes) -> str:
    text = line[: 4 * _EXCERPT].decode("utf-8", "replace").strip()
    return repr(text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…")


def gap_from(message: Mapping[str, Any]) -> float | None:
    """Return the gap on a worker's line; None where it is missing or invalid."""
    gap = _number(message.get("gap"))
    return gap if gap is not None and gap >= 0 else None


def forced_from(message: Mapping[str, Any], tokens: tuple[int, ...]) -> ForcedPass | None:
    """Return what a forced pass over *tokens* showed; None where the line is invalid or contradicts itself."""
    parted, ended = _partings(message.get("parted"), tokens), message.get("ended")
    return ForcedPass(parted, ended) if parted is not None and type(ended) is bool else None


def replayed_from(message: Mapping[str, Any], tokens: tuple[int, ...], *, greedy: bool) -> ReplayedRounds | None:
    """Return what reading *tokens* round by round showed; None where the line is invalid or contradicts itself."""
    parted, nll = _partings(message.get("parted"), tokens), _number(message.get("nll"))
    steady, scores = message.get("steady"), message.get("scores") or []
    if parted is None or nll is None or (steady is not None and type(steady) is not bool):
        return None
    if greedy:
        return ReplayedRounds(parted, steady, nll)
    if not isinstance(scores, list) or len(scores) != len(tokens):
        return None
    rows = [_score(row) for row in scores]
    complete = tuple(row for row in rows if row is not None)
    return ReplayedRounds(parted, steady, nll, complete) if len(complete) == len(rows) else None


def widths_from(message: Mapping[str, Any], tokens: tuple[int, ...]) -> TwoWidths | None:
    """Return what reading *tokens* at two widths showed; None where the line is invalid or contradicts itself."""
    nll, unit = _number(message.get("nll")), _number(message.get("unit"))
    columns = [message.get(key) for key in ("gaps", "wide_gaps")]
    if nll is None or unit is None or unit < 0:
        return None
    if not all(isinstance(column, list) and len(column) == len(tokens) for column in columns):
        return None
    gaps, wide_gaps = ([_number(value) for value in column or ()] for column in columns)
    leads = tuple(gap for gap in gaps if gap is not None and gap >= 0)
    unread = sum(gap is None for gap in wide_gaps)
    if len(leads) < len(tokens) or unread > (columns[1] or []).count(None):
        return None
    return TwoWidths(leads, tuple(wide_gaps), unit, nll)


def _partings(value: object, tokens: tuple[int, ...]) -> tuple[Parting, ...] | None:
    """Return where the target parts from *tokens*, in order; None where that is invalid."""
    if not isinstance(value, list):
        return None
    partings = []
    for place in value:
        if not isinstance(place, list) or len(place) != 3:
            return None
        position, token, gap = place
        if not all(type(number) is int and number in COUNTS for number in (position, token)) or position >= len(tokens):
            return None
        if token == tokens[position]:
            return None
        partings.append(Parting(position, token, gap_from({"gap": gap})))
    if len({parting.position for parting in partings}) < len(partings):
        return None
    return tuple(sorted(partings))


def _score(row: object) -> tuple[float, ...] | None:
    """Return a row of scores: four logarithms, the first minus infinity for a token that cannot be sampled."""
    if not isinstance(row, list) or len(row) != 4:
        return None
    first, *rest = (_number(value) for value in row)
    if None in rest or (first is None and row[0] is not None):
        return None
    return (-math.inf if first is None else first, *(value for value in rest if value is not None))


def _number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None
