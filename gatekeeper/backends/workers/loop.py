"""The worker loop: the worker's side of the worker protocol, for the workers that ship with gatekeeper.

It imports the standard library and plain names of ours alone, so that a worker can run in the environment of the
package it serves.
"""

import json
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from queue import SimpleQueue
from typing import Any, NoReturn, Protocol, TextIO

from gatekeeper.core.system.environment_variables import GATEKEEPER_BEAT


class Answerer(Protocol):
    """Loaded models, which answer requests."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; what goes wrong while generating is the answer's `fault`."""


class WorkerChannel:
    """The connection to gatekeeper: lines on the original stdout, and the shared page with the heartbeat counter."""

    def __init__(self) -> None:
        # What libraries print to stdout goes to the log; the protocol has a descriptor of its own.
        self._lines: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        page = os.environ.get(GATEKEEPER_BEAT)
        self.beat = memoryview(mmap.mmap(int(page), mmap.PAGESIZE) if page else bytearray(8)).cast("Q")

    def send(self, message: dict[str, Any]) -> None:
        """Write one line."""
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()

    def give_up(self, reason: str, hint: str) -> NoReturn:
        """Send the reason why this worker cannot run here and what to do, instead of its ready line; exit."""
        self.send({"failed": reason, "hint": hint})
        sys.exit(1)

    def serve(self, hello: dict[str, Any], load: Callable[[list[str]], Answerer]) -> NoReturn:
        """Greet, load, then answer until stdin ends; *load* puts the model it is loading into its list."""
        requests = _requests()
        self.send({"gatekeeper": 1, **hello})
        loading: list[str] = []
        try:
            worker = load(loading)
        except Exception as error:
            self.send({"failed": f"{type(error).__name__}: {error}", "loading": loading[0] if loading else None})
            raise
        self.send({"ready": True})
        while True:
            request = requests.get()
            self.send({"begin": request["ask"]})
            self.send({"answer": request["ask"], **worker.answer(request)})


def _requests() -> SimpleQueue[dict[str, Any]]:
    """Return a queue of the requests on stdin; the end of stdin ends this process, also during an answer."""
    queue: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            queue.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return queue


def find_versions(*names: str) -> dict[str, str]:
    """Return the versions of those packages that are in this environment."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def release(name: str) -> tuple[int, ...]:
    """Return the first three numbers of a package's version; zeros where it is not installed."""
    return tuple(int(number) for number in re.findall(r"\d+", find_versions(name).get(name, "0.0.0"))[:3])
