"""One measuring run at a time on a host: the lock, its owner and age, and what a killed run leaves."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.system import file_lock
from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_LOCK, GATEKEEPER_OWNER
from gatekeeper.host.host_lock import hold_host, lock_holder

HOLD = (
    "import sys\nfrom gatekeeper.host.host_lock import hold_host\n"
    "with hold_host('theirs'):\n    print('held', flush=True)\n    sys.stdin.read()\n"
)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "host.lock"
    monkeypatch.setenv(GATEKEEPER_HOST_LOCK, str(path))
    monkeypatch.delenv(GATEKEEPER_OWNER, raising=False)
    return path


@contextmanager
def holder(owner: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the host until its input ends."""
    environment = {**os.environ, **({GATEKEEPER_OWNER: owner} if owner else {})}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert "held\n" == process.stdout.readline()
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def test_a_second_run_gets_the_owner_and_age_of_the_lock(lock: Path) -> None:
    """While another process holds the host, exit 3 with owner, run and age; the lock ends with that run."""
    with holder("anna@laptop") as process:
        with pytest.raises(HostLacksError) as refused, hold_host("mine"):
            pass
        owner = lock_holder()

    with hold_host("mine") as remark:
        document = json.loads(lock.read_text())

    assert 3 == refused.value.exit_code
    assert all(word in refused.value.message for word in ("anna@laptop", "theirs", f"process {process.pid}"))
    assert owner is not None
    assert ("anna@laptop", "theirs") == (owner.who, owner.run)
    assert (None, "mine") == (remark, document["run"])
    assert (None, "") == (lock_holder(), lock.read_text())


def test_the_lock_of_a_killed_run_is_taken_over_with_a_remark(lock: Path) -> None:
    """Kill -9 leaves text in the lock file and no lock: the next run takes it over and reports whose it was."""
    with holder("anna@laptop") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)

        with hold_host("mine") as remark:
            owner = lock_holder()

    assert remark is not None
    assert "anna@laptop, run theirs" in remark
    assert owner is not None
    assert "mine" == owner.run
    assert str(lock) in remark


def test_a_lock_file_that_was_deleted_locks_nothing(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is deleted between opening and locking it: the new file of that name is locked."""
    lock_file = file_lock._lock
    cleaned: list[bool] = []

    def clean_first(descriptor: int) -> str:
        if not cleaned:
            lock.unlink()
            cleaned.append(True)
        return lock_file(descriptor)

    monkeypatch.setattr(file_lock, "_lock", clean_first)

    with hold_host("mine"):
        owner = lock_holder()

    assert owner is not None
    assert ("mine", [True]) == (owner.run, cleaned)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"who": 1, "since": "never"}', "\x00\xff"])
def test_a_lock_whose_owner_cannot_be_read_still_holds(lock: Path, text: str) -> None:
    """Whatever text the file holds, the kernel's lock decides."""
    with holder():
        lock.write_text(text)
        with pytest.raises(HostLacksError, match="does not name its owner"), hold_host("mine"):
            pass


def test_a_link_in_the_locks_place_is_not_followed(lock: Path, tmp_path: Path) -> None:
    """In a folder that every user can write to, a link instead of the lock file must not empty another file."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    lock.symlink_to(precious)

    with pytest.raises(GatekeeperError, match="cannot lock this host") as refused, hold_host("mine"):
        pass

    assert ("kept", 4) == (precious.read_text(), refused.value.exit_code)


def test_a_folder_in_the_locks_place_is_an_error(lock: Path) -> None:
    """A folder is named in the error, with what to do next."""
    lock.mkdir()

    with pytest.raises(GatekeeperError, match="cannot lock this host") as refused, hold_host("mine"):
        pass

    assert GATEKEEPER_HOST_LOCK in refused.value.hint


@pytest.mark.parametrize(
    ("run", "says"), [("night-3", ", run night-3 (process"), ("gatekeeper try", ", gatekeeper try (process")]
)
def test_a_lock_says_what_holds_it_as_the_user_knows_it(lock: Path, run: str, says: str) -> None:
    """A run by the name of its folder, a command without a folder of its own by what was typed."""
    with hold_host(run):
        owner = lock_holder()

    assert lock.exists()
    assert owner is not None
    assert says in owner.describe(datetime.now(UTC))
