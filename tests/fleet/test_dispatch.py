"""The cells of a fleet on a real Dask cluster in processes of its own, with bodies that only wait."""

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
from gatekeeper.fleet.cell_task import CellResult, CellTask, TryAgainError
from gatekeeper.fleet.cells import cells_to_run
from gatekeeper.fleet.fleet_record import FleetRecord, write_record
from tests.builders.fleet import make_cell
from tests.builders.project_folder import ROOT

pytestmark = pytest.mark.whole  # each starts a cluster, or processes that join one
CLUSTER = """
import sys
from distributed import Nanny, Scheduler, SpecCluster, Worker
hosts, without = sys.argv[1].split(), sys.argv[2]
if without:
    sys.modules[without] = None
if __name__ == "__main__":
    options = {"protocol": "tcp", "dashboard": False, "dashboard_address": None}
    worker = {"protocol": "tcp", "nthreads": 1, "memory_limit": 0, "dashboard_address": None}
    workers = {
        host: {"cls": Worker if without else Nanny, "options": worker | {"resources": {host: 1}}} for host in hosts
    }
    with SpecCluster(scheduler={"cls": Scheduler, "options": options}, workers=workers) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
STARTED = "2026-01-01T00:00:00Z"
REFUSED = 23

STRANGER = f"""
import os, sys
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.fleet import dispatch
try:
    dispatch.open_client(sys.argv[1], ["a"]).__enter__()
except GatekeeperError as error:
    assert "no Dask scheduler" in str(error)
    os._exit({REFUSED})
"""


@contextmanager
def cluster_of(folder: Path, hosts: str, without: str = "") -> Iterator[str]:
    """Start a scheduler and a worker for each of *hosts* in other processes, without the package *without*."""
    program = folder / "cluster.py"
    program.write_text(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(program), hosts, without],
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
    with cluster_of(tmp_path_factory.mktemp("cluster"), "a b c") as address:
        yield address


Run = Callable[..., dict[str, CellResult]]


@pytest.fixture
def run_cells(tmp_path: Path) -> Run:
    """Run cells, by their names, in a folder of runs that is the test's own."""

    def run_cells(*names: str, body: Callable[[CellTask], CellResult], **options: Any) -> dict[str, CellResult]:
        cells = [make_cell(name, expected_seconds=float(number)) for number, name in enumerate(names)]
        write_record(tmp_path, FleetRecord(started=STARTED, cells=()))
        tasks = [CellTask(cell, tmp_path, STARTED) for cell in cells_to_run(cells)]
        results: dict[str, CellResult] = {}
        dispatch.run_cells(tasks, lambda *_line: None, results.__setitem__, body=body, **{"retries": 0, **options})
        return results

    return run_cells


def note(task: CellTask) -> CellResult:
    """Note when the cell began and ended."""
    with (task.runs / f"{task.cell.name}.began").open("a") as file:
        file.write(f"{time.monotonic()} ")
    time.sleep(0.1)
    (task.runs / f"{task.cell.name}.ended").write_text(str(time.monotonic()))
    return CellResult(exit_code=0, outcome="promoted")


def die_once(task: CellTask) -> CellResult:
    """Kill the worker the first time."""
    before = task.runs / "killed"
    if not before.exists():
        before.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return note(task)


def fail_twice(task: CellTask) -> CellResult:
    """Lose the connection twice."""
    tries = task.runs / "tries"
    count = int(tries.read_text()) if tries.exists() else 0
    tries.write_text(str(count + 1))
    if count < 2:
        raise TryAgainError(CellResult(exit_code=3, error="lost"))
    return CellResult(exit_code=0, outcome="promoted")


def test_a_host_has_one_cell_at_a_time_and_the_longest_first(run_cells: Run, tmp_path: Path) -> None:
    """Three cells on each of three hosts: those of a host follow each other by falling duration, hosts overlap."""
    names = [f"s{number}@{host}" for number in range(3) for host in "abc"]

    results = run_cells(*names, body=note)

    assert set(names) == results.keys()
    spans = {
        name: (float((tmp_path / f"{name}.began").read_text()), float((tmp_path / f"{name}.ended").read_text()))
        for name in names
    }
    for host in "abc":
        assert spans[f"s2@{host}"][1] <= spans[f"s1@{host}"][0]
        assert spans[f"s1@{host}"][1] <= spans[f"s0@{host}"][0]
    assert max(spans[f"s2@{host}"][0] for host in "abc") < max(spans[f"s0@{host}"][1] for host in "abc")


def test_a_killed_worker_repeats_its_cell(run_cells: Run, cluster: str) -> None:
    """Kill -9 on a Dask worker in the middle of a cell: another takes its place and the cell is carried out."""
    assert "promoted" == run_cells("s@a", body=die_once, scheduler=cluster)["s@a"].outcome


def test_only_what_says_nothing_of_the_system_is_tried_again(run_cells: Run, tmp_path: Path) -> None:
    """A lost connection is tried again as often as allowed; then the cell ends with its error."""
    assert "promoted" == run_cells("s@a", body=fail_twice, retries=2)["s@a"].outcome
    (tmp_path / "tries").unlink()
    assert "lost" == run_cells("t@a", body=fail_twice, retries=1)["t@a"].error


def break_down(_task: CellTask) -> CellResult:
    raise ZeroDivisionError


def test_a_task_without_an_answer_is_an_error_of_ours(run_cells: Run) -> None:
    """Whatever a task raises is the error of its cell, with code 4, and no other cell is lost."""
    result = run_cells("s@a", body=break_down)["s@a"]

    assert (4, "") == (result.exit_code, result.outcome)
    assert "ZeroDivisionError" in result.error


def test_a_worker_shares_the_folder_of_runs(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not see the record of this fleet is refused before anything runs, by name."""
    elsewhere = Path("a-folder-of-runs")  # the workers are in another folder than this test
    monkeypatch.chdir(tmp_path)
    for runs in (tmp_path, elsewhere):
        write_record(runs, FleetRecord(started=STARTED, cells=()))

    with dispatch.open_client(cluster, ["a"]) as client:
        dispatch.check_workers(client, cluster, ["a"], tmp_path)
        with pytest.raises(GatekeeperError, match=r"worker tcp://\S+ ") as caught:
            dispatch.check_workers(client, cluster, ["a"], elsewhere)

    assert dispatch.SHARE == caught.value.hint


@pytest.mark.parametrize(
    ("workers", "without", "says"),
    [("b", "", "has 0 workers with the resource a"), ("a", "gatekeeper", "cannot run gatekeeper")],
)
def test_a_cluster_that_cannot_dispatch_is_refused(
    run_cells: Run, tmp_path: Path, workers: str, without: str, says: str
) -> None:
    """A host without a worker, or workers without gatekeeper, would keep the fleet waiting for ever."""
    with (
        cluster_of(tmp_path, workers, without) as address,
        pytest.raises(GatekeeperError, match=says) as caught,
    ):
        run_cells("s@a", body=note, scheduler=address)
    assert caught.value.hint


def listening_ports() -> set[int]:
    """Return the TCP ports that this process and its children listen on."""
    process = psutil.Process()
    sockets = [
        socket for each in (process, *process.children(recursive=True)) for socket in each.net_connections("inet")
    ]
    return {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}


def note_ports(_task: CellTask) -> CellResult:
    return CellResult(exit_code=0, error=repr(listening_ports()))


def test_a_fleet_listens_on_no_port(run_cells: Run) -> None:
    """Dask runs whatever code it is sent, so without --scheduler the fleet's own opens no socket that others reach."""
    before = listening_ports()

    results = run_cells("s@a", "s@b", body=note_ports)

    assert [repr(before)] * 2 == [result.error for result in results.values()]


def note_foreign_modules(task: CellTask) -> CellResult:
    """Report the folders from which modules are imported and to which others than their owner can write."""
    folders = [Path(folder) for folder in sys.path if task.runs in Path(folder).parents]
    tops = [next(each for each in (folder, *folder.parents) if each.parent == task.runs) for folder in folders]
    assert tops
    return CellResult(exit_code=0, error=repr([str(top) for top in tops if top.stat().st_mode & 0o077]))


def test_a_stranger_puts_no_module_into_a_fleet(
    run_cells: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask imports from a scratch folder: who took its usual name in /tmp first gets no code into it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken_first = tmp_path / "dask-scratch-space"
    taken_first.mkdir()
    taken_first.chmod(0o777)

    result = run_cells("s@a", body=note_foreign_modules)["s@a"]

    assert "[]" == result.error
    assert [] == list(taken_first.iterdir())
    assert ["dask-scratch-space", "fleet.json"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_scheduler_with_certificates_refuses_strangers() -> None:
    """--scheduler tls:// works with the owner's certificates in Dask's settings, and for nobody without them."""
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
        with dask.config.set(certificates), dispatch.open_client(address, ["a"]) as client:
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
    """tcp:// is refused for other machines and warned about on this one; tls:// is taken."""
    if loopback is False:
        with pytest.raises(InputError) as caught:
            dispatch.check_scheduler(address)
        assert "tls://" in caught.value.hint
    else:
        assert (loopback is not None) == (dispatch.check_scheduler(address) is not None)
