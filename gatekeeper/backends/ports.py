"""Ports of this machine: a free one for a server, and whether its program is the one that listens there."""

import socket

import psutil

from gatekeeper.core.errors import InputError
from gatekeeper.core.system.own_limits import check_own_limit

HOST = "127.0.0.1"
_CONNECT_S = 0.05


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
