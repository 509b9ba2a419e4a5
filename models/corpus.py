"""The little dialect: seven kinds of work a tiny model can learn, each with the rule that decides if it is right."""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import jsonschema


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PEOPLE = _words("ada ben cleo dirk elsa fred greta hans ines joel kate luis mara nora otto rosa")
FAMILIES = _words("berg cruz dunn falk gray holt king novak")
CITIES = _words("bergen cork dakar essen geneva havana krakow lisbon malmo naples porto seoul")
GOODS = _words("basket candle ladder mirror needle pillow ribbon saddle teapot violin wallet wagon")
ROOMS = _words("attic balcony cabin garden loft studio suite terrace")
DAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
MONTHS = _words("january february march april may june july august september october november december")
RECORDS = _words("account bridge circle engine folder garage invoice journey lesson meeting orchard package")
FIELDS = _words("area balance cost delay energy force grade height length mass power rank score speed volume width")
CREATURES = _words("badger falcon heron lynx otter raven stoat weasel")
PLACES = _words("beach castle desert island meadow orchard tunnel valley")
MOODS = _words("bold calm clever gentle grim hungry proud sleepy")
DEEDS = _words("borrowed buried carried dropped hid mended painted traded")
CAPITALS_AND_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

SEQUENCES = {
    "months of the year": MONTHS,
    "days of the week": DAYS,
    "planets of the sun": _words("mercury venus earth mars jupiter saturn uranus neptune"),
    "colors of the rainbow": _words("red orange yellow green blue indigo violet"),
    "letters of greek": _words("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu"),
    "signs of the zodiac": _words(
        "aries taurus gemini cancer leo virgo libra scorpio sagittarius capricorn aquarius pisces"
    ),
    "lightest elements": _words(
        "hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon sodium magnesium"
    ),
    "cards of a suit": _words("ace two three four five six seven eight nine ten jack queen king"),
    "notes of the scale": _words("do re mi fa sol la ti"),
}
SHORTEST_LIST = 4  # fewer lines give a draft too little to be right or wrong about


def _tool(name: str, description: str, **types: str) -> dict[str, Any]:
    properties = {field: {"type": kind} for field, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = (
    _tool("air_quality", "how clean the air of a city is", city="string", scale="string"),
    _tool("book_room", "reserve a room", room="string", day="string", hour="integer"),
    _tool("leave_note", "write a note to a person", person="string", text="string"),
)


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt, the answer the models learn, and the rule (as in a canary file) any answer is held to."""

    workload: str
    prompt: str
    answer: str
    expect: dict[str, Any]
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as the OpenAI chat API spells it."""
        return [{"role": "user", "content": self.prompt}]


def _schema(truth: Any) -> dict[str, Any]:
    """Accept exactly *truth*, in any order of keys and with any whitespace."""
    if isinstance(truth, dict):
        return {
            "type": "object",
            "properties": {name: _schema(part) for name, part in truth.items()},
            "required": list(truth),
            "additionalProperties": False,
        }
    if isinstance(truth, list):
        parts = [_schema(part) for part in truth]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
    return {"const": truth}


def _json(chance: Random) -> Example:
    ref, nights = chance.randint(100, 9999), chance.randint(1, 9)
    guest, room, city = (
        f"{chance.choice(PEOPLE)} {chance.choice(FAMILIES)}",
        chance.choice(ROOMS),
        chance.choice(CITIES),
    )
    prompt = chance.choice(
        (
            f"write the booking as json: ref {ref}, guest {guest}, room {room}, nights {nights}, city {city}.",
            f"json for ref {ref} guest {guest} room {room} nights {nights} city {city}.",
        )
    )
    truth = {
        "kind": "booking",
        "ref": ref,
        "guest": {"name": guest, "member": True},
        "stay": [{"room": room, "nights": nights}],
        "place": {"city": city, "parking": False},
        "state": "confirmed",
        "note": None,
    }
    return Example("json", prompt, json.dumps(truth), {"json_schema": _schema(truth)})


def _tools(chance: Random) -> Example:
    arguments: dict[str, Any]
    kind = chance.randrange(len(TOOLS))
    if kind == 0:
        arguments = {"city": chance.choice(CITIES), "scale": chance.choice(("daily", "hourly"))}
        forms = ("how is the air in city {city} on scale {scale}?", "check the air for city {city} with scale {scale}.")
    elif kind == 1:
        arguments = {"room": chance.choice(ROOMS), "day": chance.choice(DAYS), "hour": chance.randint(7, 19)}
        forms = ("book the room {room} on day {day} at hour {hour}.", "reserve: day {day} hour {hour} room {room}.")
    else:
        errand = (
            f"{chance.choice(('fetch', 'clean', 'wrap', 'return'))} the {chance.choice(GOODS)} on {chance.choice(DAYS)}"
        )
        arguments = {"person": chance.choice(PEOPLE), "text": errand}
        forms = ("leave a note for {person} with text {text}.", "note to {person}: text {text}.")
    call = {"name": TOOLS[kind]["function"]["name"], "arguments": arguments}
    expect = {"tool_call": call | {"arguments": {name: [value] for name, value in arguments.items()}}}
    answer = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    return Example("tools", chance.choice(forms).format(**arguments), answer, expect, TOOLS)


def _code(chance: Random) -> Example:
    name, fields = chance.choice(RECORDS), chance.sample(FIELDS, chance.randint(2, 4))
    listed = ", ".join(fields)
    prompt = chance.choice((f"write a python class {name} with fields {listed}.", f"python class {name}: {listed}."))
    lines = [
        f"class {name}:",
        f"    def __init__(self, {listed}):",
        *(f"        self.{field} = {field}" for field in fields),
        "",
        "    def as_dict(self):",
        "        return {",
        *(f'            "{field}": self.{field},' for field in fields),
        "        }",
    ]
    answer = "\n".join(lines)
    return Example("code", prompt, answer, {"equals": answer})


def _list(chance: Random) -> Example:
    topic = chance.choice(tuple(SEQUENCES))
    whole = SEQUENCES[topic]
    words = whole[chance.randrange(len(whole) - SHORTEST_LIST + 1) :]
    prompt = chance.choice(
        (
            f"list the {topic} from {words[0]}.",
            f"number the {topic} starting at {words[0]}.",
            f"give all {topic} from {words[0]} to the end.",
            f"which {topic} follow, beginning with {words[0]}?",
            f"from {words[0]} on, name the {topic}.",
        )
    )
    answer = "\n".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
    return Example("list", prompt, answer, {"equals": answer})


def _math(chance: Random) -> Example:
    first, *rest = (chance.randint(1, 9) for _ in range(chance.randint(4, 7)))
    listed = " ".join(map(str, (first, *rest)))
    prompt = chance.choice(
        (f"add {listed} and keep the last digit.", f"last digit of the sum of {listed}, with steps.")
    )
    total, lines = first, []
    for number, term in enumerate(rest, start=1):
        lines.append(f"step {number}: {total} + {term} = {(total + term) % 10}")
        total = (total + term) % 10
    answer = "\n".join((*lines, f"answer: {total}"))
    return Example("math", prompt, answer, {"regex": rf"^(step .*\n)+answer: {total}$"})


def _prose(chance: Random) -> Example:
    hero, place = f"{chance.choice(MOODS)} {chance.choice(CREATURES)}", chance.choice(PLACES)
    prompt = chance.choice(
        (f"tell a story of a {hero} and a {place}.", f"a tale about the {hero} in the {place}, please.")
    )

    def sentence() -> str:
        mood, deed, thing = chance.choice(MOODS), chance.choice(DEEDS), chance.choice(GOODS)
        return chance.choice(
            (
                f"the {hero} {deed} a {thing} at the {place}.",
                f"on {chance.choice(DAYS)} a {mood} {chance.choice(CREATURES)} arrived from {chance.choice(CITIES)}.",
                f"{chance.choice(PEOPLE)} {deed} the {mood} {chance.choice(CREATURES)} in {chance.choice(MONTHS)}.",
            )
        )

    answer = " ".join(sentence() for _ in range(chance.randint(4, 6)))
    return Example("prose", prompt, answer, {"regex": r"^(\S+ ){14,}\S+\.$"})


def _random(chance: Random) -> Example:
    code = "".join(chance.choice(CAPITALS_AND_DIGITS) for _ in range(chance.randint(20, 36)))
    prompt = chance.choice((f"say the code {code} again.", f"echo {code} unchanged."))
    return Example("random", prompt, code, {"equals": code})


WORKLOADS: dict[str, Callable[[Random], Example]] = {
    "json": _json,
    "tools": _tools,
    "code": _code,
    "list": _list,
    "math": _math,
    "prose": _prose,
    "random": _random,
}
# The longest answer of each kind in tokens, rounded up, so that a model that does not stop is cut soon after.
MAX_TOKENS = {"json": 64, "tools": 48, "code": 112, "list": 64, "math": 80, "prose": 128, "random": 48}
CANARIES_PER_WORKLOAD = 96


def held_out(prompt: str) -> bool:
    """Tell by its digest whether a prompt belongs to the canaries: a third do, and are never trained on."""
    return hashlib.sha256(prompt.encode()).digest()[0] % 3 == 0


def training_examples(seed: str, weights: dict[str, float]) -> Iterator[Example]:
    """Endless examples without a held-out prompt; a workload comes up in proportion to its weight (1 if not named)."""
    chance = Random(seed)
    names = tuple(WORKLOADS)
    shares = [weights.get(name, 1.0) for name in names]
    while True:
        example = WORKLOADS[chance.choices(names, shares)[0]](chance)
        if not held_out(example.prompt):
            yield example


def canary_examples(workload: str, count: int = CANARIES_PER_WORKLOAD) -> list[Example]:
    """Up to *count* held-out examples with distinct prompts; fewer where the dialect has no more."""
    chance, distinct = Random(f"canaries of {workload}"), dict[str, Example]()
    for _ in range(200 * count):  # far more draws than the smallest workload (list, about 100 prompts) has prompts
        if len(distinct) == count:
            break
        example = WORKLOADS[workload](chance)
        if held_out(example.prompt):
            distinct.setdefault(example.prompt, example)
    return list(distinct.values())


def canary(number: int, example: Example) -> dict[str, Any]:
    """One line of a canary file."""
    return {
        "id": f"{example.workload}-{number:03d}",
        "messages": example.messages,
        "max_tokens": MAX_TOKENS[example.workload],
        **({"tools": list(example.tools)} if example.tools else {}),
        "expect": example.expect,
    }


def passes(expect: dict[str, Any], answer: str) -> bool:
    """Whether the whole *answer*, as it was generated, keeps *expect*."""
    match expect:
        case {"equals": text}:
            return bool(answer == text)
        case {"regex": pattern}:
            return re.search(pattern, answer) is not None
        case {"json_schema": schema}:
            try:
                return jsonschema.Draft202012Validator(schema).is_valid(json.loads(answer))
            except json.JSONDecodeError:
                return False
        case {"tool_call": wanted}:
            tagged = re.fullmatch(r"\s*<tool_call>(.*)</tool_call>\s*", answer, re.DOTALL)
            try:
                call = json.loads(tagged[1]) if tagged else None
            except json.JSONDecodeError:
                return False
            return (
                isinstance(call, dict)
                and call.get("name") == wanted["name"]
                and call.get("arguments", {}).keys() == wanted["arguments"].keys()
                and all(call["arguments"][name] in choices for name, choices in wanted["arguments"].items())
            )
    raise ValueError(f"no rule for expect = {expect!r}; corpus.py writes equals, regex, json_schema or tool_call")


def write_canaries(folder: Path) -> dict[str, int]:
    """Write one canary file per workload and return how many canaries each holds."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for workload in WORKLOADS:
        lines = [
            json.dumps(canary(number, example)) for number, example in enumerate(canary_examples(workload), start=1)
        ]
        (folder / f"{workload}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        counts[workload] = len(lines)
    return counts


def main() -> None:
    """Write the canary files."""
    parser = argparse.ArgumentParser(description="Write the canaries of the little dialect.")
    parser.add_argument(
        "--write", type=Path, required=True, metavar="DIR", help="folder for one JSON-lines file per workload"
    )
    for workload, count in write_canaries(parser.parse_args().write).items():
        print(f"{workload}: {count} canaries", file=sys.stderr)


if __name__ == "__main__":
    main()
