"""Running the cells of a fleet on Dask: one run a host at a time, hosts in parallel, the longest first.

Each host is a resource of one Dask worker, so Dask gives it one cell at a time; it also tries a cell again, notices a
worker that died and starts its task elsewhere. A task that is started again may overlap with its first life, so the
host's own lock stays the authority. Workers only start processes: the measured hosts run no Dask.
"""

import ipaddress
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import gatekeeper
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.fleet.cell_task import CellResult, CellTask, TryAgainError, certify_cell
from gatekeeper.fleet.fleet_record import FILE, read_record

if TYPE_CHECKING:
    from distributed import Client, Future, SpecCluster

TOPIC = "gatekeeper-fleet"
CONNECT_S = 20.0
"""For a scheduler to answer."""
SHARE = "put --runs and the SLO files on a file system that is shared under the same path"

Tell = Callable[[str, str], None]
"""Takes the name of a cell and a line that its process printed."""


def run_cells(
    tasks: Sequence[CellTask],
    tell: Tell,
    end: Callable[[str, CellResult], None],
    *,
    retries: int,
    scheduler: str | None = None,
    body: Callable[[CellTask], CellResult] | None = None,
) -> None:
    """Run the cells of *tasks*, and call *end* with the name of each and how it ended.

    *body* is what a worker does for a task; another one than `remote certify` is for tests.
    """
    from distributed import as_completed  # noqa: PLC0415 (Dask takes a second to import)

    hosts = sorted({task.cell.host for task in tasks})
    with open_client(scheduler, hosts) as client:
        if scheduler is not None:
            check_workers(client, scheduler, hosts, tasks[0].runs)
        client.subscribe_topic(TOPIC, lambda event: tell(*event[1]))
        names: dict[Future, str] = {}
        for task in tasks:
            name = task.cell.name
            future = client.submit(
                body or certify_on_worker, task, key=f"{name}-{task.started}", pure=False, retries=retries,
                resources={task.cell.host: 1}, priority=task.cell.expected_seconds,
            )  # fmt: skip
            names[future] = name
        for future in as_completed(list(names)):
            end(names[future], _result_of(future))


def _result_of(future: "Future") -> CellResult:
    """Return the answer of a task; one whose workers died again and again is a failure of ours."""
    try:
        result: CellResult = future.result()
    except TryAgainError as error:
        return error.result
    except Exception as error:  # noqa: BLE001 (Dask raises what it pleases)
        message = f"the task ended without an answer: {type(error).__name__}: {error}"
        hint = "the same command with --resume attaches to its run"
        return CellResult(exit_code=int(ExitCode.INTERNAL_ERROR), error=message, hint=hint)
    return result


def certify_on_worker(task: CellTask) -> CellResult:
    """Certify a cell on a worker, and send its lines to whoever subscribed."""
    from distributed import get_worker  # noqa: PLC0415

    worker = get_worker()
    if not (task.runs / FILE).is_file():  # a worker that came later than the check
        error = f"Dask worker {worker.address} does not see {task.runs}"
        return CellResult(exit_code=int(ExitCode.UNPROVEN), error=error, hint=SHARE)
    return certify_cell(task, lambda line: worker.log_event(TOPIC, (task.cell.name, line)))


def check_workers(client: "Client", scheduler: str, hosts: Sequence[str], runs: Path) -> None:
    """Refuse a cluster in which a host is not the resource of one worker, or whose workers lack what they need.

    They need this version of gatekeeper, and the folder *runs* with the record of this fleet.
    """
    record = read_record(runs)
    started = record.started if record is not None else ""
    answers = client.run(describe_worker, runs, on_error="return")
    for address, answer in sorted(answers.items()):
        if isinstance(answer, Exception):
            message = f"Dask worker {address} cannot run gatekeeper: {type(answer).__name__}: {answer}"
            hint = "install this version of gatekeeper, with its extra fleet, for the worker"
            raise HostLacksError(message, hint=hint)
        version, started_there = answer
        if version != gatekeeper.__version__:
            message = f"Dask worker {address} has gatekeeper {version}, this is {gatekeeper.__version__}"
            raise HostLacksError(message, hint="install the same version on both machines")
        if started_there != started:
            message = f"Dask worker {address} does not see {runs}, or sees another folder there"
            raise HostLacksError(message, hint=SHARE)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    for host in hosts:
        count = sum(host in worker["resources"] for worker in workers)
        if count != 1:
            message = f"the Dask scheduler at {scheduler} has {count} workers with the resource {host}, it needs one"
            hint = f'on a machine that reaches the host: dask worker {scheduler} --nthreads 1 --resources "{host}=1"'
            raise HostLacksError(message, hint=hint)


def describe_worker(runs: Path) -> tuple[str, str]:
    """Return this worker's version of gatekeeper, and when the fleet started whose record it sees in *runs*."""
    record = read_record(runs)
    return gatekeeper.__version__, record.started if record is not None else "never"


@contextmanager
def open_client(scheduler: str | None, hosts: Sequence[str]) -> "Iterator[Client]":
    """Yield a client of the team's scheduler, or of a cluster inside this process that listens on no port.

    Whoever reaches a scheduler runs code as the owner of its workers: Dask unpickles what it is sent.
    """
    try:
        from distributed import Client  # noqa: PLC0415
        from distributed.security import Security  # noqa: PLC0415
    except ImportError as error:
        raise HostLacksError("fleet needs Dask", hint="pip install 'gatekeeper-slo[fleet]'") from error
    if scheduler is None:
        with (
            tempfile.TemporaryDirectory(prefix="gatekeeper-fleet-") as scratch,
            open_cluster(hosts, scratch) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        # The certificates of tls:// are those of Dask's own settings (distributed.comm.tls).
        client = Client(scheduler, timeout=CONNECT_S, security=Security())
    except (OSError, ValueError, TypeError) as error:
        hint = "check --scheduler; tls:// needs the certificates in Dask's settings, distributed.comm.tls"
        raise GatekeeperError(f"no Dask scheduler at {scheduler}: {error}", hint=hint) from error
    with client:
        yield client


def open_cluster(hosts: Sequence[str], scratch: str) -> "AbstractContextManager[SpecCluster]":
    """Return a cluster inside this process, with a worker for each host; LocalCluster would open ports for its pages.

    A worker with several hosts would wait with all of them until the host of its next cell is free. Dask imports
    modules from its scratch folder, and its own choice is a name in /tmp that anyone may take first; so *scratch* is a
    folder that only its owner can write to.
    """
    from distributed import Scheduler, SpecCluster, Worker  # noqa: PLC0415

    class UnreachableScheduler(Scheduler):  # type: ignore[misc, unused-ignore]
        def start_http_server(self, *_args: object, **_options: object) -> None:
            """Open no port."""

    class UnreachableWorker(Worker):  # type: ignore[misc, unused-ignore]
        def start_http_server(self, *_args: object, **_options: object) -> None:
            """Open no port."""

    inside = {"protocol": "inproc://", "dashboard": False, "local_directory": scratch}
    worker = inside | {"nthreads": 1, "memory_limit": 0}
    cluster: AbstractContextManager[SpecCluster] = SpecCluster(
        scheduler={"cls": UnreachableScheduler, "options": inside},
        workers={host: {"cls": UnreachableWorker, "options": worker | {"resources": {host: 1}}} for host in hosts},
        silence_logs=logging.ERROR,
    )
    return cluster


def check_scheduler(address: str) -> str | None:
    """Refuse a scheduler that strangers could use; return what to warn of, None for one behind mutual TLS."""
    protocol, separator, place = address.partition("://")
    if separator and protocol == "tls":
        return None
    if separator and protocol != "tcp":
        hint = "write --scheduler tls://HOST:8786"
        raise InputError(f"--scheduler {address}: the protocol is tls:// or tcp://", hint=hint)
    host = place if separator else address
    host = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if not _is_loopback(host):
        message = f"--scheduler {address}: without TLS everyone who reaches a Dask scheduler runs code on its workers"
        raise InputError(
            message, hint="start it with certificates and write tls://HOST:8786 (gatekeeper explain fleet)"
        )
    return f"every user of this machine can run code on the workers of {address}; tls:// keeps them out"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
