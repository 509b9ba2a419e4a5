"""The run registry: entries are written whole, and one process at a time follows a run."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.run.remote.run_registry import CLOSED, Entry, RunRegistry

ENTRY = Entry(
    "one",
    "mini",
    ("certify",),
    "slo.toml",
    "s",
    "0" * 64,
    "runs/one",
    "2026-11-21T00:00:00.000000Z",
    installed=("numpy==2.4.6",),
)


def test_an_entry_is_the_run_of_the_same_command_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Another host, command, bundle or place is another run; no place at all is any.
    """
    monkeypatch.chdir(tmp_path)
    registry = RunRegistry(Path("runs"))
    registry.write(ENTRY)
    (read,) = registry.entries()

    assert ENTRY == read == registry.find("one")
    assert read.matches("mini", ["certify"], "0" * 64, None)
    assert read.matches("mini", ["certify"], "0" * 64, Path("runs/one"))
    assert not read.matches("studio", ["certify"], "0" * 64, None)
    assert not read.matches("mini", ["soak"], "0" * 64, None)
    assert not read.matches("mini", ["certify"], "1" * 64, None)
    assert not read.matches("mini", ["certify"], "0" * 64, Path("elsewhere"))


def test_entries_come_in_the_order_they_began(tmp_path: Path) -> None:
    """
    The newest is last, whatever it is called; a damaged one is passed over.
    """
    registry = RunRegistry(tmp_path)
    registry.write(replace(ENTRY, run_id="z", started="2026-01-01T00:00:00.000000Z"))
    registry.write(ENTRY)
    (tmp_path / "bad.remote.json").write_text('{"schema": 1, "run_id"')
    (tmp_path / "strange.remote.json").write_text('{"schema": 1, "nothing": 1}')

    registry.close(ENTRY, "promoted")

    assert [("z", "open", ""), ("one", CLOSED, "promoted")] == [
        (entry.run_id, entry.state, entry.outcome) for entry in registry.entries()
    ]


@pytest.mark.parametrize("out", ["/elsewhere/one", "../one", "runs/../../one"])
def test_an_entry_leads_nowhere_else(tmp_path: Path, out: str) -> None:
    """
    An entry that came with somebody's files names a run in its own folder, whatever it says; or it is passed over.
    """
    registry = RunRegistry(tmp_path)
    registry.write(replace(ENTRY, out=out))
    registry.write(replace(ENTRY, run_id="two", out=".."))
    (tmp_path / "one.remote.json").rename(tmp_path / "kept.remote.json")
    (tmp_path / "one.remote.json").write_text((tmp_path / "kept.remote.json").read_text())

    assert [("one", str(tmp_path / "one"))] == [(entry.run_id, entry.out) for entry in registry.entries()]


def test_one_process_follows_a_run(tmp_path: Path) -> None:
    """
    A second follower ends with 3, which names the first: its command is not wrong. When the first has ended, it may.
    """
    registry = RunRegistry(tmp_path)
    first = f"process {os.getpid()}.* already follows one"

    with registry.locked(ENTRY), pytest.raises(HostLacksError, match=first) as refused, registry.locked(ENTRY):
        pass
    with registry.locked(ENTRY):
        pass

    assert (3, []) == (refused.value.exit_code, list(tmp_path.iterdir()))


def test_a_removed_lock_file_is_not_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first follower ends, and takes its file away, between a second one's look and its lock: the second locks the
    file that a third would look at.
    """
    registry, lock = RunRegistry(tmp_path), tmp_path / ".one.lock"
    locked: list[int] = []

    def flock(file: IO[str], how: int) -> None:
        if not locked:
            lock.unlink()
        locked.append(how)
        real(file, how)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)

    with registry.locked(ENTRY), pytest.raises(HostLacksError, match="already follows one"), registry.locked(ENTRY):
        pass

    assert 3 == len(locked)


def test_a_registry_that_cannot_be_written_stops_before_the_run(tmp_path: Path) -> None:
    """
    Exit 4 that names the file: an unregistered run would be lost.
    """
    (tmp_path / "runs").write_text("a file")

    with pytest.raises(GatekeeperError, match="cannot write") as refused:
        RunRegistry(tmp_path / "runs").write(ENTRY)

    assert 4 == refused.value.exit_code
