"""The ledger: what is under way elsewhere, written whole, held by one follower at a time."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.run.remote.run_registry import CLOSED, Entry, Ledger

ENTRY = Entry(
    "one",
    "far",
    ("certify",),
    "slo.toml",
    "s",
    "0" * 64,
    "runs/one",
    "2026-11-21T00:00:00.000000Z",
    installed=("numpy==2.4.6",),
)


def test_an_entry_is_the_run_of_the_same_command_alone(tmp_path: Path) -> None:
    """
    Another host, command, parcel or place is another run; no place at all is any.
    """
    ledger = Ledger(tmp_path / "runs")
    ledger.write(ENTRY)
    (read,) = ledger.entries()

    assert ENTRY == read == ledger.find("one")
    assert read.is_of("far", ["certify"], "0" * 64, None)
    assert read.is_of("far", ["certify"], "0" * 64, Path("runs/one"))
    assert not read.is_of("near", ["certify"], "0" * 64, None)
    assert not read.is_of("far", ["soak"], "0" * 64, None)
    assert not read.is_of("far", ["certify"], "1" * 64, None)
    assert not read.is_of("far", ["certify"], "0" * 64, Path("elsewhere"))


def test_entries_come_in_the_order_they_began(tmp_path: Path) -> None:
    """
    The newest is last, whatever it is called; a damaged one is passed over.
    """
    ledger = Ledger(tmp_path)
    ledger.write(replace(ENTRY, run_id="z", started="2026-01-01T00:00:00.000000Z"))
    ledger.write(ENTRY)
    (tmp_path / "bad.remote.json").write_text('{"schema": 1, "run_id"')
    (tmp_path / "strange.remote.json").write_text('{"schema": 1, "nothing": 1}')

    ledger.close(ENTRY, "promoted")

    assert [("z", "open", ""), ("one", CLOSED, "promoted")] == [
        (entry.run_id, entry.state, entry.outcome) for entry in ledger.entries()
    ]


def test_one_process_follows_a_run(tmp_path: Path) -> None:
    """
    A second follower is told who is the first, exit 3: its command is not wrong. When the first has ended, it may.
    """
    ledger = Ledger(tmp_path)
    first = f"process {os.getpid()}.* follows one already"

    with ledger.holding(ENTRY), pytest.raises(HostLacksError, match=first) as refused, ledger.holding(ENTRY):
        pass
    with ledger.holding(ENTRY):
        pass

    assert (3, []) == (refused.value.exit_code, list(tmp_path.iterdir()))


def test_a_lock_that_was_taken_away_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first follower ends, and takes its file away, between a second one's look and its lock: the second locks the
    file that a third would look at.
    """
    ledger, lock = Ledger(tmp_path), tmp_path / ".one.lock"
    locked: list[int] = []

    def flock(file: IO[str], how: int) -> None:
        if not locked:
            lock.unlink()
        locked.append(how)
        real(file, how)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)

    with ledger.holding(ENTRY), pytest.raises(HostLacksError, match="follows one already"), ledger.holding(ENTRY):
        pass

    assert 3 == len(locked)


def test_a_ledger_that_can_not_be_written_stops_before_the_run(tmp_path: Path) -> None:
    """
    Exit 4 that names the file: a run nobody wrote down would be lost.
    """
    (tmp_path / "runs").write_text("a file")

    with pytest.raises(GatekeeperError, match="cannot write") as refused:
        Ledger(tmp_path / "runs").write(ENTRY)

    assert 4 == refused.value.exit_code
