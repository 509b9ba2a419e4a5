"""Record files: what is written comes back, and whatever is damaged, cut off or missing is noticed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.records import Answer, Event, EventKind, Generation, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.system import record_files
from gatekeeper.run.events import EventRecorder
from tests.builders.disk import largest_file


def event(number: int, text: str = "") -> Event:
    return Event(f"2026-01-01T00:00:{number:02}.000000Z", EventKind.WARNING, {"number": number, "text": text})


def test_an_event_has_one_of_the_kinds_that_are_listed(tmp_path: Path) -> None:
    """A kind cannot be written as a text, by its type; a line of an unknown one is damaged, and never a quiet event."""
    path = written(tmp_path / "events.jsonl", finish=False)
    with path.open("ab") as file:
        file.write(b'{"at":"now","kind":"comet","detail":{}}\n')

    assert EventKind is get_type_hints(Event)["kind"] is get_type_hints(EventRecorder.__call__)["kind"]
    assert "line 4 is damaged" == record_files.read_records(path, record_files.EVENTS).trouble


def written(path: Path, count: int = 3, *, finish: bool = True) -> Path:
    with_lines = record_files.RecordWriter(path, record_files.EVENTS)
    for number in range(count):
        with_lines(event(number))
    if finish:
        with_lines.finish()
    with_lines.close()
    return path


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    """A record with every field set is the same after writing and reading."""
    generation = Generation(
        trial="soak-1",
        key="1:easy/a",
        workload="easy",
        canary="a",
        arm="candidate",
        setting=setting(draft="heavy", num_draft_tokens=4, thinking=None),
        role=Role.BASELINE,
        repeat=1,
        pair="p",
        concurrency=2,
        answer=Answer(
            1,
            9,
            (Arrival(2, 1, drafted=True, token_id=7), Arrival(3)),
            text="line\nbreak \u2028 ✓",
            tool_calls=({"function": {"name": "f", "arguments": "{}"}},),
            finish="stop",
            output_tokens=2,
            rounds=Rounds(1, 4, 1, (1,), (1,)),
        ),
        segment=3,
        at="now",
    )
    file = record_files.RecordWriter(tmp_path / "a.jsonl", record_files.ANSWERS)

    file(generation)
    file.finish()

    loaded = record_files.read_records(tmp_path / "a.jsonl", record_files.ANSWERS)
    assert (None, (generation,)) == (loaded.trouble, loaded.records)
    assert isinstance(loaded.records[0].answer.arrivals[0], Arrival)


def test_the_closing_line_counts(tmp_path: Path) -> None:
    """The last line of a finished file says how many records it holds; a finished file takes no more."""
    path = written(tmp_path / "a.jsonl")

    assert {"end": True, "records": 3} == json.loads(path.read_text().splitlines()[-1])
    again = record_files.RecordWriter(path, record_files.EVENTS)
    assert (True, 3) == (again.finished, len(again.records))
    assert record_files.read_records(written(tmp_path / "none.jsonl", 0), record_files.EVENTS).trouble is None
    assert "missing" == record_files.read_records(tmp_path / "gone.jsonl", record_files.EVENTS).trouble
    with pytest.raises(GatekeeperError):
        again(event(9))


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "its closing line is gone": (lambda lines: lines[:-1], 3),
    "its tail is cut": (lambda lines: [*lines[:2], lines[2][:9]], 2),
    "a record is gone": (lambda lines: [lines[0], *lines[2:]], 2),
    "a record is doubled": (lambda lines: [lines[0], *lines], 4),
    "its closing line is doubled": (lambda lines: [*lines, lines[-1]], 3),
    "records follow its closing line": (lambda lines: [*lines, lines[0]], 3),
    "a line is not JSON": (lambda lines: [lines[0], b"{]\n", *lines[1:]], 1),
    "a line is another kind": (lambda lines: [lines[0], b'{"at": 3}\n', *lines[1:]], 1),
    "a line is not UTF-8": (lambda lines: [lines[0], b'{"at": "\xff"}\n', *lines[1:]], 1),
    "the count is no number": (lambda lines: [*lines[:-1], b'{"end": true, "records": "3"}\n'], 3),
    "the closing line is cut": (lambda lines: [*lines[:-1], lines[-1][:-1]], 3),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    """Every way a file can be cut, patched or doubled is trouble; what is whole before it is still read."""
    path = written(tmp_path / "a.jsonl")
    change, count_left = DAMAGE[damage]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    loaded = record_files.read_records(path, record_files.EVENTS)

    assert loaded.trouble
    assert count_left == len(loaded.records)


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_is_noticed(tmp_path: Path, share: float) -> None:
    """Wherever a file ends early it is trouble, and no record is made up."""
    path = tmp_path / "a.jsonl"
    path.unlink(missing_ok=True)
    content = written(path).read_bytes()
    path.write_bytes(content[: int(share * len(content))])

    loaded = record_files.read_records(path, record_files.EVENTS)

    assert loaded.trouble
    assert loaded.records == tuple(event(number) for number in range(len(loaded.records)))


def test_a_line_longer_than_any_record_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end, which may be gigabytes away; the records before it stay."""
    monkeypatch.setattr(record_files, "MOST_LINE", 1000)
    path = written(tmp_path / "a.jsonl", 2, finish=False)
    with path.open("ab") as file:
        file.write(bytes(2000))

    stored = record_files.read_records(path, record_files.EVENTS)

    assert (2, "line 3 is longer than 1000 bytes", True) == (len(stored.records), stored.trouble, stored.damaged)


def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    """It is our error, code 4, naming the file; whole records stay and a resume continues."""
    path = tmp_path / "a.jsonl"

    with largest_file(700), pytest.raises(GatekeeperError, match=f"^cannot write {path}:") as full:
        written(path, 100)

    assert (4, True) == (full.value.exit_code, "--resume" in full.value.hint)
    records = record_files.read_records(path, record_files.EVENTS)
    assert (True, True) == (len(records.records) >= 3, records.trouble is not None)
    file = record_files.RecordWriter(path, record_files.EVENTS)
    file.finish()
    assert records.records == record_files.read_records(path, record_files.EVENTS).records
