"""The supervisor: runs one job to its end with nobody connected, and writes down how it ended."""

import contextlib
import fcntl
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, List

from gatekeeper.run.remote.agent.machine import boot_id
from gatekeeper.run.remote.agent.processes import gatekeeper
from gatekeeper.run.remote.agent.state import read, stamp, write

RESERVE = 1 << 16
"""Bytes kept for the last word of a job that fills the disk."""


def supervise(folder: Path) -> None:
    """Run the job in *folder* to its end and write down how it ended; nobody is connected to this process."""
    job = read(folder / "job.json")
    reserve = folder / "reserve"
    reserve.write_bytes(b"\0" * RESERVE)
    lock = folder / "gatekeeper.lock"
    with lock.open("ab") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)  # gatekeeper inherits it, and may outlive this process
        told: List[int] = []
        child = subprocess.Popen(
            gatekeeper(Path(job["environment"]), job["argv"]),
            stdin=subprocess.DEVNULL, cwd=str(folder), start_new_session=True, pass_fds=[theirs.fileno()],
        )  # fmt: skip

        def pass_on(number: int, _frame: Any) -> None:
            told.append(number)
            child.send_signal(signal.SIGTERM)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, pass_on)
        write(folder / "pids.json", {"supervisor": os.getpid(), "gatekeeper": child.pid})
        awake = None
        if os.access("/usr/bin/caffeinate", os.X_OK):
            awake = subprocess.Popen(
                ["/usr/bin/caffeinate", "-i", "-m", "-s", "-w", str(child.pid)], stdin=subprocess.DEVNULL
            )
        code = child.wait()
        if awake is not None:
            awake.terminate()
        with contextlib.suppress(OSError):
            reserve.unlink()
        ended = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None, "at": stamp()}
        write(folder / "exit.json", dict(ended, boot_id=boot_id(), terminated=bool(told)))
