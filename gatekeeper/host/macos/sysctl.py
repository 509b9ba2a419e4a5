"""sysctl: pressure level, swap in use, memory size, the limit of wired GPU memory."""

import re
from collections.abc import Sequence
from functools import partial

from gatekeeper.host.sources import MOST_MEMORY, Status, Tool, Values, number, refused
from gatekeeper.host.tool_commands import Output

MEBIBYTE = 1 << 20

KEYS = {
    "kern.memorystatus_vm_pressure_level": "memory_pressure_level",
    "vm.swapusage": "swap_used",
    "hw.memsize": "memory_total",
    "iogpu.wired_limit_mb": "gpu_wired_limit",
}

_NAMED = re.compile(r"([a-z]+(?:\.\w+)+): (.*)")
_SWAP = re.compile(r"total = (\d+\.\d\d)M\s+used = (\d+\.\d\d)M\s+free = (\d+\.\d\d)M(?:\s+\(encrypted\))?")
ROUNDED_MOST = 0.02
"""Mebibytes by which three sizes of two decimals may miss their sum."""


def lines(output: Output, keys: Sequence[str]) -> dict[str, str | Status]:
    """Return the line of each key of `sysctl -n KEY…`, whose output carries no names.

    A line that names its key all the same belongs to that key. A key this system lacks has no line and is named on
    stderr, so it is left out. If the number of the other lines is not that of the other keys, none of them is trusted.
    A last line without a line end is cut off.
    """
    if output.text is None:
        return dict.fromkeys(keys, Status.PARSE_ERROR)
    *complete, tail = output.text.split("\n")
    output_lines: list[str | Status] = [*complete, *([Status.PARSE_ERROR] if tail else [])]
    line_by_key: dict[str, str | Status] = dict.fromkeys(keys, Status.ABSENT)
    if not output_lines:  # `-i` prints nothing for a missing key, with exit code 0
        return dict.fromkeys(keys, Status.DENIED) if output.code != 0 and refused(output.messages) else line_by_key
    named_lines = {match.group(1): match.group(2) for line in complete if (match := _NAMED.fullmatch(line))}
    bare_lines = [line for line in output_lines if isinstance(line, Status) or not _NAMED.fullmatch(line)]
    unknown = set(re.findall(r"unknown oid '?([\w.]+)'?", output.err.decode("utf-8", "replace")))
    expected = [key for key in keys if key not in unknown and key not in named_lines]
    line_by_key |= {key: value for key, value in named_lines.items() if key in line_by_key}
    if named_lines and not bare_lines:
        return line_by_key
    if len(bare_lines) != len(expected):
        return line_by_key | dict.fromkeys(expected, Status.PARSE_ERROR)
    return line_by_key | dict(zip(expected, bare_lines, strict=True))


def whole(text: str) -> int | None:
    """Return a whole number, None for anything else."""
    return int(text) if re.fullmatch(r"\d{1,19}", text.strip()) else None


def parse(output: Output, keys: Sequence[str] = tuple(KEYS)) -> Values:
    """Return the values in base units."""
    if output.code < 0:
        return dict.fromkeys([KEYS[key] for key in keys], Status.ABSENT)
    return {KEYS[key]: _value(key, line) for key, line in lines(output, keys).items()}


def _value(key: str, line: str | Status) -> float | Status:
    if isinstance(line, Status):
        return line
    if key == "vm.swapusage":
        return _swap_used(line.strip())
    count = whole(line)
    return Status.PARSE_ERROR if count is None else value_of(key, count)


def _swap_used(line: str) -> float | Status:
    """Return the bytes of swap in use; a parse error where used and free are not the total."""
    match = _SWAP.fullmatch(line)
    if match is None:
        return Status.PARSE_ERROR
    total, used, free = map(float, match.groups())
    return number(used * MEBIBYTE, most=MOST_MEMORY) if abs(total - used - free) < ROUNDED_MOST else Status.PARSE_ERROR


def value_of(key: str, count: int) -> float | Status:
    """Return the value of a key whose value is a whole number, in base units."""
    if key == "kern.memorystatus_vm_pressure_level":
        return float(count) if count in (1, 2, 4) else Status.PARSE_ERROR
    if key == "iogpu.wired_limit_mb":
        return number(count * MEBIBYTE, most=MOST_MEMORY) if count else Status.ABSENT  # 0 means the system's default
    return number(count, most=MOST_MEMORY) if count else Status.PARSE_ERROR


def _tool(key: str, period: float) -> Tool:
    return Tool(
        f"sysctl {key}", (KEYS[key],), lambda: ["sysctl", "-n", key], partial(parse, keys=(key,)), period=period
    )


# One call for each key, so that no value can be taken for that of another key on systems that lack one.
TOOLS = (
    _tool("kern.memorystatus_vm_pressure_level", 0.0),
    _tool("vm.swapusage", 0.0),
    _tool("hw.memsize", 60.0),
    _tool("iogpu.wired_limit_mb", 60.0),
)
