"""Text for people: foreign text made safe to print, and settings, counts and lists in words."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

QUOTED = 200
"""Characters that are quoted of a text of any length."""
KNOB_NAMES = {"num_draft_tokens": "draft length"}
"""Knobs that reports call by another name."""


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Return *text* with *instead* in place of control characters; line ends stay."""
    return "".join(char if char.isprintable() or char == "\n" else instead for char in text)


_CI_COMMAND = re.compile(r"##(?=\w*\[)")
"""How a command to a CI system may begin anywhere in a line of output; others only count at its begin."""
_LINE_COMMAND = re.compile(r"(?m)((?:^|\s)[^\w\s!-~]*)(:{2,})")
"""Others count at the begin of a line, where one that is wrapped may put any word, after marks that have no width."""
_JSON_UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]|#(?=\\w*\\[)")
"""What JSON may hold as it is, and a terminal or a CI system may obey."""


def one_line(text: str) -> str:
    """Return *text* on one line, without control characters and lone surrogates."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def quote(text: str) -> str:
    """Return the beginning of a foreign text on one line; a CI system finds no `##[command]` in it."""
    return _CI_COMMAND.sub("# #", one_line(text[: 4 * QUOTED]))[:QUOTED]


def printable_error(text: str) -> str:
    """Return a text that may quote others, as an error does, without control characters and commands to a CI system."""
    return without_commands(printable(text))


def without_commands(text: str) -> str:
    """Return *text* in which a CI system finds no command."""
    return _LINE_COMMAND.sub(lambda begin: begin[1] + " ".join(begin[2]), _CI_COMMAND.sub("# #", text))


def quote_lines(text: str) -> str:
    """Return foreign lines as a quotation that is safe to print: a CI system finds no command in it."""
    quotes = map(quote, text.splitlines())
    return "\n".join(f"  | {line}" for line in quotes if line)


def describe_setting(setting: Mapping[str, Any], *, whole: bool = False) -> str:
    """Write a setting in words; *whole* keeps the draft's organisation and the knobs' names in files."""
    if setting.get("draft") is None:
        return "plain decoding"
    knobs = ((knob, value) for knob, value in setting.items() if knob != "draft")
    if whole:
        rest = ", ".join(f"{knob} {value}" for knob, value in knobs)
        return f"{setting['draft']}{f' ({rest})' if rest else ''}"
    return ", ".join((last_part(setting["draft"]), *(f"{knob_name(knob)} {value}" for knob, value in knobs)))


def compare_speed(ratio: float, reference: str) -> str:
    """Write a ratio of speeds: 14 % slower than plain decoding, 2.31x as fast as plain decoding."""
    change = round(100 * abs(ratio - 1))
    if ratio >= 2:
        return f"{ratio:.2f}x as fast as {reference}"
    return f"{change} % {'faster' if ratio > 1 else 'slower'} than {reference}" if change else f"as fast as {reference}"


def knob_name(knob: str) -> str:
    """Return what people call a knob: num_draft_tokens is the draft length."""
    return KNOB_NAMES.get(knob, knob)


def last_part(name: Any) -> str:
    """Return the part of a name after its last slash: a model without its organisation or folder."""
    return str(name).rsplit("/", 1)[-1]


def show_count(count: int, noun: str) -> str:
    """Write a number of things."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def join_names(names: Sequence[str]) -> str:
    """Write names as a sentence does: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def some(names: Sequence[str], most: int = 5) -> str:
    """Write the first of many names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def json_text(document: Any) -> str:
    """Return the text of a JSON file: indented, in UTF-8; raise ValueError for a NaN, which JSON has not."""
    return inert_json(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)) + "\n"


def inert_json(text: str) -> str:
    """Return the same JSON with escapes for what a terminal or a CI system takes for a command."""
    return _JSON_UNSAFE.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


def align_columns(rows: Sequence[Sequence[str]], right: int | None = None) -> list[str]:
    """Write rows with aligned columns; the column *right* is right-aligned, the last one is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number == right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
