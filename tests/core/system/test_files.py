"""Files: the lock, the atomic write and the cache of digests."""

import os
from pathlib import Path

import pytest

from gatekeeper.core.manifest import sha256
from gatekeeper.core.system.files import FileLock, HashCache, LockHeldError, write_atomically


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


def test_a_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A second process finds the digest in the cache; the file is not read again.
    """
    (tmp_path / "big").write_text("weights")
    digest = HashCache(tmp_path / "hashes.json").sha256(tmp_path / "big")

    def refuse(_: Path) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr("gatekeeper.core.system.files.file_sha256", refuse)

    assert sha256("weights") == digest == HashCache(tmp_path / "hashes.json").sha256(tmp_path / "big")


def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    """
    Another size, another time of change or another file under the name: the cached digest is not believed.
    """
    path, cache = tmp_path / "big", HashCache(tmp_path / "hashes.json")
    seen = []
    for content in ("aaaa", "aaaaa", "bbbbb"):
        (tmp_path / "fresh").write_text(content)
        (tmp_path / "fresh").replace(path)
        seen.append(cache.sha256(path))

    assert [sha256("aaaa"), sha256("aaaaa"), sha256("bbbbb")] == seen


@pytest.mark.parametrize("content", ["", "nonsense", "[]", '{"PATH": [1, 2, 3]}', '{"PATH": 7}'])
def test_a_broken_cache_costs_time_only(tmp_path: Path, content: str) -> None:
    """
    Whatever the cache file holds, the digest is right.
    """
    path = tmp_path / "big"
    path.write_text("weights")
    status = path.stat()
    marks = f"[{status.st_size}, {status.st_mtime_ns}, {status.st_ino}]"
    cache = tmp_path / "hashes.json"
    cache.write_text(content.replace("PATH", str(path.resolve())).replace("[1, 2, 3]", marks))

    assert sha256("weights") == HashCache(cache).sha256(path)


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    """
    A cache below a regular file is given up silently.
    """
    (tmp_path / "file").write_text("weights")

    assert sha256("weights") == HashCache(tmp_path / "file" / "hashes.json").sha256(tmp_path / "file")
