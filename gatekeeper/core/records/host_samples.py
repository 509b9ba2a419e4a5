"""Samples of the host: readings of one instant, each with its unit and its source."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of the host in base units; missing is a status, never zero."""

    value: float | str | None
    """The number in the unit beside it, or a word; null where the status is not ok."""
    unit: str
    """B, s, W, Hz, rpm, 1 (a count, a level or a share), or empty for a word."""
    source: str
    """The file or the tool that was read."""
    status: str
    """ok | absent | denied | stale | parse_error"""
    age: float | None = None
    """Seconds since the source was read."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """All readings of the host at one instant."""

    at: str
    """Wall time."""
    at_ns: int
    """When it was taken, on the clock of the answers."""
    values: dict[str, Reading]
    """The readings by name."""
    phase: str = ""
    """The soak; empty outside of it."""
    segment: int = 0
    """Which uninterrupted part of the run."""
    took_ns: int = 0
    """How long taking the sample took."""
    late_ns: int = 0
    """How long after its deadline it was taken."""
