"""Host samples in columns: as they were, from samples and from lines of a record file."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.system import record_files
from gatekeeper.core.system.record_files import SAMPLES, RecordWriter

FINITE = st.floats(allow_nan=False, allow_infinity=False)
STATUS = st.sampled_from(["ok", "absent", "denied"])
READINGS = st.builds(
    Reading,
    FINITE | st.none() | st.text(max_size=5),
    st.text(max_size=2),
    st.text(max_size=9),
    STATUS,
    FINITE | st.none(),
)
WHOLE = st.integers(-(2**63), 2**63 - 1)
SAMPLE = st.builds(
    HostSample,
    st.text(max_size=30),
    WHOLE,
    st.dictionaries(st.sampled_from(["swap_used", "fan", "power_source"]), READINGS),
    st.text(max_size=9),
    *[WHOLE] * 3,
)


def line_of(sample: HostSample) -> bytes:
    return SAMPLES.dump_json(sample) + b"\n"


def read(path: Path, lines: Sequence[bytes]) -> tuple[list[HostSample], str | None]:
    """Return the samples of a record file with these lines, and what is wrong with it."""
    path.write_bytes(b"".join(lines) + json.dumps({"end": True, "records": len(lines)}).encode() + b"\n")
    records = record_files.read_records(path, SAMPLES)
    return list(records.records), records.trouble


@given(st.lists(SAMPLE, max_size=6))
def test_samples_are_those_that_were_appended(samples: list[HostSample]) -> None:
    """Every value, text, status, age and moment comes back, by sample and by slice."""
    columns = HostColumns.of(samples)

    assert samples == list(columns)
    assert samples[1:4] == list(columns[1:4])


@given(sample=SAMPLE, later_readings=st.lists(st.tuples(WHOLE, FINITE | st.none(), FINITE), max_size=5))
def test_samples_that_were_recorded_are_read_again(
    tmp_path_factory: pytest.TempPathFactory, sample: HostSample, later_readings: list[tuple[int, float | None, float]]
) -> None:
    """Whatever their numbers, and where a value comes and goes; in full lines, and in short."""
    samples = [sample]
    for at_ns, value, age in later_readings:
        values = sample.values | {"swap_used": Reading(value, "B", "/proc/meminfo", "ok", age)}
        samples.append(HostSample(sample.at, at_ns, values, sample.phase, 3))
    folder = tmp_path_factory.mktemp("run")

    in_full = read(folder / "in-full.jsonl", [line_of(sample) for sample in samples])

    assert (samples, None) == in_full == recorded(folder / "host.jsonl", samples)


def recorded(path: Path, samples: Sequence[HostSample]) -> tuple[list[HostSample], str | None]:
    """Return what is read of the samples that one writer wrote."""
    writer = RecordWriter(path, SAMPLES)
    for sample in samples:
        writer(sample)
    writer.finish()
    stored = record_files.read_records(path, SAMPLES)
    return list(stored.records), stored.trouble


def test_a_minute_has_one_full_line(tmp_path: Path) -> None:
    """Damage to it costs that minute, and what goes on in a file begins with a full line."""
    path = tmp_path / "host.jsonl"
    samples = [replace(sample_at(0), at_ns=number) for number in range(150)]
    recorded(path, samples[:130])
    writer = RecordWriter(path, SAMPLES)
    writer.reopen()
    for sample in samples[130:]:
        writer(sample)
    writer.finish()
    lines = path.read_bytes().splitlines(keepends=True)

    assert [0, 60, 120, 130] == [number for number, line in enumerate(lines) if b'"unit"' in line]
    assert max(map(len, lines[1:60])) < len(lines[0]) / 2
    path.write_bytes(b"".join([*lines[:60], b"?" + lines[60][1:], *lines[61:]]))
    mended = RecordWriter(path, SAMPLES)
    assert "line 61 is damaged" == mended.damage
    assert [*samples[:60], *samples[120:]] == list(mended.records)


def sample_at(number: int, value: float | None = 5e9) -> HostSample:
    readings = {
        "swap_used": Reading(value, "B", "vm:3,stat", "ok", 0.25),
        "fan": Reading(None, "rpm", "none", "absent"),
    }
    return HostSample(f"2026-01-01T00:00:{number:02}Z", number, readings, "soak-1", 0, 7, 9)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"value":5000000001.0', b'"value":05000000001.0'),
        (b'"value":5000000001.0', b'"value":5000000001.'),
        (b'"value":5000000001.0', b'"value":+5000000001.0'),
        (b'"value":5000000001.0', b'"value":5_000'),
        (b'"value":5000000001.0', b'"value":'),
        (b'"at_ns":2', b'"at_ns":2.5'),
        (b'"at_ns":2', b'"at_ns":20000000000000000000'),
        (b'"at_ns":2', b'"at_ns":99999999999999999999'),
        (b'"at":"2026', b'"at":"\xff026'),
        (b'"at":"2026', b'"at":"\n026'),
        (b'"unit":"rpm"', b'"unit":rpm'),
        (b'"late_ns":9}', b'"late_ns":9'),
    ],
)
def test_a_damaged_line_is_damage_after_any_number_of_whole_ones(tmp_path: Path, before: bytes, after: bytes) -> None:
    """What JSON or the type of a field forbids is damage, also after lines of the same layout."""
    lines = [line_of(sample_at(number, 5e9 + number - 1)) for number in range(4)]
    assert before in lines[2]
    lines[2] = lines[2].replace(before, after)

    samples, trouble = read(tmp_path / "host.jsonl", lines)

    assert "line 3 is damaged" == trouble
    assert [sample_at(0, 5e9 - 1), sample_at(1, 5e9)] == samples


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"like":1', b'"like":9'),
        (b'"like":1', b'"like":null'),
        (b'"numbers":[', b'"numbers":[1.0,'),
        (b'"numbers":[5000000001.0', b'"numbers":["5"'),
        (b'"numbers":[5000000001.0', b'"numbers":[NaN'),
        (b'"numbers":[5000000001.0', b'"numbers":[1e400'),
        (b'"numbers":[5000000001.0', b'"numbers":[' + b"9" * 400),
        (b'"numbers":[5000000001.0', b'"numbers":[[5.0]'),
        (b'"numbers":[5000000001.0,0.25]', b'"numbers":"55"'),
        (b'"numbers":[5000000001.0,0.25]', b'"numbers":2'),
        (b'"at":"2026-01-01T00:00:02Z"', b'"at":2026'),
        (b'"phase":"soak-1"', b'"phase":null'),
        (b'"at_ns":2', b'"at_ns":2.5'),
        (b'"at_ns":2', b'"at_ns":20000000000000000000'),
        (b'"at_ns":2,', b""),
    ],
)
def test_a_damaged_short_line_is_damage(tmp_path: Path, before: bytes, after: bytes) -> None:
    """One that refers to no line before it, has another count of numbers, or a field of another type."""
    path = tmp_path / "host.jsonl"
    samples = [sample_at(number, 5e9 + number - 1) for number in range(1, 4)]
    recorded(path, samples)
    lines = path.read_bytes().splitlines(keepends=True)
    assert before in lines[1]
    path.write_bytes(b"".join([lines[0], lines[1].replace(before, after), *lines[2:]]))

    stored = record_files.read_records(path, SAMPLES)

    assert ("line 2 is damaged", samples[:1]) == (stored.trouble, list(stored.records))


def test_large_numbers_are_read_though_their_sum_is_not_finite() -> None:
    """Each number counts for itself: two of 1e308 are a sample, one that is infinite is none."""
    columns = HostColumns()
    values = {name: Reading(1e308, "B", "made", "ok") for name in ("memory_headroom", "swap_used")}
    layout = columns.append(HostSample("2026-01-01T00:00:00Z", 0, values))

    columns.append_numbers(layout, [1e308, 1e308], "2026-01-01T00:00:01Z", "", 0, 0, 0, 0)

    with pytest.raises(ValueError, match="not a sample"):
        columns.append_numbers(layout, [1e308, float("inf")], "2026-01-01T00:00:02Z", "", 0, 0, 0, 0)
