"""The run directory: what a crash, a full disk or a second process leave behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.records import Answer, Arrival, Event, Generation, HostSample, Reading, Role, Rounds, setting
from gatekeeper.core.system import run_directory
from tests.builders.disk import largest_file

PRELUDE = """
import pathlib, resource, sys
from gatekeeper.core.system import run_directory
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.records import Event
"""


def event(number: int, text: str = "") -> Event:
    return Event(f"2026-01-01T00:00:{number:02}.000000Z", "tick", {"number": number, "text": text})


def written(path: Path, count: int = 3, *, finish: bool = True) -> Path:
    with_lines = run_directory.RecordWriter(path, run_directory.EVENTS)
    for number in range(count):
        with_lines(event(number))
    if finish:
        with_lines.finish()
    with_lines.close()
    return path


def elsewhere(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    """
    A record with every field set is the same after writing and reading.
    """
    made = Generation(
        trial="soak-1",
        key="1:easy/a",
        workload="easy",
        canary="a",
        arm="candidate",
        setting=setting(draft="heavy", num_draft_tokens=4, thinking=None),
        role=Role.SENTINEL,
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
    file = run_directory.RecordWriter(tmp_path / "a.jsonl", run_directory.ANSWERS)

    file(made)
    file.finish()

    loaded = run_directory.read_records(tmp_path / "a.jsonl", run_directory.ANSWERS)
    assert (None, (made,)) == (loaded.trouble, loaded.records)
    assert isinstance(loaded.records[0].answer.arrivals[0], Arrival)


def test_every_record_is_on_disk_before_the_next(tmp_path: Path) -> None:
    """
    Nothing waits in a buffer: a reader sees each record as soon as it was written.
    """
    path = tmp_path / "a.jsonl"
    file = run_directory.RecordWriter(path, run_directory.EVENTS)

    seen = []
    for number in range(3):
        file(event(number))
        seen.append(len(run_directory.read_records(path, run_directory.EVENTS).records))
    file.close()

    assert [1, 2, 3] == seen


def test_the_closing_line_counts(tmp_path: Path) -> None:
    """
    The last line of a finished file says how many records it holds; a finished file takes no more.
    """
    path = written(tmp_path / "a.jsonl")

    assert {"end": True, "records": 3} == json.loads(path.read_text().splitlines()[-1])
    again = run_directory.RecordWriter(path, run_directory.EVENTS)
    assert (True, 3) == (again.finished, len(again.records))
    with pytest.raises(GatekeeperError):
        again(event(9))


def test_an_empty_finished_file_is_whole(tmp_path: Path) -> None:
    """
    No record is a count, too; an empty or missing file is trouble.
    """
    assert run_directory.read_records(written(tmp_path / "a.jsonl", 0), run_directory.EVENTS).trouble is None
    (tmp_path / "empty.jsonl").touch()
    assert run_directory.read_records(tmp_path / "empty.jsonl", run_directory.EVENTS).trouble
    assert "missing" == run_directory.read_records(tmp_path / "none.jsonl", run_directory.EVENTS).trouble


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
    """
    Every way a file can be cut, patched or doubled is trouble; what is whole before it is still read.
    """
    path = written(tmp_path / "a.jsonl")
    change, whole = DAMAGE[damage]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    loaded = run_directory.read_records(path, run_directory.EVENTS)

    assert loaded.trouble
    assert whole == len(loaded.records)


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_is_noticed(tmp_path: Path, share: float) -> None:
    """
    Wherever a file ends early it is trouble, and no record is made up.
    """
    path = tmp_path / "a.jsonl"
    path.unlink(missing_ok=True)
    content = written(path).read_bytes()
    path.write_bytes(content[: int(share * len(content))])

    loaded = run_directory.read_records(path, run_directory.EVENTS)

    assert loaded.trouble
    assert loaded.records == tuple(event(number) for number in range(len(loaded.records)))


def test_a_resumed_file_goes_on_after_its_last_whole_record(tmp_path: Path) -> None:
    """
    The half line of a crash is cut off, and the finished file is whole.
    """
    path = written(tmp_path / "a.jsonl", finish=False)
    path.write_bytes(path.read_bytes()[:-5])

    file = run_directory.RecordWriter(path, run_directory.EVENTS)
    before = [one.detail["number"] for one in file.records]
    file(event(7))
    file.finish()

    loaded = run_directory.read_records(path, run_directory.EVENTS)
    assert ([0, 1], None) == (before, loaded.trouble)
    assert [0, 1, 7] == [one.detail["number"] for one in loaded.records]


def test_host_samples_keep_their_statuses(tmp_path: Path) -> None:
    """
    A denied reading is denied after reading it back; it never becomes zero.
    """
    sample = HostSample("now", 5, {"gpu_power": Reading(None, "W", "powermetrics", "denied")}, phase="soak-1")
    file = run_directory.RecordWriter(tmp_path / "host.jsonl", run_directory.SAMPLES)

    file(sample)
    file.finish()

    assert [sample] == list(run_directory.read_records(tmp_path / "host.jsonl", run_directory.SAMPLES).records)


FULL = """
resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
file = run_directory.RecordWriter(pathlib.Path(sys.argv[1]), run_directory.EVENTS)
try:
    for number in range(100):
        file(Event("now", "tick", {"number": number, "text": "x" * 50}))
except GatekeeperError as error:
    print(error.exit_code, "|", error.message, "|", error.hint)
"""


def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    """
    When a file can grow no further it is our error, code 4, naming the file; whole records stay and a resume continues.
    """
    path = tmp_path / "a.jsonl"

    said = elsewhere(FULL, str(path)).stdout

    assert said.startswith(f"4 | cannot write {path}:")
    assert "--resume" in said
    kept = run_directory.read_records(path, run_directory.EVENTS)
    assert (True, True) == (len(kept.records) >= 3, kept.trouble is not None)
    file = run_directory.RecordWriter(path, run_directory.EVENTS)
    file.finish()
    assert kept.records == run_directory.read_records(path, run_directory.EVENTS).records


def test_a_file_that_cannot_be_written_is_our_error(tmp_path: Path) -> None:
    """
    A verdict that the disk does not take is code 4, with the file and the way on.
    """
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)

    with largest_file(2), pytest.raises(GatekeeperError) as refused:
        run.write("verdict.json", "new")

    run.close()
    assert 4 == refused.value.exit_code
    assert "verdict.json" in refused.value.message
    assert "--resume" in refused.value.hint


def test_a_place_that_cannot_be_written_is_our_error(tmp_path: Path) -> None:
    """
    A run below a regular file is refused with code 4 and the path.
    """
    (tmp_path / "file").write_text("")

    with pytest.raises(GatekeeperError) as refused:
        run_directory.RunDirectory.open(tmp_path / "file" / "run", resume=False)

    assert 4 == refused.value.exit_code
    assert str(tmp_path / "file" / "run") in refused.value.message


def test_a_run_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """
    A folder with something in it, a file, and a resume of nothing are wrong command lines: code 2, with a way out.
    """
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("")

    for path, resume in (("full", False), ("file", False), ("full", True), ("none", True)):
        with pytest.raises(InputError) as refused:
            run_directory.RunDirectory.open(tmp_path / path, resume=resume)
        assert refused.value.hint
    assert "mine" == (tmp_path / "full" / "thesis.txt").read_text()


LOCKED = """
try:
    run_directory.RunDirectory.open(pathlib.Path(sys.argv[1]), resume=True)
    print("opened")
except GatekeeperError as error:
    print(error.exit_code, error.message)
"""


def test_one_process_writes_a_run(tmp_path: Path) -> None:
    """
    While a run is open another process is refused; once it is closed, or its writer is dead, it is free.
    """
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)
    run.write("manifest.json", "{}")

    busy = elsewhere(LOCKED, str(tmp_path / "run")).stdout
    run.close()
    free = elsewhere(LOCKED, str(tmp_path / "run")).stdout  # this one dies without closing
    again = elsewhere(LOCKED, str(tmp_path / "run")).stdout

    assert busy.startswith("2 another gatekeeper process is writing")
    assert ["opened\n", "opened\n"] == [free, again]


def test_checksums_name_what_was_changed(tmp_path: Path) -> None:
    """
    SHA256SUMS covers every file in every folder; a changed, a lost and an untouched one are told apart.
    """
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)
    for name in ("verdict.json", "inputs/slo.toml", "events.jsonl", "plan.json"):
        run.write(name, name)
    run.write_checksums()
    assert [] == run.changed_files()

    (tmp_path / "run" / "inputs" / "slo.toml").write_text("looser")
    (tmp_path / "run" / "events.jsonl").unlink()

    assert ["events.jsonl", "inputs/slo.toml"] == run.changed_files()
    assert ["events.jsonl"] == run.changed_files(lambda name: name.endswith(".jsonl"))
    run.close()


def test_a_look_in_the_finder_is_no_tampering(tmp_path: Path) -> None:
    """
    The Finder leaves .DS_Store in opened folders; any other added file is named.
    """
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)
    run.write_checksums()
    run.close()

    for name in (".DS_Store", "DS_Store", ".DS_Store.jsonl"):
        (tmp_path / "run" / name).write_bytes(b"\0")

    assert [".DS_Store.jsonl", "DS_Store"] == run.changed_files()


def test_the_checksums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    """
    Anyone can check a run with the system's own tool.
    """
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)
    run.write("verdict.json", "{}")
    run.write_checksums()
    run.close()

    line = (tmp_path / "run" / "SHA256SUMS").read_text()

    assert "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a  verdict.json\n" == line


def test_a_run_without_checksums_has_no_changed_file(tmp_path: Path) -> None:
    """
    An interrupted run has no checksums yet.
    """
    assert [] == run_directory.RunDirectory(tmp_path).changed_files()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "damaged"),
        (b"\xff", "damaged"),
        (b"[]", "not written by gatekeeper"),
        (b'{"schema": "1"}', "not written by gatekeeper"),
        (b'{"schema": 2}', "newer"),
    ],
)
def test_json_of_another_kind_is_refused(content: bytes, says: str) -> None:
    """
    A damaged, foreign or newer JSON file is an input error that says which.
    """
    with pytest.raises(InputError, match=says):
        run_directory.parse_json(content, "plan.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """
    A folder that is no run is an input error, not a traceback.
    """
    with pytest.raises(InputError, match=r"has no manifest\.json"):
        run_directory.RunDirectory(tmp_path).read("manifest.json")


def test_runs_of_one_minute_have_different_ids() -> None:
    """
    An id begins with its minute and the name of the SLO; a thousand of them are a thousand ids, each a short file name.
    """
    ids = {run_directory.new_run_id("s" * 300, datetime(2026, 11, 21, 9, 5, 59, tzinfo=UTC)) for _ in range(1000)}

    assert 1000 == len(ids)
    assert all(one.startswith("2026-11-21T0905Z-sss") and len(one) < 128 for one in ids)
