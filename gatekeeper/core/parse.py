"""Foreign text becomes a value here: JSON, TOML, whole and finite numbers, instants; within limits, with one error.

Files, servers, tools and remote hosts may write anything. What passes here can be computed with, written as JSON in
UTF-8, and walked through by recursion, without another check of its size.
"""

import json
import math
import re
import secrets
import tomllib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from pydantic_core import from_json

JSON_BYTES = 64 << 20
"""Bytes of one JSON text; the answers that we measure have under a hundredth of it."""
TOML_CHARACTERS = 256 << 10
"""Characters of one TOML file; a long SLO file has a tenth of it."""
DEPTH = 100
"""Lists and tables inside each other. Recursion over a value takes up to eight frames a level; Python allows 1,000."""
WHOLE = 2**64
"""Whole numbers are smaller in size: every counter and seed of a server fits, and each can become a float."""
COUNTS = range(2**53)
"""Counts of tokens and rounds: floats hold them exactly, and their sums fit into 64 bits."""
YEARS = range(1970, 3000)
"""Years of an instant: no validity added to it, and no time zone, leaves what Python can hold."""

_BETWEEN = secrets.randbits(48)
_KINDS = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE = (b"0" * 20, b"e000", b"e+000")
"""One of them is in every text with a number out of range, once digits are 0: only such texts are searched for one.

Looking for fixed bytes takes a tenth of a regular expression's time, and this is done for each chunk of an answer.
"""
_TOO_DEEP = f"nested more than {DEPTH} levels deep"
_UNUSUAL = re.compile(r"[0-9_]{20}|0[xob][0-9A-Fa-f_]{16}|[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""What a line of TOML with a number or a date out of range holds."""
_DOTS = 200
"""Dots in one line of TOML: a dotted key takes time and memory with the square of its parts."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class ParseError(ValueError):
    """A foreign text is not what it must be. The message says what is wrong; the caller adds where."""


def json_value(text: str | bytes, *, most: int = JSON_BYTES, from_server: bool = False) -> Any:
    """Return the value of a JSON *text* of at most *most* bytes; raise ParseError for anything else.

    Refused are NaN and infinities, whole numbers of more than 64 bits, numbers too large for a float, and more than
    DEPTH levels; also half a surrogate pair, which UTF-8 cannot hold. Where a key is repeated, the last value counts.

    *from_server*: a server may send a character in two pieces, so halves are kept; and those written in Python send NaN
    and infinities where they divide by zero, which become None.
    """
    if len(text) > most:
        raise ParseError(f"longer than {most} bytes")
    try:
        value = from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError) as error:
        if not from_server:
            problem = "half a surrogate pair" if isinstance(error, TypeError) else str(error)
            raise ParseError(f"not JSON: {problem.replace(' at line 1 column', ' at column')}") from error
        value = _lenient(text)
    else:
        if _is_small(text):
            return value
    _check(value)
    return value


def json_values(texts: Sequence[bytes]) -> list[Any] | None:
    """Return the value of each of the JSON *texts*, all parsed at once; None where `json_value` has to look at each.

    A secret number stands between them, so that no text can end in the next one.
    """
    joined = (b",%d," % _BETWEEN).join(texts)
    crowded = any(text.count(b"[") + text.count(b"{") > DEPTH for text in texts)
    if not texts or crowded or len(joined) > JSON_BYTES or _has_large_numbers(joined):
        return None
    try:
        values: list[Any] = from_json(b"[%b]" % joined, allow_inf_nan=False)
    except (ValueError, TypeError):
        return None
    alone = len(values) == 2 * len(texts) - 1 and values[1::2] == [_BETWEEN] * (len(texts) - 1)
    return values[::2] if alone else None


def json_object(text: str | bytes, *, most: int = JSON_BYTES) -> dict[str, Any]:
    """Return the object that a JSON *text* holds, as `json_value` does; raise ParseError for anything else."""
    value = json_value(text, most=most)
    if not isinstance(value, dict):
        raise ParseError("not a JSON object")
    return value


def _lenient(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {error if isinstance(error, ValueError) else _TOO_DEEP}") from error


def check_whole_numbers(text: bytes) -> None:
    """Raise ParseError where a JSON *text* has a whole number of more than 64 bits; it need not be JSON to pass."""
    if _LARGE[0] in text.translate(_KINDS):
        json_value(text)


def _is_small(text: str | bytes) -> bool:
    """Return whether *text* cannot hold anything out of range, from a look that costs less than parsing it."""
    plain = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return plain.count(b"[") + plain.count(b"{") <= DEPTH and not _has_large_numbers(plain)


def _has_large_numbers(text: bytes) -> bool:
    digits = text.translate(_KINDS)
    return any(large in digits for large in _LARGE)


def _check(value: Any, *, finite: bool = True) -> None:
    """Raise ParseError for a parsed value that is out of range or nested too deeply; it does not recurse."""
    level, depth = [value], 0
    while level:
        if depth > DEPTH:
            raise ParseError(_TOO_DEEP)
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                deeper += node.values()
            elif isinstance(node, list):
                deeper += node
            elif isinstance(node, int) and not -WHOLE < node < WHOLE:
                raise ParseError("a whole number has more than 64 bits")
            elif finite and isinstance(node, float) and not math.isfinite(node):
                raise ParseError("a number is too large")
            elif isinstance(node, date) and node.year not in YEARS:
                raise ParseError(f"the year {node.year} is not between {YEARS[0]} and {YEARS[-1]}")
        level, depth = deeper, depth + 1


def toml_table(text: str) -> dict[str, Any]:
    """Return the table that a TOML *text* holds; raise ParseError, which names the line.

    Depth and whole numbers have the limits of JSON. TOML has infinities and NaN: they are left to the reader of a key.
    """
    if len(text) > TOML_CHARACTERS:
        raise ParseError(f"longer than {TOML_CHARACTERS} characters")
    lines = text.split("\n")
    if crowded := next((number for number, line in enumerate(lines, start=1) if line.count(".") > _DOTS), None):
        raise ParseError(f"more than {_DOTS} dots (at line {crowded})")
    try:
        text.encode()
        table = tomllib.loads(text)
        _check(table, finite=False)
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"not TOML: {error}") from error
    except UnicodeEncodeError as error:
        raise ParseError(f"half a surrogate pair (at line {text.count(chr(10), 0, error.start) + 1})") from error
    except RecursionError as error:
        raise ParseError(f"{_TOO_DEEP} (at line {_unusual_line(lines)})") from error
    except ValueError as error:  # ours, or Python's of a whole number of over 4,300 digits
        problem = error if isinstance(error, ParseError) else "a whole number has too many digits"
        raise ParseError(f"{problem} (at line {_unusual_line(lines)})") from error
    return table


def _unusual_line(lines: Sequence[str]) -> int:
    """Return the number of the line with a long number, a date, or where brackets nest too deeply; else 1."""
    depth = 0
    for number, line in enumerate(lines, start=1):
        depth += line.count("[") + line.count("{") - line.count("]") - line.count("}")
        if line.count("[") + line.count("{") + max(0, depth) > DEPTH or _UNUSUAL.search(line):
            return number
    return 1


def integer(text: str) -> int:
    """Return the whole number that *text* is, in decimal ASCII digits with a sign or none; raise ParseError."""
    digits = text.strip()  # also of separators that int() does not take
    if not _INTEGER.fullmatch(digits) or not -WHOLE < int(digits) < WHOLE:
        raise ParseError(f"{_quote_start(text)} is not a whole number of up to 64 bits")
    return int(digits)


def number(text: str) -> float:
    """Return the finite number that *text* is, in decimal ASCII digits; raise ParseError, also for NaN."""
    digits = text.strip()
    value = float(digits) if _NUMBER.fullmatch(digits) else math.inf
    if not math.isfinite(value):
        raise ParseError(f"{_quote_start(text)} is not a finite number")
    return value


def moment(text: str) -> datetime:
    """Return the instant that an ISO 8601 *text* with a zone names, in UTC; raise ParseError."""
    try:
        instant = datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise ParseError(f"{_quote_start(text)} is not a date and time") from error
    if instant.tzinfo is None or instant.year not in YEARS:
        requirement = f"a year between {YEARS[0]} and {YEARS[-1]}" if instant.tzinfo is not None else "a time zone"
        raise ParseError(f"{_quote_start(text)} has not {requirement}")
    return instant.astimezone(UTC)


def _quote_start(text: object) -> str:
    return ascii(text if len(str(text)) <= 40 else f"{str(text)[:40]}…")
