"""sysctl: pressure level, swap in use, memory size, the limit of wired GPU memory."""

import re
from collections.abc import Sequence

from gatekeeper.host.source import Output, Tool, lacking, refused
from gatekeeper.host.values import Found, Lack

MEBIBYTE = 1 << 20

KEYS = {
    "kern.memorystatus_vm_pressure_level": "memory_pressure_level",
    "vm.swapusage": "swap_used",
    "hw.memsize": "memory_total",
    "iogpu.wired_limit_mb": "gpu_wired_limit",
}

_SWAP = re.compile(r"total = \d+\.\d\dM\s+used = (\d+\.\d\d)M\s+free = \d+\.\d\dM(?:\s+\(encrypted\))?")


def lines(output: Output, keys: Sequence[str]) -> dict[str, str | Lack]:
    """Return the line of each key of `sysctl -n KEY…`, whose output carries no names.

    A key this system lacks leaves no line and is named on stderr, so it is taken out before lines are counted; if they
    do not match the keys then, no line is trusted. A last line without its end is cut off.
    """
    if output.text is None:
        return dict.fromkeys(keys, Lack.PARSE_ERROR)
    unknown = set(re.findall(r"unknown oid '?([\w.]+)'?", output.err.decode("utf-8", "replace")))
    asked = [key for key in keys if key not in unknown]
    *whole, tail = output.text.split("\n")
    given: list[str | Lack] = [*whole, *([Lack.PARSE_ERROR] if tail else [])]
    found: dict[str, str | Lack] = dict.fromkeys(keys, Lack.ABSENT)
    if not given and output.code != 0:
        return dict.fromkeys(keys, Lack.DENIED) if refused(output.said) else found
    if len(given) != len(asked):
        return found | dict.fromkeys(asked, Lack.PARSE_ERROR)
    return found | {key: _bare(key, line) for key, line in zip(asked, given, strict=True)}


def _bare(key: str, line: str | Lack) -> str | Lack:
    # Some replacements print `key: value` all the same; the name of another key stays, and will not parse.
    return line if isinstance(line, Lack) else line.removeprefix(f"{key}: ")


def whole(text: str) -> int | None:
    """Return a whole number, None for anything else."""
    return int(text) if re.fullmatch(r"\d{1,19}", text.strip()) else None


def parse(output: Output) -> Found:
    """Return the values in base units."""
    if output.code < 0:
        return lacking(tuple(KEYS.values()), Lack.ABSENT)
    return {KEYS[key]: _value(key, line) for key, line in lines(output, tuple(KEYS)).items()}


def _value(key: str, line: str | Lack) -> float | Lack:
    if isinstance(line, Lack):
        return line
    if key == "vm.swapusage":
        match = _SWAP.fullmatch(line.strip())
        return float(match.group(1)) * MEBIBYTE if match else Lack.PARSE_ERROR
    number = whole(line)
    if number is None:
        return Lack.PARSE_ERROR
    if key == "kern.memorystatus_vm_pressure_level":
        return float(number) if number in (1, 2, 4) else Lack.PARSE_ERROR
    if key == "iogpu.wired_limit_mb":
        return float(number * MEBIBYTE) if number else Lack.ABSENT  # 0 is the system's default, not a limit of zero
    return float(number) if number else Lack.PARSE_ERROR


TOOL = Tool("sysctl", tuple(KEYS.values()), lambda: ["sysctl", "-n", *KEYS], parse)
