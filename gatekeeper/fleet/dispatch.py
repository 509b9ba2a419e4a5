"""Running the cells of a fleet on Dask: one run a host at a time, hosts in parallel, the longest first.

Dask carries out the tasks, notices a worker that died and starts its task again; it gives no exclusivity, since a task
that is started again may overlap with its first life. So a host gets its next cell only when its last one has ended,
and the host's own lock stays the authority. Workers only dispatch: the measured hosts run no Dask.
"""

import ipaddress
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gatekeeper
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.fleet.cell_task import Done, Task, certify_cell
from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.fleet_cell import CellState

if TYPE_CHECKING:
    from distributed import Client, Future, SpecCluster

TOPIC = "gatekeeper-fleet"
THREADS_MOST = 256
"""Tasks at once on this machine; each waits for its host."""
PAUSE_S = (10.0, 300.0)
"""Before the first retry of a cell, and the longest pause; each is twice the one before."""
CONNECT_S = 20.0
"""For a scheduler to answer."""
Report = Callable[[str, str, Mapping[str, Any]], None]
"""Takes the name of a cell, what happened (a CellState, or an event of its run) and the detail."""


@dataclass(slots=True)
class _Queue:
    """The cells of one host that are still to be run."""

    waiting: deque[Cell] = field(default_factory=deque)
    tries: int = 0


def run(
    cells: Sequence[Cell],
    task_of: Callable[[Cell], Task],
    report: Report,
    *,
    retries: int,
    scheduler: str | None = None,
    body: Callable[[Task], Done] | None = None,
    pause_s: tuple[float, float] = PAUSE_S,
    mark: str = "",
) -> dict[str, Done]:
    """Run *cells*, which are sorted by falling duration; return how each ended, by its name.

    *body* is what a worker does for a task; other bodies than `remote certify` are for simulations. *mark* is a file
    that each worker of *scheduler* has to see.
    """
    queues: dict[str, _Queue] = {}
    for cell in cells:
        queues.setdefault(cell.host, _Queue()).waiting.append(cell)
    with _client(scheduler, len(queues)) as client:
        if scheduler is not None:
            check_workers(client, scheduler, mark)
        client.subscribe_topic(TOPIC, lambda event: report(event[1]["cell"], "event", event[1]))
        loop = _Loop(
            client=client, queues=queues, task_of=task_of, report=report, retries=retries, body=body or dispatch,
            pause_s=pause_s, mark="" if scheduler is None else mark,
        )  # fmt: skip
        return loop.run()


@dataclass(kw_only=True)
class _Loop:
    """Submits the next cell of each host whose last one has ended, until none is left."""

    client: "Client"
    queues: Mapping[str, _Queue]
    task_of: Callable[[Cell], Task]
    report: Report
    retries: int
    body: Callable[[Task], Done]
    pause_s: tuple[float, float]
    mark: str

    def __post_init__(self) -> None:
        self._under_way: dict[Future, Cell] = {}
        self._done: dict[str, Done] = {}

    def run(self) -> dict[str, Done]:
        from distributed import as_completed  # noqa: PLC0415

        completed = as_completed()
        for host in sorted(self.queues, key=lambda name: -sum(cell.seconds for cell in self.queues[name].waiting)):
            self._submit(host, completed)
        while self._under_way:
            future = next(completed)
            cell = self._under_way.pop(future)
            done = _result(future, cell)
            queue = self.queues[cell.host]
            if done.again and queue.tries < self.retries:
                queue.tries += 1
                self.report(cell.name, CellState.RETRY, done.document() | {"tries": queue.tries})
                self._submit(cell.host, completed)
                continue
            queue.waiting.popleft()
            queue.tries = 0
            self._done[cell.name] = done
            self.report(cell.name, CellState.DONE, done.document())
            self._submit(cell.host, completed)
        return self._done

    def _submit(self, host: str, completed: Any) -> None:
        queue = self.queues[host]
        if not queue.waiting:
            return
        cell = queue.waiting[0]
        first, longest = self.pause_s
        pause = min(longest, first * 2 ** (queue.tries - 1)) if queue.tries else 0.0
        task = replace(self.task_of(cell), pause_s=pause, mark=self.mark)
        future = self.client.submit(self.body, task, key=f"{cell.name}-{queue.tries}", pure=False, retries=0)
        self._under_way[future] = cell
        completed.add(future)
        self.report(cell.name, CellState.RUNNING, {})


def _result(future: "Future", cell: Cell) -> Done:
    """Return the answer of a task; one whose workers died again and again is a failure of ours."""
    try:
        done: Done = future.result()
    except Exception as error:  # noqa: BLE001 (Dask raises what it pleases)
        message = f"the task ended without an answer: {type(error).__name__}: {error}"
        return Done(cell.name, int(ExitCode.INTERNAL_ERROR), error=message, hint="repeat the command: it attaches")
    return done


def check_workers(client: "Client", scheduler: str, mark: str) -> None:
    """Refuse a cluster without workers, or one whose workers lack this gatekeeper or the folder of runs."""
    answers = client.run(seen_by_worker, mark, on_error="return")
    if not answers:
        hint = f"start one on a machine that reaches the hosts: dask worker {scheduler}"
        raise HostLacksError(f"the Dask scheduler at {scheduler} has no worker", hint=hint)
    for address, answer in sorted(answers.items()):
        if isinstance(answer, Exception):
            message = f"Dask worker {address} cannot run gatekeeper: {type(answer).__name__}: {answer}"
            hint = "install this version of gatekeeper, with its extra fleet, for the worker"
            raise HostLacksError(message, hint=hint)
        version, sees = answer
        if version != gatekeeper.__version__:
            message = f"Dask worker {address} has gatekeeper {version}, this is {gatekeeper.__version__}"
            raise HostLacksError(message, hint="install the same version on both machines")
        if not sees:
            raise HostLacksError(_unshared(address, Path(mark).parent), hint=SHARE)


SHARE = "put --runs, the SLO files and the hosts file on a file system that is shared under the same path"


def _unshared(worker: str, folder: Path) -> str:
    return f"Dask worker {worker} does not see {folder}, or sees another folder there"


def seen_by_worker(mark: str) -> tuple[str, bool]:
    """Return this worker's version of gatekeeper, and whether it sees the file *mark*."""
    return gatekeeper.__version__, not mark or Path(mark).is_file()


def dispatch(task: Task) -> Done:
    """Certify a cell on a worker, and send its events to whoever subscribed."""
    from distributed import get_worker  # noqa: PLC0415

    worker = get_worker()
    if task.mark and not Path(task.mark).is_file():  # a worker that came later than the check
        return Done(task.cell, int(ExitCode.UNPROVEN), error=_unshared(worker.address, Path(task.runs)), hint=SHARE)

    def tell(kind: str, detail: dict[str, Any]) -> None:
        worker.log_event(TOPIC, {"cell": task.cell, "kind": kind, "detail": detail})

    return certify_cell(task, tell)


@contextmanager
def _client(scheduler: str | None, hosts: int) -> "Iterator[Client]":
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
            _cluster(max(1, min(THREADS_MOST, hosts)), scratch) as cluster,
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


def _cluster(threads: int, scratch: str) -> "AbstractContextManager[SpecCluster]":
    """Return a cluster of one worker inside this process; LocalCluster would open two ports for its pages.

    Dask imports modules from its scratch folder, and its own choice is a name in /tmp that anyone may take first; so
    *scratch* is a folder that only its owner can write to.
    """
    from distributed import Scheduler, SpecCluster, Worker  # noqa: PLC0415

    class UnreachableScheduler(Scheduler):  # type: ignore[misc, unused-ignore]
        def start_http_server(self, *_args: object, **_options: object) -> None:
            """Open no port."""

    class UnreachableWorker(Worker):  # type: ignore[misc, unused-ignore]
        def start_http_server(self, *_args: object, **_options: object) -> None:
            """Open no port."""

    inside = {"protocol": "inproc://", "dashboard": False, "local_directory": scratch}
    worker = inside | {"nthreads": threads, "memory_limit": 0}
    cluster: AbstractContextManager[SpecCluster] = SpecCluster(
        scheduler={"cls": UnreachableScheduler, "options": inside},
        workers={0: {"cls": UnreachableWorker, "options": worker}},
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
        raise InputError(message, hint="start it with certificates and write tls://HOST:8786 (docs/fleet.md)")
    return f"every user of this machine can run code on the workers of {address}; tls:// keeps them out"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
