"""A host sample as one row of a table: a value where it was read, and the reason where it was not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gatekeeper.core.records import HostSample, Reading

SUFFIXES = {"B": "bytes", "s": "s", "W": "w", "Hz": "hz", "rpm": "rpm"}
"""How the name of a column ends, by the unit of its readings; counts, levels, shares and words have no unit."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One sample of the host; None is a value that could not be read, never 0."""

    run: str
    """The name of the run's folder."""
    at: str
    """Wall time."""
    at_ns: int
    """Answers have the same clock."""
    phase: str | None
    """The soak, which is the `trial` of its answers; None outside of one."""
    segment: int
    """Which uninterrupted part of the run."""
    took_ms: float
    """How long taking it took."""
    late_ms: float
    """How long after its deadline."""
    values: Mapping[str, float | str | None]
    """By [name](#names-of-readings) and unit: `memory_headroom_bytes`, `gpu_power_w`; in a table a column each."""
    missing: str | None
    """`gpu_power denied, fan_speed absent`."""


def column_of(name: str, unit: str) -> str:
    """Return the name of a reading's column, which ends in its unit."""
    suffix = SUFFIXES.get(unit, "")
    return name if not suffix or name.endswith(f"_{suffix}") else f"{name}_{suffix}"


def sample_rows(run: str, samples: Iterable[HostSample]) -> Iterator[SampleRow]:
    """Yield a row a sample."""
    for sample in samples:
        missing = (f"{name} {reading.status}" for name, reading in sample.values.items() if _value(reading) is None)
        yield SampleRow(
            run=run,
            at=sample.at,
            at_ns=sample.at_ns,
            phase=sample.phase or None,
            segment=sample.segment,
            took_ms=sample.took_ns / 1e6,
            late_ms=sample.late_ns / 1e6,
            values={column_of(name, reading.unit): _value(reading) for name, reading in sample.values.items()},
            missing=", ".join(missing) or None,
        )


def _value(reading: Reading) -> float | str | None:
    return reading.value if reading.status == "ok" else None
