"""Host samples in columns: as they were, from samples and from lines of a record file."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.system import record_files
from gatekeeper.core.system.record_files import SAMPLES

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
    found = record_files.read_records(path, SAMPLES)
    return list(found.records), found.trouble


@given(st.lists(SAMPLE, max_size=6))
def test_samples_are_those_that_were_appended(samples: list[HostSample]) -> None:
    """
    Every value, text, status, age and moment comes back, by sample and by slice.
    """
    columns = HostColumns.of(samples)

    assert samples == list(columns)
    assert samples[1:4] == list(columns[1:4])
    assert [one.values.get("fan") for one in samples] == list(columns.readings("fan"))


@given(sample=SAMPLE, others=st.lists(st.tuples(WHOLE, FINITE, FINITE), max_size=5))
def test_lines_read_like_samples(
    tmp_path_factory: pytest.TempPathFactory, sample: HostSample, others: list[tuple[int, float, float]]
) -> None:
    """
    A line of a form that was seen before is read as JSON is, whatever its numbers.
    """
    samples = [sample]
    for at_ns, value, age in others:
        values = sample.values | {"swap_used": Reading(value, "B", "/proc/meminfo", "ok", age)}
        samples.append(HostSample(sample.at, at_ns, values, sample.phase, 3))

    found, trouble = read(tmp_path_factory.mktemp("run") / "host.jsonl", [line_of(one) for one in samples])

    assert (samples, None) == (found, trouble)


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
        (b'"at_ns":2', b'"at_ns":99999999999999999999'),
        (b'"at":"2026', b'"at":"\xff026'),
        (b'"at":"2026', b'"at":"\n026'),
        (b'"unit":"rpm"', b'"unit":rpm'),
        (b'"late_ns":9}', b'"late_ns":9'),
    ],
)
def test_a_damaged_line_is_damage_after_any_number_of_whole_ones(tmp_path: Path, before: bytes, after: bytes) -> None:
    """
    What JSON or the type of a field forbids is damage, also in a line whose form was seen before.
    """
    lines = [line_of(sample_at(number, 5e9 + number - 1)) for number in range(4)]
    assert before in lines[2]
    lines[2] = lines[2].replace(before, after)

    found, trouble = read(tmp_path / "host.jsonl", lines)

    assert "line 3 is damaged" == trouble
    assert [sample_at(0, 5e9 - 1), sample_at(1, 5e9)] == found


def test_what_a_line_adds_to_its_form_counts(tmp_path: Path) -> None:
    """
    A value that turns from a number into nothing, and a line in another order, are read as they are.
    """
    samples = [sample_at(0), sample_at(1, None), sample_at(2)]
    document = json.loads(line_of(sample_at(3)))
    turned = json.dumps(dict(reversed(document.items()))).encode() + b"\n"

    found, trouble = read(tmp_path / "host.jsonl", [*map(line_of, samples), turned])

    assert ([*samples, sample_at(3)], None) == (found, trouble)
