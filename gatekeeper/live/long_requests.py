"""Reading of long requests in a process of its own: meanwhile other streams go on.

A JSON parser holds the interpreter's lock from the first byte to the last, so that a thread would not do.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, TypeVar

from gatekeeper.live import live_request
from gatekeeper.live.live_request import LiveRequest

T = TypeVar("T")

LONG = 1 << 18
"""Bytes from which a request is read in the other process: reading it here would delay all streams by milliseconds."""


class UnreadableBodyError(Exception):
    """The body is no JSON object that can be read, so that nothing says how the server would decode it."""


class LongRequests:
    """Reads long requests in a process that starts with the first of them."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def read(self, path: str, headers: Mapping[str, str], content: bytes) -> LiveRequest:
        """Read a request, whose body stays in the other process."""
        read_headers = {name: headers[name] for name in live_request.HEADERS if name in headers}
        return await self._run_in_process(_read, path, read_headers, content)

    async def merge(self, content: bytes, request: LiveRequest, *patches: Mapping[str, Any]) -> bytes:
        """Return the body with *patches*, and without a client's own choice of a draft; the same bytes if none change.

        Raise UnreadableBodyError where it is no JSON object.
        """
        if not request.is_read:
            raise UnreadableBodyError
        changes = [dict(patch) for patch in (request.drafting, *patches) if patch]
        if not changes:
            return content
        try:
            if request.body is not None:
                return live_request.merge_patches(request.body, *changes)
            return await self._run_in_process(_merge, content, changes)
        except (ValueError, RecursionError) as error:  # nested too deeply, or a number that no text can hold
            raise UnreadableBodyError from error

    async def _run_in_process(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_ignore_interrupts)
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        except (BrokenProcessPool, OSError):  # something killed it, or none can be started: the next one tries again
            self._pool = None
            return work(*arguments)

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group: the proxy ends this process itself
        signal.signal(number, signal.SIG_IGN)


def _read(path: str, headers: Mapping[str, str], content: bytes) -> LiveRequest:
    request = live_request.read_request(path, headers, content)
    return replace(request, body=None, is_long=request.body is not None, conditions_of_long=request.conditions())


def _merge(content: bytes, patches: Sequence[Mapping[str, Any]]) -> bytes:
    return live_request.merge_patches(live_request.read_request("", {}, content).body or {}, *patches)
