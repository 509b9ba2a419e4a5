"""The queue of each host on a real Dask cluster in processes of its own, with bodies that only wait."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from distributed import LocalCluster
from distributed.security import Security

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.fleet import dispatch
from gatekeeper.fleet.cell_task import Done, Task
from gatekeeper.fleet.cells import Cell, cells_to_run
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT

pytestmark = pytest.mark.whole  # each starts a cluster, or processes that join one
CLUSTER = """
import sys
from distributed import LocalCluster
workers, without = int(sys.argv[1]), sys.argv[2]
if without:
    sys.modules[without] = None
if __name__ == "__main__":
    options = {"threads_per_worker": 4, "dashboard_address": None, "worker_dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=workers, processes=not without, protocol="tcp", **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""

REFUSED = 23

STRANGER = f"""
import os, sys
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.fleet import dispatch
try:
    dispatch._client(sys.argv[1], 1).__enter__()
except GatekeeperError as error:
    assert "no Dask scheduler" in str(error)
    os._exit({REFUSED})
"""


@contextmanager
def cluster_of(folder: Path, workers: int, without: str = "") -> Iterator[str]:
    """Start a scheduler and its workers in other processes; *without* is a package that the workers do not have."""
    program = folder / "cluster.py"
    program.write_text(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(program), str(workers), without],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("tcp://")
        yield address
    finally:
        process.communicate("", timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_of(tmp_path_factory.mktemp("cluster"), 2) as address:
        yield address


Run = Callable[..., dict[str, Done]]


@pytest.fixture
def carry_out(cluster: str, tmp_path: Path) -> Run:
    """Run cells on the cluster; the first and only worker-visible folder is the test's own."""

    def task_of(cell: Cell) -> Task:
        return Task(cell.name, "", cell.host, str(tmp_path), "")

    def carry_out(cells: list[Cell], **options: Any) -> dict[str, Done]:
        dispatch_options: dict[str, Any] = {"retries": 0, "pause_s": (0.0, 0.0), "scheduler": cluster} | options
        return dispatch.run(cells_to_run(cells), task_of, lambda *_what: None, **dispatch_options)

    return carry_out


def note(task: Task) -> Done:
    """Note when the cell began and ended."""
    with Path(task.runs, f"{task.cell}.began").open("a") as file:
        file.write(f"{time.monotonic()} ")
    time.sleep(0.1)
    Path(task.runs, f"{task.cell}.ended").write_text(str(time.monotonic()))
    return Done(task.cell, 0, "promoted")


def die_once(task: Task) -> Done:
    """Kill the worker the first time."""
    before = Path(task.runs, "killed")
    if not before.exists():
        before.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return note(task)


def fail_twice(task: Task) -> Done:
    """Lose the connection twice."""
    tries = Path(task.runs, "tries")
    count = int(tries.read_text()) if tries.exists() else 0
    tries.write_text(str(count + 1))
    return Done(task.cell, 3, error="lost", again=True) if count < 2 else Done(task.cell, 0, "promoted")


@pytest.mark.nightly
def test_a_host_has_one_cell_at_a_time_and_the_longest_first(carry_out: Run, tmp_path: Path) -> None:
    """
    Three cells on each of three hosts: those of a host follow each other by falling duration, hosts overlap.
    """
    cells = [Cell(f"s{number}", Path(), host, seconds=float(number)) for number in range(3) for host in "abc"]

    done = carry_out(cells, body=note)

    assert {cell.name for cell in cells} == done.keys()
    spans = {
        cell.name: (
            float((tmp_path / f"{cell.name}.began").read_text()),
            float((tmp_path / f"{cell.name}.ended").read_text()),
        )
        for cell in cells
    }
    for host in "abc":
        assert spans[f"s2@{host}"][1] <= spans[f"s1@{host}"][0]
        assert spans[f"s1@{host}"][1] <= spans[f"s0@{host}"][0]
    assert max(spans[f"s2@{host}"][0] for host in "abc") < max(spans[f"s0@{host}"][1] for host in "abc")


def test_a_killed_worker_repeats_its_cell(carry_out: Run) -> None:
    """
    Kill -9 on a Dask worker in the middle of a cell: another takes its place and the cell is carried out.
    """
    assert "promoted" == carry_out([Cell("s", Path(), "a")], body=die_once)["s@a"].outcome


def test_only_what_says_nothing_of_the_system_is_tried_again(carry_out: Run, tmp_path: Path) -> None:
    """
    A lost connection is tried again as often as allowed; then the cell ends with its error.
    """
    assert "promoted" == carry_out([Cell("s", Path(), "a")], body=fail_twice, retries=2)["s@a"].outcome
    (tmp_path / "tries").unlink()
    assert "lost" == carry_out([Cell("t", Path(), "a")], body=fail_twice, retries=1)["t@a"].error


def test_a_worker_shares_the_folder_of_runs(carry_out: Run, tmp_path: Path) -> None:
    """
    A worker that does not see the controller's mark in the folder of runs is refused before anything runs, by name.
    """
    (tmp_path / "mark").touch()
    carry_out([Cell("s", Path(), "a")], body=note, mark=str(tmp_path / "mark"))

    with pytest.raises(GatekeeperError, match=r"worker tcp://\S+ ") as caught:
        carry_out([Cell("t", Path(), "a")], body=note, mark=str(tmp_path / "elsewhere" / "mark"))
    says("fleet", "a worker shares the folder of runs", caught.value.hint)
    assert not (tmp_path / "t@a.began").exists()


@pytest.mark.parametrize(
    ("workers", "without", "says"), [(0, "", "has no worker"), (1, "gatekeeper", "cannot run gatekeeper")]
)
def test_a_cluster_that_cannot_dispatch_is_refused(
    carry_out: Run, tmp_path: Path, workers: int, without: str, says: str
) -> None:
    """
    A scheduler without workers, or one whose workers do not have gatekeeper, would keep the fleet waiting for ever.
    """
    with (
        cluster_of(tmp_path, workers, without) as address,
        pytest.raises(GatekeeperError, match=says) as caught,
    ):
        carry_out([Cell("s", Path(), "a")], body=note, scheduler=address)
    assert caught.value.hint


def test_a_scheduler_that_is_not_there_is_an_error_with_a_hint(carry_out: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    --scheduler with a wrong address ends the command before anything runs.
    """
    monkeypatch.setattr(dispatch, "CONNECT_S", 0.3)
    with pytest.raises(GatekeeperError, match="no Dask scheduler") as caught:
        carry_out([Cell("s", Path(), "a")], body=note, scheduler="tcp://127.0.0.1:9")
    assert "--scheduler" in caught.value.hint


def listening_ports() -> set[int]:
    """Return the TCP ports that this process and its children listen on."""
    process = psutil.Process()
    sockets = [
        socket for each in (process, *process.children(recursive=True)) for socket in each.net_connections("inet")
    ]
    return {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}


def note_ports(task: Task) -> Done:
    return Done(task.cell, 0, error=repr(listening_ports()))


def test_a_fleet_listens_on_no_port(tmp_path: Path) -> None:
    """
    Dask runs whatever code it is sent, so without --scheduler the fleet's own opens no socket that others reach.
    """
    before = listening_ports()

    done = dispatch.run(
        cells_to_run([Cell("s", Path(), "a"), Cell("s", Path(), "b")]),
        lambda cell: Task(cell.name, "", cell.host, str(tmp_path), ""),
        lambda *_what: None,
        retries=0,
        body=note_ports,
    )

    assert [repr(before)] * 2 == [each.error for each in done.values()]


def note_foreign_modules(task: Task) -> Done:
    """Report the folders from which modules are imported and to which others than their owner can write."""
    folders = [Path(folder) for folder in sys.path if "dask" in Path(folder).name or "dask-scratch" in folder]
    tops = [next(each for each in (folder, *folder.parents) if str(each.parent) == task.runs) for folder in folders]
    assert tops
    return Done(task.cell, 0, error=repr([str(top) for top in tops if top.stat().st_mode & 0o077]))


def test_a_stranger_puts_no_module_into_a_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Dask imports modules from a scratch folder: another user who took its usual name in /tmp first gets no code into it.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken_first = tmp_path / "dask-scratch-space"
    taken_first.mkdir()
    taken_first.chmod(0o777)

    done = dispatch.run(
        cells_to_run([Cell("s", Path(), "a")]),
        lambda cell: Task(cell.name, "", cell.host, str(tmp_path), ""),
        lambda *_what: None,
        retries=0,
        body=note_foreign_modules,
    )

    assert "[]" == done["s@a"].error
    assert [] == list(taken_first.iterdir())
    assert [taken_first] == list(tmp_path.iterdir())


def test_a_scheduler_with_certificates_refuses_strangers() -> None:
    """
    --scheduler tls:// works with the owner's certificates in Dask's settings, and for nobody without them.
    """
    security = Security.temporary()
    options = {"processes": False, "dashboard_address": None, "worker_dashboard_address": None, "memory_limit": 0}
    certificates = {
        f"distributed.comm.tls.{name}": value
        for name, value in {
            "ca-file": security.tls_ca_file,
            "client.key": security.tls_client_key,
            "client.cert": security.tls_client_cert,
        }.items()
    }

    with LocalCluster(n_workers=1, protocol="tls", security=security, **options) as cluster:
        address = cluster.scheduler_address
        # In processes of their own: Dask closes a client that failed when it is garbage collected, in any thread.
        for reached in (address, address.replace("tls://", "tcp://")):
            words = [sys.executable, "-c", STRANGER, reached]
            stranger = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False)
            assert REFUSED == stranger.returncode
        with dask.config.set(certificates), dispatch._client(address, 1) as client:
            assert 3 == client.submit(sum, (1, 2)).result(timeout=20)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("tls://10.0.0.7:8786", None),
        ("tls://fleet.example:8786", None),
        ("tcp://127.0.0.1:8786", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:8786", True),
        ("tcp://localhost:8786", True),
        ("127.0.0.1:8786", True),
        ("tcp://10.0.0.7:8786", False),
        ("tcp://0.0.0.0:8786", False),
        ("tcp://localhost.example:8786", False),
        ("fleet.example:8786", False),
        ("tcp://[fe80::1]:8786", False),
        ("ws://127.0.0.1:8786", False),
        ("inproc://127.0.0.1/1/1", False),
    ],
)
def test_a_scheduler_without_certificates_is_refused_beyond_this_machine(address: str, loopback: bool | None) -> None:
    """
    tcp:// is refused for other machines and warned about on this one; tls:// is taken.
    """
    if loopback is False:
        with pytest.raises(InputError) as caught:
            dispatch.check_scheduler(address)
        assert "tls://" in caught.value.hint
    else:
        assert (loopback is not None) == (dispatch.check_scheduler(address) is not None)
