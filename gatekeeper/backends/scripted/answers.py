"""The composition of a scripted answer: its tokens, their bursts and rounds, before time is spent on giving it."""

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import jsonschema

from gatekeeper.backends.http.chat import ResolvedRequest
from gatekeeper.backends.scripted.script import Arm, Manner, Script
from gatekeeper.backends.workers.rounds import count_rounds
from gatekeeper.core.canary import Canary, ToolCall
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Rounds

_Maker = Callable[[dict[str, Any], dict[str, Any]], Any]

_WORDS = (
    *("the", "a", "small", "river", "runs", "under", "one", "old", "bridge", "and", "every", "morning", "two"),
    *("grey", "herons", "stand", "there", "waiting", "for", "light", "while", "boats", "pass", "slowly"),
)


def words(draw: Any, number: int) -> tuple[str, ...]:
    """Return *number* pieces of plain text drawn with the random generator *draw*."""
    return tuple((" " if index else "") + draw.choice(_WORDS) for index in range(number))


def text_for(canary: Canary) -> str | None:
    """Return a text that satisfies *canary*'s expectation, None where it expects no text.

    Raise InputError where none can be constructed.
    """
    expect = canary.expect
    if expect is None or expect.kind == "tool":
        return None
    if expect.equals is not None:
        return expect.equals
    if expect.regex is not None:
        return _checked_regex(canary, expect.regex)
    assert expect.json_schema is not None
    instance = _instance(expect.json_schema, expect.json_schema)
    if not jsonschema.Draft202012Validator(expect.json_schema).is_valid(instance):
        raise _beyond(canary, "json_schema")
    return json.dumps(instance)


def calls_for(canary: Canary) -> tuple[dict[str, Any], ...]:
    """Return the calls that satisfy *canary*'s expectation, each argument its first allowed value."""
    expect = canary.expect
    if expect is None or expect.kind != "tool":
        return ()
    expected = expect.tool_calls if expect.tool_calls is not None else (expect.tool_call,)
    return tuple(_call(number, one) for number, one in enumerate(expected) if one is not None)


def _call(number: int, expected: ToolCall) -> dict[str, Any]:
    arguments = {}
    for name, allowed in expected.arguments.items():
        choices = [value for value in allowed if value != ""] if isinstance(allowed, list) else [allowed]
        if choices:
            arguments[name] = choices[0]
    function = {"name": expected.name, "arguments": json.dumps(arguments)}
    return {"id": f"call-{number}", "type": "function", "function": function}


def _beyond(canary: Canary, kind: str) -> InputError:
    hint = f'write one into the script: "answers": {{"{canary.id}": "…"}}'
    return InputError(f"canary '{canary.id}': the scripted backend finds no text for its {kind}", hint=hint)


def _instance(schema: Any, root: dict[str, Any]) -> Any:
    """Return a small instance of *schema*; the caller validates it."""
    schema = _plain_schema(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema or "required" in schema else "string")
    make: _Maker = _MAKERS.get(kind[0] if isinstance(kind, list) else kind, _string)
    return make(schema, root)


def _plain_schema(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with its reference followed, its first alternative taken and its parts merged."""
    if not isinstance(schema, dict):
        return {}
    if reference := schema.get("$ref"):
        here: Any = root
        for step in str(reference).removeprefix("#").strip("/").split("/"):
            here = here.get(step, {}) if step else here
        return _plain_schema(here, root)
    merged = {key: value for key, value in schema.items() if key not in {"anyOf", "oneOf", "allOf"}}
    parts = [schema[key][0] for key in ("anyOf", "oneOf") if schema.get(key)] + list(schema.get("allOf", []))
    for part in (_plain_schema(one, root) for one in parts):
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", []), *part.get("required", [])]
        merged = {**part, **merged}
        if properties or required:
            merged |= {"properties": properties, "required": required}
    return merged


def _object(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: _instance(properties.get(name, {"type": "string"}), root) for name in schema.get("required", [])}


def _array(schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    fixed, others = schema.get("prefixItems", []), schema.get("items", {"type": "string"})
    least = schema.get("minItems", 0)
    return [_instance(fixed[index] if index < len(fixed) else others, root) for index in range(least)]


def _number(schema: dict[str, Any], _root: dict[str, Any]) -> float:
    """Return the allowed number nearest to 0 from above, or the largest where a maximum lies below it."""
    step = schema.get("multipleOf", 1)
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if least is None and above is None:
        ceiling = min(one for one in (most, below, 1) if one is not None)
        value = min(0, ceiling // step * step)
        value -= step if value == below else 0
    else:
        floor = max(one for one in (least, above) if one is not None)
        value = -(-floor // step) * step
        value += step if value == above else 0
    return int(value) if schema.get("type") == "integer" else float(value)


def _string(schema: dict[str, Any], _root: dict[str, Any]) -> str:
    formats = {"date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z", "time": "00:00:00Z", "email": "a@example.org"}
    if schema.get("format") in formats:
        return formats[schema["format"]]
    if "pattern" in schema:
        return match_for(schema["pattern"]) or ""
    return str("text".ljust(schema.get("minLength", 0), "t")[: schema.get("maxLength")])


_MAKERS: dict[str, _Maker] = {
    "object": _object,
    "array": _array,
    "integer": _number,
    "number": _number,
    "boolean": lambda _schema, _root: True,
    "null": lambda _schema, _root: None,
}


def _checked_regex(canary: Canary, pattern: str) -> str:
    found = match_for(pattern)
    if found is None:
        raise _beyond(canary, f"regex {pattern!r}")
    return found


def match_for(pattern: str) -> str | None:
    """Return a text in which *pattern* is found, None for patterns beyond this small constructor (look-arounds)."""
    # The parser behind `re` is private, so what it yields is only trusted after `re` itself agreed.
    parsed = import_module("re._parser").parse(pattern)
    regex = import_module("re").compile(pattern)
    groups: dict[int, str] = {}
    try:
        found = _sequence(parsed, groups)
    except LookupError:
        return None
    return found if regex.search(found) else None


def _witness(step: tuple[Any, Any], groups: dict[int, str]) -> str:
    """Return a text for one step of a parsed pattern; raise LookupError for steps beyond us."""
    name, argument = str(step[0]), step[1]
    if name in _SIMPLE:
        return _SIMPLE[name](argument)
    if name == "BRANCH":
        return _sequence(argument[1][0], groups)
    if name == "SUBPATTERN":
        groups[argument[0]] = _sequence(argument[-1], groups)
        return groups[argument[0]]
    if name == "GROUPREF":
        return groups[argument]
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, most, inner = argument
        return "".join(_sequence(inner, groups) for _ in range(max(least, min(1, int(most)))))
    raise LookupError(name)


def _sequence(steps: Any, groups: dict[int, str]) -> str:
    return "".join(_witness(step, groups) for step in steps)


def _member(choices: list[tuple[Any, Any]]) -> str:
    categories = {"CATEGORY_DIGIT": "1", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " "} | {
        "CATEGORY_NOT_DIGIT": "a",
        "CATEGORY_NOT_WORD": " ",
        "CATEGORY_NOT_SPACE": "a",
    }
    if str(choices[0][0]) == "NEGATE":
        excluded = [_member([choice]) for choice in choices[1:] if str(choice[0]) == "LITERAL"]
        ranges = [choice[1] for choice in choices[1:] if str(choice[0]) == "RANGE"]
        allowed = (one for one in "az AZ09-_" if one not in excluded and not any(a <= ord(one) <= b for a, b in ranges))
        return next(allowed, "~")
    name, argument = str(choices[0][0]), choices[0][1]
    if name == "LITERAL":
        return chr(argument)
    if name == "RANGE":
        return chr(argument[0])
    return categories[str(argument)]


_SIMPLE: dict[str, Callable[[Any], str]] = {
    "LITERAL": chr,
    "NOT_LITERAL": lambda excluded: "b" if excluded == ord("a") else "a",
    "ANY": lambda _: "a",
    "AT": lambda _: "",
    "IN": _member,
}


EMIT_S = 10e-6
"""Between the tokens of one round: as fast as a loop yields them."""

_PIECE = re.compile(r"\s*\S{1,4}|\s+$")
"""A token of a constructed text: four characters, as of English on average."""

_WRONG = "I do not know that one."


@dataclass(frozen=True, slots=True)
class Occasion:
    """When and for what an answer is composed."""

    canary: Canary
    asked: ResolvedRequest
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
