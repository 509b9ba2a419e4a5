"""Files: the lock, the atomic write and the cache of digests."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.core.manifest import sha256
from gatekeeper.core.system.file_lock import FileLock
from gatekeeper.core.system.files import HashCache, NotRegularError, open_regular, read_regular, write_atomically
from tests.builders.disk import largest_file


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_whole(tmp_path: Path, sync: bool) -> None:
    """Who has the old file open reads the old content; the new one has the name, and nothing else is left."""
    path = tmp_path / "verdict.json"
    write_atomically(path, "old")
    with path.open("rb") as reader:
        write_atomically(path, "new é", sync=sync)

        assert b"old" == reader.read()
    assert "new é".encode() == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    """`-o /dev/null`, by root too, and by a link such as /dev/stdout: refused, and not replaced by a file."""
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, Path(os.devnull).stat().st_rdev)
    except PermissionError:
        pytest.skip("only root makes devices")

    link = tmp_path / "link"
    link.symlink_to(null)

    for path in (null, link):
        with pytest.raises(NotRegularError, match="not a regular file"):
            write_atomically(path, "verdict")

    assert stat.S_ISCHR(null.stat().st_mode)
    assert {null, link} == set(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_keeps_its_old_content(tmp_path: Path) -> None:
    """The error is the system's, the old file stays, and the part of the new one does not fill the disk."""
    path = tmp_path / "file"
    path.write_text("old")

    with largest_file(2), pytest.raises(OSError, match="File too large"):
        write_atomically(path, "new content")

    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_holder_that_was_killed_leaves_its_name(tmp_path: Path) -> None:
    """Its text stands in the file and its lock is gone: who locks the file next is told."""
    (tmp_path / "lock").write_text("dead")
    lock = FileLock(tmp_path / "lock", remove=True)

    previous_holder = lock.acquire("alive")

    assert ("dead", "alive") == (previous_holder, (tmp_path / "lock").read_text())
    lock.release()
    lock.release()
    assert [] == list(tmp_path.iterdir())


def test_a_file_is_hashed_once_and_anew_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another size, time or file under the name is read; else a second process finds the digest in the cache."""
    path, digests = tmp_path / "big", []
    for content in ("aaaa", "aaaaa", "bbbbb"):
        (tmp_path / "fresh").write_text(content)
        (tmp_path / "fresh").replace(path)
        digests.append(HashCache(tmp_path / "hashes.json").sha256(path))
    assert [sha256("aaaa"), sha256("aaaaa"), sha256("bbbbb")] == digests

    def refuse(_: Path) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr("gatekeeper.core.system.files.file_sha256", refuse)

    assert sha256("bbbbb") == HashCache(tmp_path / "hashes.json").sha256(path)


@pytest.mark.parametrize("content", ["", "nonsense", "[]", '{"PATH": [1, 2, 3]}', '{"PATH": 7}'])
def test_a_broken_cache_costs_time_only(tmp_path: Path, content: str) -> None:
    """Whatever the cache file holds, the digest is right."""
    path = tmp_path / "big"
    path.write_text("weights")
    status = path.stat()
    marks = f"[{status.st_size}, {status.st_mtime_ns}, {status.st_ino}]"
    cache = tmp_path / "hashes.json"
    cache.write_text(content.replace("PATH", str(path.resolve())).replace("[1, 2, 3]", marks))

    assert sha256("weights") == HashCache(cache).sha256(path)


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    """A cache below a regular file is given up silently."""
    (tmp_path / "file").write_text("weights")

    assert sha256("weights") == HashCache(tmp_path / "file" / "hashes.json").sha256(tmp_path / "file")


PUT: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to("other"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", PUT)
def test_only_a_regular_file_is_opened(tmp_path: Path, kind: str, flags: int) -> None:
    """A pipe, a link, a device and a folder are refused at once, for reading and for writing, with what and where."""
    (tmp_path / "other").write_text("mine")
    PUT[kind](tmp_path / "host.jsonl")

    with pytest.raises(OSError, match=r"host\.jsonl"):
        open_regular(tmp_path / "host.jsonl", flags)

    assert "mine" == (tmp_path / "other").read_text()


def test_a_folder_below_the_run_is_no_way_out(tmp_path: Path) -> None:
    """The run directory itself may be reached by a link, which its user made; a folder inside it may not be one."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "disk" / "run").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "disk" / "run")
    (tmp_path / "run" / "inputs").symlink_to(tmp_path / "elsewhere")

    write_atomically(tmp_path / "run" / "plan.json", "{}", inside=tmp_path / "run")
    with pytest.raises(NotRegularError):
        write_atomically(tmp_path / "run" / "inputs" / "slo.toml", "", inside=tmp_path / "run")

    assert b"{}" == read_regular(tmp_path / "disk" / "run" / "plan.json")
    assert [] == list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("where", ["verdict.json", ".verdict.json.PID"])
def test_an_atomic_write_replaces_a_link(tmp_path: Path, where: str) -> None:
    """A link under the file's name, or under the name that is written first, is replaced; what it points to is not."""
    (tmp_path / "other").write_text("mine")
    (tmp_path / where.replace("PID", str(os.getpid()))).symlink_to("other")

    write_atomically(tmp_path / "verdict.json", "new")

    assert ("new", "mine") == ((tmp_path / "verdict.json").read_text(), (tmp_path / "other").read_text())
    assert not (tmp_path / "verdict.json").is_symlink()


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A lock writes its holder into its file: a link there must not lead that text into another file."""
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "lock").symlink_to("thesis")

    with pytest.raises(OSError, match="it is a link"):
        FileLock(tmp_path / "lock").acquire("1\n")

    assert "mine" == (tmp_path / "thesis").read_text()
