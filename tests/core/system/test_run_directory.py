"""The run directory: what a crash, a full disk or a second process leave behind."""

import hashlib
import os
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.system import run_directory
from tests.builders.disk import largest_file
from tests.builders.golden_words import lines_with, says

PRELUDE = """
import pathlib, resource, sys
from gatekeeper.core.system import run_directory
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.records import Event
"""


def elsewhere(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_file_that_cannot_be_written_is_our_error(tmp_path: Path) -> None:
    """A verdict that the disk does not take is code 4, with the file and the way on."""
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)

    with largest_file(2), pytest.raises(GatekeeperError) as refused:
        run.write("verdict.json", "new")

    run.close()
    assert 4 == refused.value.exit_code
    assert "verdict.json" in refused.value.message
    assert "--resume" in refused.value.hint


def test_a_run_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A folder with something in it, a file, and a resume of nothing are code 2, with a way out."""
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
    """While a run is open another process is refused; once it is closed, or its writer is dead, it is free."""
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)
    run.write("manifest.json", "{}")

    busy = elsewhere(LOCKED, str(tmp_path / "run")).stdout
    run.close()
    free = elsewhere(LOCKED, str(tmp_path / "run")).stdout  # this one dies without closing
    again = elsewhere(LOCKED, str(tmp_path / "run")).stdout

    says("core", "one process writes a run", lines_with("2 another gatekeeper", busy))
    assert ["opened\n", "opened\n"] == [free, again]


def test_checksums_name_what_was_changed(tmp_path: Path) -> None:
    """SHA256SUMS, which sha256sum can check, covers every file in every folder; a changed, a lost and an added one are
    named, but for what the Finder leaves in opened folders. An interrupted run has no checksums yet.
    """
    run = run_directory.RunDirectory.open(tmp_path / "run", resume=False)
    for name in ("verdict.json", "inputs/slo.toml", "events.jsonl"):
        run.write(name, "{}")
    assert [] == run.changed_files()
    run.write_checksums()
    assert [] == run.changed_files()

    (tmp_path / "run" / "inputs" / "slo.toml").write_text("looser")
    (tmp_path / "run" / "events.jsonl").unlink()
    for name in (".DS_Store", "DS_Store"):
        (tmp_path / "run" / name).write_bytes(b"\0")

    line = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a  verdict.json"
    assert line in (tmp_path / "run" / "SHA256SUMS").read_text().splitlines()
    assert ["DS_Store", "events.jsonl", "inputs/slo.toml"] == sorted(run.changed_files())
    assert ["events.jsonl"] == run.changed_files(lambda name: name.endswith(".jsonl"))
    run.close()


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
    """A damaged, foreign or newer JSON file is an input error that says which."""
    with pytest.raises(InputError, match=says):
        run_directory.parse_json(content, "plan.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder that is no run is an input error, not a traceback."""
    with pytest.raises(InputError, match=r"has no manifest\.json"):
        run_directory.RunDirectory(tmp_path).read("manifest.json")


def test_runs_of_one_minute_have_different_ids() -> None:
    """An id begins with its minute and the name of the SLO, and is a short file name."""
    ids = {run_directory.new_run_id("s" * 300, datetime(2026, 11, 21, 9, 5, 59, tzinfo=UTC)) for _ in range(1000)}

    assert 1000 == len(ids)
    assert all(run_id.startswith("2026-11-21T0905Z-sss") and len(run_id) < 128 for run_id in ids)


def test_a_record_file_is_hashed_in_blocks(tmp_path: Path) -> None:
    """The digest of a file of 64 MB takes a few of them; a day's records have hundreds."""
    (tmp_path / "soak-1.jsonl").write_bytes(bytes(64 << 20))

    tracemalloc.start()
    digest = run_directory.RunDirectory(tmp_path).sha256("soak-1.jsonl")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert digest == hashlib.sha256(bytes(64 << 20)).hexdigest()
    assert peak < 8 << 20
