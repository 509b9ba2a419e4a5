"""The sources of a host, read in a process of their own: where tokens are timed, no program is started.

A process that starts a program is copied first on a Mac, which holds all of its threads for milliseconds. Run as a
program it is that process: `python -m gatekeeper.host.sampling.reading_process PLATFORM INTERVAL`. It answers each line
of stdin, a JSON object, with one of stdout, and ends with the end of stdin.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from gatekeeper.core.records import Reading
from gatekeeper.core.system.child_process import end
from gatekeeper.core.system.environment_variables import PYTHONPATH
from gatekeeper.host.sampling.poller import Poller, platform_sources

STARTS_TOOLS = frozenset({"macos"})
"""Platforms that have sources which are programs; on the others the sources are files, read where they are used."""
ANSWER_S = 20.0
"""Seconds to wait for an answer; the process is started first, which takes one to two."""
END_S = 3.0
"""Seconds that the process has to end its own tools."""


class ReadingProcess:
    """A poller in a process of its own, with the same methods; raise OSError where it does not answer."""

    def __init__(self, platform: str, pids: Callable[[], Sequence[int]], *, interval: float) -> None:
        self._pids = pids
        self._cost_ns = 0
        self._readings: dict[str, Reading] = {}
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get(PYTHONPATH))))
        argv = [sys.executable, "-P", "-m", "gatekeeper.host.sampling.reading_process", platform, str(interval)]
        # A group of its own, because Ctrl-C is for us; not a session, which would lose sudo's cached permission.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {PYTHONPATH: path},
            process_group=0,
        )

    def settle(self, *, streams: bool) -> None:
        """Wait until each tool, and with *streams* each stream, has had its first reading, error or timeout."""
        self._ask({"settle": streams})

    def refresh(self, grace: float) -> None:
        """Read the sources, and wait *grace* seconds for the tools that are due."""
        self._ask({"refresh": grace})

    def readings(self) -> dict[str, Reading]:
        """Return every value as it was at the last refresh."""
        return self._readings

    def cost_ns(self) -> int:
        """Return the CPU time of this thread, and of the process for what it read."""
        return time.thread_time_ns() + self._cost_ns

    def close(self) -> None:
        """End the process, and with it the streams and the running tools."""
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        end(self._process, grace=0, limit=END_S)

    def _ask(self, request: Mapping[str, Any]) -> None:
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        line = b""
        with contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps({**request, "pids": list(self._pids())}).encode() + b"\n")
            pipe.flush()
            line = answers.readline() if select.select([answers], [], [], ANSWER_S)[0] else b""
        if not line.endswith(b"\n"):
            code = self._process.poll()
            reason = "does not answer" if code is None else f"exited with code {code}"
            raise OSError(f"the process that reads the host {reason}")
        answer = json.loads(line)
        if "error" in answer:
            raise OSError(f"the process that reads the host failed: {answer['error']}")
        self._cost_ns = answer["cost_ns"]
        self._readings = {name: Reading(*row) for name, row in answer["readings"].items()}


def main(platform: str, interval: float) -> None:
    """Answer until stdin ends."""
    pids: list[int] = []
    with Poller(platform_sources(platform, lambda: pids), interval=interval) as poller:
        for line in sys.stdin:
            request = json.loads(line)
            pids[:] = request["pids"]
            try:
                answer = _answer(poller, request)
            except Exception as error:  # noqa: BLE001  a parser with a bug ends the sampling, with its reason
                answer = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _answer(poller: Poller, request: Mapping[str, Any]) -> dict[str, Any]:
    if "settle" in request:
        poller.settle(streams=request["settle"])
        return {"cost_ns": poller.cost_ns(), "readings": {}}
    poller.refresh(request["refresh"])
    readings = {name: astuple(reading) for name, reading in poller.readings().items()}
    return {"cost_ns": poller.cost_ns(), "readings": readings}


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
