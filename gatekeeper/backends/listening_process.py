"""The process that listens at a server's address, and what it was started with, as far as the system shows it.

Of a port of this machine: whether it is free, and whether the program that we started is the one that listens there.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from gatekeeper.backends.lossy_options import Lossy, LossyOption, Written, find_lossy, in_command, in_variables
from gatekeeper.core.errors import InputError
from gatekeeper.core.system.own_limits import check_own_limit

HOST = "127.0.0.1"
"""Where a server that we start listens."""
_CONNECT_S = 0.05
"""Seconds to wait for a connection to a port of this machine."""


@dataclass(frozen=True, slots=True)
class ListeningProcess:
    """The process that listens at the server's address."""

    pid: int
    begun: float
    argv: tuple[str, ...]
    folder: Path | None
    """Its working directory."""

    @property
    def start(self) -> tuple[int, float]:
        """Return the identity of this start of the server."""
        return self.pid, self.begun


def find_process(url: str, previous: ListeningProcess | None = None) -> ListeningProcess | None:
    """Return the process behind a local *url*; None for a remote one, or if the system does not show it.

    *previous* is tried first: usually it still listens.
    """
    where = urlsplit(url)
    port = where.port or (443 if where.scheme == "https" else 80)
    if not is_local(where.hostname or ""):
        return None
    if previous is not None and (still := _listener(previous.pid, port)) is not None and still.start == previous.start:
        return still
    try:
        pids = psutil.pids()
    except OSError as error:
        check_own_limit(error)
        return None
    for pid in pids:
        if (process := _listener(pid, port)) is not None:
            return process
    return None


def is_local(host: str) -> bool:
    """Return whether *host* is this machine, by its name alone."""
    return host in {"localhost", "::1", "0.0.0.0", socket.gethostname()} or host.startswith("127.")  # noqa: S104 (read, not bound)


def _listener(pid: int, port: int) -> ListeningProcess | None:
    try:
        process = psutil.Process(pid)
        if not any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for connection in process.net_connections("tcp")
        ):
            return None
        argv, begun = tuple(process.cmdline()), process.create_time()
    except (psutil.Error, OSError, RuntimeError) as error:  # of another user, just ended, or not supported by psutil
        check_own_limit(error)
        return None
    try:
        folder: Path | None = Path(process.cwd())
    except (psutil.Error, OSError):
        folder = None
    return ListeningProcess(pid, begun, argv, folder)


def find_lossy_process(pids: Sequence[int], options: Sequence[LossyOption]) -> Lossy | None:
    """Return what on the command lines and in the environments of *pids* makes speculation lossy; None for nothing.

    A process that the system does not show has nothing that could be found.
    """
    if not options:
        return None  # this server has no lossy option: no process need be read
    for pid in (*pids, *filter(None, map(_starter, pids))):
        lossy = find_lossy(_written_by(pid), options)
        if lossy is not None:
            return lossy
    return None


def process_tree(pid: int) -> tuple[int, ...]:
    """Return *pid* and the processes that it started: a script is not the server itself."""
    with _where_visible():
        return (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True)))
    return (pid,)


def _starter(pid: int) -> int | None:
    """Return the parent of a process of Python's multiprocessing, whose own command line holds none of its options."""
    with _where_visible():
        process = psutil.Process(pid)
        return process.ppid() if any("multiprocessing" in word for word in process.cmdline()) else None
    return None


def _written_by(pid: int) -> list[Written]:
    written: list[Written] = []
    folder: Path | None = None
    with _where_visible():
        folder = Path(psutil.Process(pid).cwd())
    with _where_visible():
        words = psutil.Process(pid).cmdline()
        written += in_command(words, f"the command line of process {pid}", folder=folder)
    with _where_visible():
        written += in_variables(psutil.Process(pid).environ(), f"the environment of process {pid}")
    return written


@contextmanager
def _where_visible() -> Iterator[None]:
    """Go on where a process has ended, is another user's, or psutil does not support the system."""
    try:
        yield
    except (psutil.Error, OSError, RuntimeError) as error:
        check_own_limit(error)


def free_port() -> int:
    """Return a free port of this machine."""
    try:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            return int(probe.getsockname()[1])
    except OSError as error:
        check_own_limit(error)
        raise


class PortTakenError(InputError):
    """Another program listens on the port that a server was started for."""


def is_own_port(pid: int, port: int) -> bool:
    """Tell whether a program, or a child of it, listens on *port*; raise PortTakenError where another one does.

    A server that could not have its port may go on without it: there is no use in waiting for its health.
    """
    with socket.socket() as probe:
        probe.settimeout(_CONNECT_S)
        if probe.connect_ex((HOST, port)) != 0:
            return False
    if listens(pid, port):
        return True
    raise PortTakenError(f"port {port} of {HOST} was taken by another program", hint="start it again")


def listens(pid: int, port: int) -> bool:
    """Tell whether a program or a child of it listens on *port*; True where the system does not show it.

    Another program that took the port in the meantime would be measured instead.
    """
    try:
        root = psutil.Process(pid)
        connections = [
            connection
            for process in (root, *root.children(recursive=True))
            for connection in process.net_connections("tcp")
        ]
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, RuntimeError):
        return True
    return any(connection.status == psutil.CONN_LISTEN and connection.laddr.port == port for connection in connections)
