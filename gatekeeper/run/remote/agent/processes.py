"""Processes of the remote host: trees of them, their output and their environment; and which boot this is."""

import contextlib
import functools
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from gatekeeper.run.remote.agent.frames import HEARTBEAT_S, Channel

FOLDERS = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin")
"""Where programs are that the short PATH of an ssh command leaves out."""


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """Return what changes with every boot of this machine; empty where that cannot be read.

    Read once: on macOS it costs a process, and a running job is looked up ten times a second.
    """
    file = os.environ.get("GATEKEEPER_BOOT_ID_FILE")
    with contextlib.suppress(OSError):
        return Path(file or "/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        sysctl = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(sysctl, stdout=subprocess.PIPE, check=True, timeout=10).stdout.decode().strip()
    return ""


def tree(root: int) -> "Dict[int, str]":
    """Return *root*, its descendants and what shares a session with them, each with its start time.

    A process id alone may belong to another process by the time it is killed.
    """
    table, members, before = _processes(), {root}, 0
    while len(members) > before:
        before = len(members)
        members |= {pid for pid, (parent, session, _) in table.items() if parent in members or session in members}
    return {pid: table[pid][2] for pid in members if pid in table}


def alive(processes: "Dict[int, str]") -> "List[int]":
    """Return those that are still alive."""
    table = _processes()
    return [pid for pid, started in processes.items() if pid in table and table[pid][2] == started]


def _processes() -> "Dict[int, Tuple[int, int, str]]":
    """Return parent, session and start of every process that is not a zombie."""
    return _by_proc() if os.path.exists("/proc/self/stat") else _by_ps()


def _by_proc() -> "Dict[int, Tuple[int, int, str]]":
    table: Dict[int, Tuple[int, int, str]] = {}
    for at in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = at.read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] not in "ZX":
                table[int(at.parent.name)] = (int(fields[1]), int(fields[3]), fields[19])
    return table


def _by_ps() -> "Dict[int, Tuple[int, int, str]]":
    table: Dict[int, Tuple[int, int, str]] = {}
    # One -o each: outside Linux a comma belongs to the heading that follows an equals sign.
    ps = ["/bin/ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "lstart="]
    listed = subprocess.run(ps, stdout=subprocess.PIPE, check=True, env=dict(os.environ, LC_ALL="C")).stdout
    for line in listed.decode(errors="replace").splitlines():
        pid, parent, state, started = line.split(None, 3)
        with contextlib.suppress(OSError):
            if not state.startswith("Z"):
                table[int(pid)] = (int(parent), os.getsid(int(pid)), started.strip())
    return table


def clean_environment() -> "Dict[str, str]":
    """Return this environment without variables that change how Python starts."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON") and key != "VIRTUAL_ENV"}


def job_environment(place: Path) -> "Dict[str, str]":
    """Return the environment of a job: its PATH finds servers next to its Python, and what ssh's short PATH omits."""
    path = [str(place / "bin"), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    further = (os.path.expanduser(folder) for folder in (*FOLDERS, "/usr/sbin", "/sbin"))
    path += [folder for folder in further if folder not in path]
    return dict(clean_environment(), PATH=os.pathsep.join(path), PYTHONUNBUFFERED="1")


def gatekeeper(place: Path, argv: "List[str]") -> "List[str]":
    """Return the command line of `gatekeeper ARGV`."""
    return [str(place / "bin" / "python"), "-P", "-m", "gatekeeper", *argv]


def outputs(child: "subprocess.Popen[bytes]", channel: Channel) -> "Iterator[Tuple[str, bytes]]":
    """Yield what a child writes as it arrives; empty content as a heartbeat while it writes nothing."""
    pipes = {pipe: name for name, pipe in (("stdout", child.stdout), ("stderr", child.stderr)) if pipe is not None}
    sent = time.monotonic()
    while pipes:
        channel.check()
        for pipe in select.select(list(pipes), [], [], 0.2)[0]:
            content = os.read(pipe.fileno(), 1 << 16)
            if content:
                sent = time.monotonic()
                yield pipes[pipe], content
            else:
                del pipes[pipe]
        if time.monotonic() - sent > HEARTBEAT_S:
            sent = time.monotonic()
            yield "stdout", b""
