"""A source of host values: a file that is read, a tool that is run, or a stream that is followed."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gatekeeper.core import parse
from gatekeeper.host.tool_commands import Output


class Status(StrEnum):
    """The status of a value that is missing; a missing value is never written as zero."""

    DENIED = "denied"
    """The host has the value, and we may not read it."""
    PARSE_ERROR = "parse_error"
    """The source printed something, but not in a format we know."""
    STALE = "stale"
    """The newest reading is too old, or there is none yet."""
    ABSENT = "absent"
    """This host has no such source."""


Values = dict[str, float | str | Status]
"""One reading of one source: its values by name, in base units."""

UNITS: dict[str, str] = {
    "memory_total": "B", "memory_headroom": "B", "memory_wired": "B", "memory_compressed": "B",
    "memory_uncompressed_demand": "B", "memory_pressure_level": "1", "memory_counted": "B", "gpu_wired_limit": "B",
    "gpu_memory": "B", "gpu_memory_allocated": "B", "swap_used": "B", "swapin_bytes": "B", "swapout_bytes": "B",
    "oom_kills": "1",
    "thermal_level": "1", "thermal_level_powermetrics": "1", "throttle_total": "s", "throttle_events": "1",
    "gpu_power": "W", "cpu_power": "W", "package_power": "W", "system_power": "W",
    "gpu_frequency": "Hz", "gpu_active": "1", "gpu_resets": "1", "fan_speed": "rpm", "subject_footprint": "B",
    "background_cpu": "1", "power_source": "", "power_mode": "",
}  # fmt: skip
"""The values of a sample and their units, in the order of the table; every sample holds all of them."""


MOST = 1e30
"""Larger than any value of a host, in its base unit: sums of such values stay finite."""
MOST_MEMORY = 2.0**42
"""Bytes, eight times the memory of the largest Mac: more was misprinted, and is no reading of a Mac's tool."""
MOST_SWAPPED = 2.0**50
"""Bytes since boot, more than the life of an SSD."""
MOST_POWER, MOST_FREQUENCY, MOST_FAN_SPEED = 2e3, 1e10, 2e4
"""Watts, hertz and rpm that no Mac reaches."""


def number(value: object, *, most: float = MOST) -> float | Status:
    """Return *value* as a finite number between 0 and *most*, or a parse error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Status.PARSE_ERROR
    try:
        finite = float(value)
    except OverflowError:
        return Status.PARSE_ERROR
    return finite if math.isfinite(finite) and 0.0 <= finite <= most else Status.PARSE_ERROR


def parse_number(text: str | None, *, most: float = MOST) -> float | Status:
    """Return the number between 0 and *most* that a tool wrote as *text*; a parse error for anything else."""
    try:
        return number(parse.number(text or ""), most=most)
    except parse.ParseError:
        return Status.PARSE_ERROR


def scale_value(value: float | Status, factor: float, *, most: float = MOST) -> float | Status:
    """Return *value* in another unit; a missing one stays missing, and one larger than *most* is none."""
    return value if isinstance(value, Status) else number(value * factor, most=most)


def find_agreed_text(texts: Iterable[str]) -> str | None:
    """Return the text that all of several printed lines hold; None where there is none, or two contradict."""
    distinct = set(texts)
    return distinct.pop() if len(distinct) == 1 else None


PERIOD_STREAM = 1.0
"""Seconds between two readings of a stream at any sampling interval: the sudoers rule fixes the command line."""


class DirectSource:
    """A source that is read at once: files of the kernel, a system call."""

    name: str
    provides: tuple[str, ...]
    max_reuse: float = 0.0
    """Longest time in seconds for which it may return a reading again instead of taking a new one."""
    reused_age_ns: int = 0
    """The age of the reading that `read` returned last."""

    def read(self) -> Values:
        """Return its values now. OSError makes all of them absent (or denied), ValueError a parse error."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that prints its values and exits."""

    name: str
    provides: tuple[str, ...]
    argv: Callable[[], Sequence[str] | None]
    """Program and arguments; None where there is nothing to measure now."""
    parse: Callable[[Output], Values]
    period: float = 0.0
    """Seconds between two runs; 0 is every sample."""
    limit: float = 2.0
    """Seconds after which it is killed. The other sources are read meanwhile."""
    fallback: bool = False
    """It is run only while the sources before it lack one of its values."""


class Decoder(Protocol):
    """Cuts a stream of bytes, however it is chunked, into readings; an unfinished tail yields nothing."""

    def feed(self, chunk: bytes) -> list[Values]:
        """Return the readings that *chunk* completes."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A command that prints readings until it is stopped."""

    name: str
    provides: tuple[str, ...]
    argv: Callable[[], Sequence[str] | None]
    """Program and arguments; None where this host lacks it."""
    decoder: Callable[[], Decoder]
    """Makes a decoder for each new process."""
    permanent_failure: Callable[[Output], Status | None]
    """Returns why it can never work, or None to restart it; `out` is what it printed after its last reading."""
    silence: float = 5.0
    """Seconds without a reading after which it counts as hung and is restarted."""


Source = DirectSource | Tool | Stream

_REFUSED = (
    "a password is required", "a terminal is required", "not allowed", "may not run", "not in the sudoers",
    "superuser", "not permitted", "permission denied", "must be root", "need root",
)  # fmt: skip


def reports_denial(message: str) -> bool:
    """Return whether a tool's error message means that permission is missing."""
    return any(phrase in message.lower() for phrase in _REFUSED)


def failure(output: Output) -> Status | None:
    """Return why a tool's output is unusable, from its exit code and encoding; None where it exited with 0 and text."""
    if output.code != 0:
        return Status.DENIED if reports_denial(output.messages) else Status.ABSENT
    return Status.PARSE_ERROR if output.text is None else None
