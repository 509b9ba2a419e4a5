"""Files that several processes share: one lock, and one way to write a whole file at once."""

import os
from pathlib import Path

import pytest

from gatekeeper.core.files import FileLock, LockHeldError, write_atomically


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_whole(tmp_path: Path, sync: bool) -> None:
    """
    Who has the old file open reads the old content to its end; the new one has the name, and nothing else is left.
    """
    path = tmp_path / "verdict.json"
    write_atomically(path, "old")
    with path.open("rb") as reader:
        write_atomically(path, "new é", sync=sync)

        assert b"old" == reader.read()
    assert "new é".encode() == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_keeps_its_old_content(tmp_path: Path) -> None:
    """
    The error is the system's, and the old file stays.
    """
    path = tmp_path / "file"
    path.write_text("old")

    with pytest.raises(FileNotFoundError):
        write_atomically(path, "new", temporary=tmp_path / "nowhere" / "file")

    assert "old" == path.read_text()


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    """
    A second process is refused with what the first one wrote, and may lock the file when that one has released it.
    """
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    first.acquire("first")

    with pytest.raises(LockHeldError) as refused:
        second.acquire("second")
    seen = second.holder()
    first.release()

    assert ("first", "first", None) == (refused.value.owner, seen, second.holder())
    assert "" == second.acquire("second")
    second.release()


def test_a_holder_that_was_killed_leaves_its_name(tmp_path: Path) -> None:
    """
    Its text stands in the file and its lock is gone: who locks the file next is told.
    """
    (tmp_path / "lock").write_text("dead")
    lock = FileLock(tmp_path / "lock", remove=True)

    left = lock.acquire("alive")

    assert ("dead", "alive") == (left, (tmp_path / "lock").read_text())
    lock.release()
    lock.release()
    assert [] == list(tmp_path.iterdir())


def test_a_holder_without_a_name_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Another process looks at the lock for a moment: that is no holder.
    """
    lock, looks = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    looks.acquire("")
    monkeypatch.setattr("time.sleep", lambda _: looks.release())

    assert "" == lock.acquire(f"{os.getpid()}")
    lock.release()
