"""The processes of the server: those that were started, and all that they started."""

import time
from collections.abc import Callable, Sequence

import psutil

MAX_AGE_S = 5.0
"""Seconds for which the list is kept: listing all processes takes milliseconds."""


class ProcessTree:
    """Those of some processes that still run, and all their descendants."""

    def __init__(self, roots: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        self._listed: tuple[int, ...] = ()
        self._pids: list[int] = []
        self._due_ns = 0

    def pids(self) -> list[int]:
        """Return their pids, listed anew where the roots are others or the list is old."""
        roots, now = tuple(self._roots()), time.monotonic_ns()
        if roots != self._listed or now >= self._due_ns:
            self._listed, self._pids = roots, list_tree(roots)
            self._due_ns = now + round(MAX_AGE_S * 1e9)
        return self._pids


def list_tree(roots: Sequence[int]) -> list[int]:
    """Return the pids of *roots* that still run, and of all their descendants."""
    pids: set[int] = set()
    for root in roots:
        try:
            process = psutil.Process(root)
            pids |= {root} | {child.pid for child in process.children(recursive=True)}
        except (psutil.Error, RuntimeError):  # psutil raises RuntimeError on systems newer than itself
            continue
    return sorted(pids)
