"""Processes of the far side: what belongs to one, what it writes, and the environment it is given."""

import contextlib
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from gatekeeper.run.remote.agent.frames import BEAT_S, Channel

PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin")
"""Where programs stand that the short PATH of an ssh command leaves out."""


def family(root: int) -> "Dict[int, str]":
    """Return *root*, what it started and what shares a session with them, each with the moment it was started.

    A number alone may belong to another process by the time it is killed.
    """
    table = _processes()
    family = {root}
    grown = True
    while grown:
        grown = False
        for pid, (parent, session, _) in table.items():
            if pid not in family and (parent in family or session in family):
                family.add(pid)
                grown = True
    return {pid: table[pid][2] for pid in family if pid in table}


def alive(family: "Dict[int, str]") -> "List[int]":
    """Return those that still live."""
    table = _processes()
    return [pid for pid, started in family.items() if pid in table and table[pid][2] == started]


def _processes() -> "Dict[int, Tuple[int, int, str]]":
    """Return parent, session and start of every process that is no zombie."""
    return _by_files() if os.path.exists("/proc/self/stat") else _by_ps()


def _by_files() -> "Dict[int, Tuple[int, int, str]]":
    table: Dict[int, Tuple[int, int, str]] = {}
    for at in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = at.read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] not in "ZX":
                table[int(at.parent.name)] = (int(fields[1]), int(fields[3]), fields[19])
    return table


def _by_ps() -> "Dict[int, Tuple[int, int, str]]":
    table: Dict[int, Tuple[int, int, str]] = {}
    # One -o each: elsewhere than on Linux a comma belongs to the heading that follows an equals sign.
    asked = ["/bin/ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "lstart="]
    listed = subprocess.run(asked, stdout=subprocess.PIPE, check=True, env=dict(os.environ, LC_ALL="C")).stdout
    for line in listed.decode(errors="replace").splitlines():
        pid, parent, state, started = line.split(None, 3)
        if not state.startswith("Z"):
            table[int(pid)] = (int(parent), _session(int(pid)), started.strip())
    return table


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def clean() -> "Dict[str, str]":
    """Return this environment without what bends a Python."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON") and key != "VIRTUAL_ENV"}


def job_environment(place: Path) -> "Dict[str, str]":
    """Return the environment of a job: servers installed beside it are found, and what a short ssh PATH leaves out."""
    path = [str(place / "bin"), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    path += [os.path.expanduser(one) for one in (*PLACES, "/usr/sbin", "/sbin") if os.path.expanduser(one) not in path]
    return dict(clean(), PATH=os.pathsep.join(path), PYTHONUNBUFFERED="1")


def gatekeeper(place: Path, argv: "List[str]") -> "List[str]":
    """Return the words that start `gatekeeper ARGV`."""
    return [str(place / "bin" / "python"), "-P", "-m", "gatekeeper", *argv]


def outputs(child: "subprocess.Popen[bytes]", channel: Channel) -> "Iterator[Tuple[str, bytes]]":
    """Yield what a child writes as it comes; an empty piece now and then while it is silent."""
    pipes = {pipe: name for name, pipe in (("stdout", child.stdout), ("stderr", child.stderr)) if pipe is not None}
    said = time.monotonic()
    while pipes:
        channel.check()
        for pipe in select.select(list(pipes), [], [], 0.2)[0]:
            content = os.read(pipe.fileno(), 1 << 16)
            if content:
                said = time.monotonic()
                yield pipes[pipe], content
            else:
                del pipes[pipe]
        if time.monotonic() - said > BEAT_S:
            said = time.monotonic()
            yield "stdout", b""


def lines(child: "subprocess.Popen[bytes]", channel: Channel) -> "Iterator[str]":
    """Yield the lines a child writes; an empty one now and then while it is silent."""
    rest = b""
    for _, content in outputs(child, channel):
        *whole, rest = (rest + content).split(b"\n")
        if not content:
            yield ""
        for line in whole:
            yield line.decode(errors="replace").rstrip()
    if rest:
        yield rest.decode(errors="replace").rstrip()
