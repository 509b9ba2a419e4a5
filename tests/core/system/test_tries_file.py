"""The record of tries: one line a finished run, which nothing that is wrong with the file can take along."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from gatekeeper.core.system import file_lock, files, tries_file
from gatekeeper.core.system.tries_file import Try
from tests.builders.disk import largest_file
from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ROOT

SUBJECT = "a" * 64


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a record that is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gatekeeper" / "tries.jsonl"


def attempt(number: int, exit_code: int = 3) -> Try:
    return Try(SUBJECT, "b" * 64, f"{number:064x}", exit_code)


def test_a_record_holds_digests_and_exit_codes_for_its_owner_alone(record: Path) -> None:
    """A line has three digests and an exit code, nothing else."""
    assert (None, None) == (tries_file.add(attempt(1)), tries_file.add(attempt(2, 0)))

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (record.parent, record, record.with_suffix(".lock"))]
    header, *lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [0o700, 0o600, 0o600] == modes
    assert {"schema": 1, "lost": False} == header
    assert [("subject", "artifacts", "run", "exit_code")] * 2 == [tuple(line) for line in lines]
    assert {f"{1:064x}": 3, f"{2:064x}": 0} == tries_file.read().exit_codes(SUBJECT)
    assert {} == tries_file.read().exit_codes("b" * 64)


def test_a_record_that_is_absent_has_a_gap(record: Path) -> None:
    """No record is not a record of no tries."""
    record_read = tries_file.read()

    assert (True, {}) == (record_read.absent, record_read.tries)
    says("core", "a record that is absent has a gap", record_read.gap)
    assert not record.parent.exists()


def test_an_extended_run_is_one_try(record: Path) -> None:
    """A run that was extended has one line, with its last outcome."""
    for each in (attempt(1), attempt(2), attempt(1, 0), attempt(1, 0)):
        assert tries_file.add(each) is None

    assert {f"{1:064x}": 0, f"{2:064x}": 3} == tries_file.read().exit_codes(SUBJECT)
    assert 3 == len(record.read_text().splitlines())


def test_several_processes_lose_no_line(record: Path) -> None:
    """Runs that end at the same time are all in the record."""
    program = (
        "import sys; from gatekeeper.core.system.tries_file import Try, add\n"
        "for number in range(12): assert add(Try('a' * 64, 'b' * 64, f'{int(sys.argv[1]) + number:064x}', 3)) is None"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(first * 100)], env=environment) for first in range(4)
    ]

    assert [0] * 4 == [process.wait(240) for process in running]
    assert 48 == len(tries_file.read().tries)
    assert tries_file.read().gap is None
    assert {"tries.jsonl", "tries.lock"} == {path.name for path in record.parent.iterdir()}


def cut(content: bytes) -> bytes:
    return content[:-20]


def other_line(content: bytes) -> bytes:
    return content.replace(b'"exit_code": 3', b'"exit_code": "a path"', 1)


def no_header(content: bytes) -> bytes:
    return content.partition(b"\n")[2]


def empty(_: bytes) -> bytes:
    return b""


def binary(content: bytes) -> bytes:
    return content + b"\xff\x00{{\n"


@pytest.mark.parametrize(("edit", "count_left"), [(cut, 1), (other_line, 1), (no_header, 1), (empty, 0), (binary, 2)])
def test_an_edited_record_is_a_warning_and_a_lower_bound(
    record: Path, edit: Callable[[bytes], bytes], count_left: int
) -> None:
    """What can be read counts; the next run is added with a warning, and the gap stays."""
    tries_file.add(attempt(1))
    tries_file.add(attempt(2))
    record.write_bytes(edit(record.read_bytes()))

    assert (count_left, tries_file.DAMAGED) == (len(tries_file.read().tries), tries_file.read().gap)
    assert tries_file.DAMAGED == tries_file.add(attempt(3))
    assert (count_left + 1, tries_file.LOST) == (len(tries_file.read().tries), tries_file.read().gap)
    assert tries_file.add(attempt(4)) is None, "said once"
    assert tries_file.LOST == tries_file.read().gap


def test_a_record_has_a_largest_size(record: Path) -> None:
    """Beyond its size the oldest runs go, and the record says that it lost some."""
    record.parent.mkdir(parents=True)
    lines: list[dict[str, object]] = [{"schema": 1, "lost": False}]
    lines += [asdict(attempt(number)) for number in range(tries_file.MOST_RUNS)]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tries_file.read().gap is None

    assert tries_file.add(attempt(tries_file.MOST_RUNS)) is None

    record_read = tries_file.read()
    assert (tries_file.MOST_RUNS, tries_file.LOST) == (len(record_read.tries), record_read.gap)
    assert f"{0:064x}" not in record_read.tries
    assert record.stat().st_size < tries_file.MOST_BYTES


def link(path: Path) -> None:
    (path.parent / "elsewhere").write_text("kept")
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("put", [link, os.mkfifo, Path.mkdir], ids=["link", "pipe", "folder"])
def test_what_is_no_file_is_not_opened(record: Path, put: Callable[[Path], None]) -> None:
    """A link, a pipe or a folder is a gap and a warning; nothing is waited for or written."""
    record.parent.mkdir(parents=True)
    put(record)

    assert ({}, False) == (tries_file.read().tries, tries_file.read().absent)
    assert tries_file.read().gap is not None
    assert str(record) in (tries_file.add(attempt(1)) or "")
    assert put is not link or (record.parent / "elsewhere").read_text() == "kept"


def test_a_newer_record_is_left_as_it_is(record: Path) -> None:
    """A record of a schema that this gatekeeper does not know is neither counted nor replaced."""
    record.parent.mkdir(parents=True)
    record.write_text('{"schema": 2}\nanother format\n')

    says("core", "a newer record is left as it is (1)", lines_with("newer than this", tries_file.add(attempt(1)) or ""))
    says("core", "a newer record is left as it is (2)", lines_with("newer than this", tries_file.read().gap or ""))
    assert '{"schema": 2}\nanother format\n' == record.read_text()


def test_a_full_disk_leaves_the_record_as_it_was(record: Path) -> None:
    """A record that cannot be written whole is not replaced."""
    tries_file.add(attempt(1))
    before = record.read_bytes()

    with largest_file(len(before) + 10):
        trouble = tries_file.add(attempt(2))

    assert trouble is not None
    assert before == record.read_bytes()
    assert {"tries.jsonl", "tries.lock"} == {path.name for path in record.parent.iterdir()}


def test_a_process_that_hangs_with_the_lock_is_not_waited_for(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends although the lock of the record is never released."""
    monkeypatch.setattr(tries_file, "LOCK_WAIT_S", 0.1)
    tries_file.add(attempt(1))
    holder = file_lock.FileLock(record.with_suffix(".lock"))
    holder.acquire("another")
    try:
        says(
            "core",
            "a process that hangs with the lock is not waited for",
            lines_with("another process does not", tries_file.add(attempt(2)) or ""),
        )
    finally:
        holder.release()
    assert tries_file.add(attempt(2)) is None


def test_the_state_folder_follows_the_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_STATE_HOME counts where it is absolute; else each system has its own place in the home folder."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert Path("/var/state/gatekeeper") == files.user_state_folder()
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setattr(sys, "platform", "linux")
    assert Path("/home/ann/.local/state/gatekeeper") == files.user_state_folder()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert Path("/home/ann/Library/Application Support/gatekeeper") == files.user_state_folder()
