"""Limits that this process or its machine reached: errors of ours, never faults of the system under test."""

import errno
import os
import resource
import socket
from contextlib import suppress

from gatekeeper.core.errors import GatekeeperError

_REACHED = {
    errno.EMFILE: "this process may not open more files and connections",
    errno.ENFILE: "this machine may not open more files and connections",
    errno.EADDRNOTAVAIL: "this machine has no free local port or address for a connection",
    errno.ENOBUFS: "this machine has no memory left for connections",
    errno.ENOMEM: "this machine has no memory left",
    errno.EAGAIN: "no further process or thread can be started",
}
_NO_THREAD = "can't start new thread"
HINT = (
    "lower the concurrency, close other programs, or raise the limit (ulimit -n: files, ulimit -u: processes); then "
    "continue the run with --resume"
)
MOST_DESCRIPTORS = 65_536
"""Asked for at most: a program that we start may close as many one by one, and a container may allow a billion."""
MACOS_DESCRIPTORS = 10_240
"""OPEN_MAX: what setrlimit of macOS takes where its hard limit is said to be unlimited."""


class OwnLimitError(GatekeeperError):
    """gatekeeper reached a limit of its own; what was measured until then is stored, and the run can be resumed."""


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system allows it; a Mac begins with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (MOST_DESCRIPTORS, MACOS_DESCRIPTORS):
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if soft != resource.RLIM_INFINITY and limit > soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                return


def own_limit(error: BaseException) -> OwnLimitError | None:
    """Return what to tell where *error* comes from a limit of this process or machine, None for anything else."""
    if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno == errno.EBUSY):
        # Without a descriptor the look-up of a name fails for any of these reasons.
        number = errno.EMFILE if _no_descriptor_left() else 0
    elif isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        number = errno.EAGAIN
    else:
        number = (error.errno or 0) if isinstance(error, OSError) else 0
    if number not in _REACHED or isinstance(error, TimeoutError):
        return None
    return OwnLimitError(f"{_REACHED[number]} ({os.strerror(number)})", hint=HINT)


def check_own_limit(error: BaseException) -> None:
    """Raise OwnLimitError where *error* comes from a limit of this process or machine; anything else is left alone."""
    if (reached := own_limit(error)) is not None:
        raise reached from error


def _no_descriptor_left() -> bool:
    """Tell whether no file can be opened: the look-up of a name hides that this is why it failed."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False
