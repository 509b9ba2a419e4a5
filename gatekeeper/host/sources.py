"""A source of host values: a file that is read, a tool that is run, or a stream that is followed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gatekeeper.host.commands import Output


class Status(StrEnum):
    """The status of a value that is missing; a missing value is never written as zero."""

    DENIED = "denied"
    """The host has it and refuses to show it."""
    PARSE_ERROR = "parse_error"
    """The source answered, but not in the format we know."""
    STALE = "stale"
    """The source has not answered in time."""
    ABSENT = "absent"
    """This host has no such source."""


Values = dict[str, float | str | Status]
"""What one reading of one source yields, by value name, in base units."""

UNITS: dict[str, str] = {
    "memory_total": "B",
    "memory_headroom": "B",
    "memory_wired": "B",
    "memory_compressed": "B",
    "memory_uncompressed_demand": "B",
    "memory_pressure_level": "1",
    "memory_free_share": "1",
    "gpu_wired_limit": "B",
    "gpu_memory": "B",
    "swap_used": "B",
    "swapin_bytes": "B",
    "swapout_bytes": "B",
    "oom_kills": "1",
    "thermal_level": "1",
    "thermal_level_powermetrics": "1",
    "throttle_total": "s",
    "throttle_events": "1",
    "cpu_speed_limit": "1",
    "gpu_power": "W",
    "cpu_power": "W",
    "package_power": "W",
    "system_power": "W",
    "gpu_frequency": "Hz",
    "gpu_active": "1",
    "gpu_resets": "1",
    "fan_speed": "rpm",
    "subject_footprint": "B",
    "background_cpu": "1",
    "power_source": "",
    "power_mode": "",
}
"""Every value a sample holds, always all of them; the table's order."""


def number(value: object, *, least: float = 0.0, most: float = math.inf) -> float | Status:
    """Return *value* as a finite number within its possible range, or a parse error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Status.PARSE_ERROR
    try:
        found = float(value)
    except OverflowError:
        return Status.PARSE_ERROR
    return found if math.isfinite(found) and least <= found <= most else Status.PARSE_ERROR


def scaled(value: float | Status, factor: float) -> float | Status:
    """Return *value* in another unit; a missing one stays missing."""
    return value if isinstance(value, Status) else value * factor


PERIOD_STREAM = 1.0
"""Seconds between two items of a stream, whatever the interval: sudoers pins the command lines."""


class DirectSource:
    """A source that answers at once: files of the kernel, a system call."""

    name: str
    provides: tuple[str, ...]
    max_reuse: float = 0.0
    """Longest time in seconds for which it may return a reading again instead of taking a new one."""
    reused_age_ns: int = 0
    """How old the reading is that `read` returned last."""

    def read(self) -> Values:
        """Return its values now. OSError makes all of them absent (or denied), ValueError a parse error."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that prints its values and exits."""

    name: str
    provides: tuple[str, ...]
    argv: Callable[[], Sequence[str] | None]
    """Program and arguments; None when there is nothing to measure just now."""
    parse: Callable[[Output], Values]
    period: float = 0.0
    """Seconds between two runs; 0 is every sample."""
    limit: float = 2.0
    """Seconds after which it is killed. It does not delay the others, which are read meanwhile."""


class Decoder(Protocol):
    """Cuts a stream of bytes, however it is chunked, into readings; an unfinished tail yields nothing."""

    def feed(self, chunk: bytes) -> list[Values]:
        """Return the readings that *chunk* completes."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A command that prints its values again and again until it is stopped."""

    name: str
    provides: tuple[str, ...]
    argv: Callable[[], Sequence[str] | None]
    """Program and arguments; None where this host lacks it."""
    decoder: Callable[[], Decoder]
    """Makes a fresh decoder for a fresh process."""
    permanent_failure: Callable[[Output], Status | None]
    """Returns why it will never work, or None to start it again; `out` is what it printed after its last reading."""
    silence: float = 5.0
    """Seconds without a reading after which it is taken for hung and started again."""


Source = DirectSource | Tool | Stream

_REFUSED = (
    "a password is required",
    "a terminal is required",
    "not allowed",
    "may not run",
    "not in the sudoers",
    "superuser",
    "not permitted",
    "permission denied",
    "must be root",
    "need root",
)


def refused(message: str) -> bool:
    """Tell whether a tool's complaint means that it was not allowed to answer."""
    return any(phrase in message.lower() for phrase in _REFUSED)


def failure(output: Output) -> Status | None:
    """Judge a tool by its end alone: None when it exited well and printed text."""
    if output.code != 0:
        return Status.DENIED if refused(output.messages) else Status.ABSENT
    return Status.PARSE_ERROR if output.text is None else None
