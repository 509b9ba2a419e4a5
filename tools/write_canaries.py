"""The frozen prompt sets: `canaries/*.jsonl`, built from the hand-written parts in `tools/canary_parts/`.

A part is a text file of blocks. A block begins with `=== MAX_TOKENS [LABEL …]`; its lines are one user message unless
`@system`, `@user` and `@assistant` divide them; `@expect`, `@sum`, `@value`, `@call` and `@ask` say what is right.
`<<name=kind …>>` draws an invented value, `<<name>>` and `<<name|filter>>` use it again.
"""

import argparse
import ast
import json
import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone

from tools.canary_draws import draws, render, shuffled  # noqa: E402
from tools.canary_generated import language_items, reasoning_items, session_items  # noqa: E402

PARTS = Path(__file__).resolve().parent / "canary_parts"
SHORT_CHARACTERS, MEDIUM_CHARACTERS = 600, 4000  # messages and tools together: about 150 and 1,000 tokens
PLAIN_SETS = ("code", "instruction", "list", "prose", "qa", "chat")
LONG_WORDS = (900, 1900)
MIXED_SETS = ("chat", "code", "instruction", "json", "list", "math", "prose", "qa")
MIXED_EACH = 72
"""Eight times 72 canaries bound a 99 % quantile at 95 % confidence, even split over the looks and a fallback ladder."""


@dataclass(frozen=True, slots=True)
class Block:
    """One hand-written part: its turns, and its directives in order."""

    max_tokens: int
    labels: tuple[str, ...]
    turns: tuple[tuple[str, str], ...]
    directives: tuple[tuple[str, str], ...]

    def directive(self, name: str) -> str | None:
        """Return the first directive of this name, or None."""
        return next((text for key, text in self.directives if key == name), None)


def read_blocks(name: str) -> tuple[Block, ...]:
    """Return the blocks of one part file, in order."""
    blocks = []
    for chunk in re.split(r"^=== ", (PARTS / name).read_text("utf-8"), flags=re.MULTILINE)[1:]:
        header, _, body = chunk.partition("\n")
        turns: list[tuple[str, list[str]]] = []
        directives = []
        for line in body.strip("\n").split("\n"):
            marked = re.match(r"@(\w+) ?(.*)", line)
            if marked and marked[1] in {"system", "user", "assistant"}:
                turns.append((marked[1], [marked[2]]))
            elif marked and marked[1] in {"expect", "sum", "value", "call", "ask"}:
                directives.append((marked[1], marked[2]))
            else:
                if not turns:
                    turns.append(("user", []))
                turns[-1][1].append(line)
        tokens, *labels = header.split()
        messages = tuple((role, "\n".join(lines).strip()) for role, lines in turns)
        blocks.append(Block(int(tokens), tuple(labels), messages, tuple(directives)))
    return tuple(blocks)


def total(expression: str) -> Fraction:
    """Return the exact value of an arithmetic expression: a typed answer may be wrong, a sum not."""
    operators: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: operator.pow,
    }

    def visit(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float() as number):
                return Fraction(str(number))
            case ast.BinOp(left=left, op=op, right=right):
                return Fraction(operators[type(op)](visit(left), visit(right)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -visit(operand)
        raise ValueError(f"canary_parts: not a plain sum: {expression}")

    return visit(ast.parse(expression, mode="eval").body)


def answer_regex(number: Fraction) -> str:
    """Return a regex for a last line `Answer: N`, with or without units, emphasis, separators and trailing zeros."""
    exact = 10_000 * number
    if exact.denominator != 1:
        raise ValueError(f"canary_parts: {number} has no exact short decimal; ask for another quantity")
    whole, _, part = f"{abs(float(number)):.4f}".rstrip("0").partition(".")
    grouped = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", ",", whole).replace(",", "[, ]?")
    decimals = rf"\.{part}0*" if part else r"(?:\.0+)?"
    sign = r"[-\u2212]" if number < 0 else ""
    return rf"(?i)answer(?: is)?[^\w\u2212-]{{0,8}}{sign}[$€£]?{grouped}{decimals}(?![\d]|[.,]\d)"


def field(text: str) -> Json:
    """Return the JSON Schema of a shorthand: `str`, `int`, `num`, `bool`, `date`, `a|b`, `[…]`, `=default`, words."""
    shape, _, description = text.partition(" ")
    shape, _, default = shape.partition("=")
    array = re.fullmatch(r"\[(.*)\]", shape)
    kinds: dict[str, Json] = {
        "str": {"type": "string"},
        "int": {"type": "integer"},
        "num": {"type": "number"},
        "bool": {"type": "boolean"},
        "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
    }
    inner = array[1] if array else shape
    schema = kinds[inner] if inner in kinds else {"type": "string", "enum": inner.split("|")}
    schema = {"type": "array", "items": schema} if array else dict(schema)
    if default:
        schema["default"] = default if schema["type"] == "string" else json.loads(default)
    return schema | ({"description": description} if description else {})


def schema_of(shape: Any) -> Json:
    """Return the JSON Schema of a nested shorthand: keys with `?` are optional, with `!` exact, others not allowed."""
    if isinstance(shape, str):
        return field(shape)
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of(shape[0])}
    return {
        "type": "object",
        "properties": {key.rstrip("!?"): schema_of(part) for key, part in shape.items()},
        "required": [key.rstrip("!") for key in shape if not key.endswith("?")],
        "additionalProperties": False,
    }


def pinned(shape: Any, right: Any) -> Json:
    """Return the schema of a shorthand that only this right answer fits, free text apart."""
    if isinstance(shape, str):
        return field(shape)
    if isinstance(shape, list):
        exact = [pinned(shape[0], part) for part in right]
        if not exact:
            return {"type": "array", "maxItems": 0}
        return {"type": "array", "prefixItems": exact, "minItems": len(exact), "maxItems": len(exact)}
    schema = schema_of(shape)
    for key, part in shape.items():
        name = key.rstrip("!?")
        if name in right:
            schema["properties"][name] = {"const": right[name]} if key.endswith("!") else pinned(part, right[name])
        if name in right and key.endswith("?"):
            schema["required"].append(name)
    return schema


def skeleton(shape: Any) -> str:
    """Return the shorthand as people write it into prompts."""
    if isinstance(shape, str):
        words = {"str": "string", "int": "integer", "num": "number", "bool": "true or false", "date": '"YYYY-MM-DD"'}
        array = re.fullmatch(r"\[(.*)\]", shape)
        if array:
            return f"[{skeleton(array[1])}, …]"
        return words.get(shape) or " | ".join(f'"{choice}"' for choice in shape.split("|"))
    if isinstance(shape, list):
        return f"[{skeleton(shape[0])}, …]"
    inner = ", ".join(
        f'"{key.rstrip("!?")}"{" (optional)" if key.endswith("?") else ""}: {skeleton(part)}'
        for key, part in shape.items()
    )
    return "{" + inner + "}"


def expected_call(text: str, tools: dict[str, Json]) -> Json:
    """Return an expected call: each argument a list of choices, arrays in any order, a default may be left out."""
    name, _, given = text.partition(" ")
    arguments: Json = json.loads(given)
    properties = tools[name]["function"]["parameters"]["properties"]
    choices: dict[str, list[Any]] = {}
    for key, schema in properties.items():
        right = arguments.pop(key, schema.get("default"))
        if right is None:
            continue
        if schema["type"] == "array":
            options = [list(order) for order in permutations(right)] if len(right) <= len("abc") else [right]
        else:
            options = right if isinstance(right, list) else [right]
        choices[key] = options + ([""] if schema.get("default") in options else [])
    if arguments:
        raise ValueError(f"canary_parts: {name} takes no {sorted(arguments)}; see tools.json")
    return {"name": name, "arguments": choices}


def item(block: Block, expect: Json | None, tools: list[Json] | None = None) -> Json:
    """Return a canary without id and category: messages, max_tokens, tier by size, and what it expects."""
    messages = [{"role": role, "content": content} for role, content in block.turns]
    size = sum(len(content) for _, content in block.turns) + len(json.dumps(tools or ""))
    tier = "short" if size < SHORT_CHARACTERS else "medium" if size < MEDIUM_CHARACTERS else "long"
    made: Json = {"tier": tier, "messages": messages, "max_tokens": block.max_tokens}
    return made | ({"tools": tools} if tools else {}) | ({"expect": expect} if expect else {})


def filled(block: Block, seed: str, names: dict[str, list[str]]) -> tuple[Block, Json | None]:
    """Return the block with its placeholders drawn, and its `@expect` or `@sum` as an expectation."""
    draw, bound = draws(seed), dict[str, str]()
    turns = tuple((role, render(content, draw, bound, names)) for role, content in block.turns)
    whole = Block(block.max_tokens, block.labels, turns, block.directives)
    summed, expected = block.directive("sum"), block.directive("expect")
    if summed:
        return whole, {"regex": answer_regex(total(summed))}
    if not expected:
        return whole, None
    kind, _, text = expected.partition(" ")
    return whole, {
        kind: render(text.replace("\\n", "\n") if kind == "equals" else text, draw, bound, names, regex=kind == "regex")
    }


def json_items(names: dict[str, list[str]]) -> Iterator[Json]:
    """Each text with its schema, shown as JSON Schema or as people sketch it, and the one answer that fits."""
    shapes = json.loads((PARTS / "json_shapes.json").read_text("utf-8"))
    for at, block in enumerate(read_blocks("json.txt")):
        shape, right = shapes[block.labels[0]], json.loads(block.directive("value") or "null")
        shown = json.dumps(schema_of(shape), separators=(", ", ": ")) if at % 2 else skeleton(shape)
        asked = names["ask_schema" if at % 2 else "ask_sketch"]
        text = f"{block.turns[-1][1]}\n\n{asked[at // 2 % len(asked)]}\n{shown}"
        turns = (*block.turns[:-1], ("user", text))
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | pinned(shape, right)
        yield item(Block(block.max_tokens, block.labels, turns, ()), {"json_schema": schema})


def tool_items() -> Iterator[Json]:
    """Each request with the tools it offers and the exact call or calls it asks for."""
    described = json.loads((PARTS / "tools.json").read_text("utf-8"))
    tools: dict[str, Json] = {
        name: {
            "type": "function",
            "function": {"name": name, "description": what["is"], "parameters": schema_of(what["takes"])},
        }
        for name, what in described.items()
    }
    for block in read_blocks("tools.txt"):
        calls = [expected_call(text, tools) for key, text in block.directives if key == "call"]
        expect: Json = {"tool_call": calls[0]} if len(calls) == 1 else {"tool_calls": calls}
        yield item(block, expect, [tools[label] for label in block.labels])


def long_items(names: dict[str, list[str]]) -> Iterator[Json]:
    """Each passage once as the one that answers, among others drawn around it; no two items open with the same one."""
    blocks = read_blocks("long.txt")
    for at in range(len(blocks)):
        yield next(made for salt in range(1000) if (made := long_item(blocks, at, f"long/{at}/{salt}", names)))


def long_item(blocks: Sequence[Block], at: int, seed: str, names: dict[str, list[str]]) -> Json | None:
    """One retrieval prompt, or None where the answer does not stand in its own passage alone."""
    draw = draws(seed)
    first = (at * 37 + 11) % len(blocks)  # 37 shares no factor with 96: each passage opens one prompt
    limit = LONG_WORDS[0] + next(draw) % (LONG_WORDS[1] - LONG_WORDS[0] - 150)
    chosen, words = [first], len(blocks[first].turns[0][1].split()) + len(blocks[at].turns[0][1].split())
    for other in shuffled(draw, [number for number in range(len(blocks)) if number not in {first, at}]):
        if words >= limit:
            break
        chosen.append(other)
        words += len(blocks[other].turns[0][1].split())
    rest = [*chosen[1:], *([at] if at != first else [])]
    order = [first, *(rest[place] for place in shuffled(draw, range(len(rest))))]
    heading, closing = names["heading"][at % len(names["heading"])], names["closing"][at % len(names["closing"])]
    texts, asked, regex = [], "", ""
    for place, number in enumerate(order, 1):
        bound: dict[str, str] = {}
        title, _, body = render(blocks[number].turns[0][1], draw, bound, names).partition("\n")
        texts.append(f"{heading.format(number=place, letter=chr(64 + place), title=title)}\n{body.strip()}")
        if number == at:
            asked = render(blocks[at].directive("ask") or "", draw, bound, names)
            regex = render(
                (blocks[at].directive("expect") or "").removeprefix("regex "), draw, bound, names, regex=True
            )
    hits = [bool(re.search(regex, text)) for text in texts]
    if hits.count(True) != 1 or not hits[order.index(at)] or re.search(regex, asked):
        return None
    prompt = "\n\n".join(texts) + "\n\n" + closing.format(question=asked)
    return item(Block(blocks[at].max_tokens, (), (("user", prompt),), ()), {"regex": regex})


def write(folder: Path) -> None:
    """Write every set into the folder, byte for byte the same on every machine."""
    names = json.loads((PARTS / "names.json").read_text("utf-8"))
    made = {"json": json_items(names), "tools": tool_items(), "long": long_items(names)}
    made |= {"reasoning": reasoning_items(answer_regex), "languages": language_items(), "sessions": session_items()}
    sets: dict[str, list[Json]] = {name: list(items) for name, items in made.items()}
    for name in (*PLAIN_SETS, "math", "random"):
        seeded = (filled(block, f"{name}/{at}", names) for at, block in enumerate(read_blocks(f"{name}.txt")))
        sets[name] = [item(block, expect) for block, expect in seeded]
    by_turns = zip(*(sets[name][:MIXED_EACH] for name in MIXED_SETS), strict=True)
    sets["mixed"] = [{"category": name} | one for some in by_turns for name, one in zip(MIXED_SETS, some, strict=True)]
    for name, items in sorted(sets.items()):
        lines = [
            json.dumps({"id": f"{name}-{at:03d}", "category": name} | made, ensure_ascii=False)
            for at, made in enumerate(items, 1)
        ]
        content = ("\n".join(lines) + "\n").encode()
        (folder / f"{name}.jsonl").write_bytes(content)
        sys.stderr.write(f"{name}.jsonl: {len(lines)} canaries\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write canaries/*.jsonl from tools/canary_parts/.")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "canaries", help="folder to write into (default: canaries/)"
    )
    write(parser.parse_args().into)
