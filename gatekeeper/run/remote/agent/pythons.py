"""Environments: the Pythons of the remote host, the virtual environments made with one, and one the user made."""

import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from gatekeeper.run.remote.agent.frames import Channel, Header, Items, Refusal
from gatekeeper.run.remote.agent.processes import FOLDERS, clean_environment, outputs
from gatekeeper.run.remote.agent.state_folder import State, is_locked, locked, read, sha256, write

PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.14", "python")
"""The order in which a Python is looked for; the first that is new enough is taken."""
FURTHER_FOLDERS = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/Library/Frameworks/Python.framework/Versions/*/bin",
)
PROBE = """
import sys
print(".".join(map(str, sys.version_info[:3])))
import venv, ensurepip
print("venv")
"""
KEPT = 3
"""Environments that are kept: the current one, and those of the two versions used before it."""
WAIT_S = 0.5
INSPECT = """
import importlib.metadata, importlib.util
print(importlib.util.find_spec("gatekeeper").origin)
versions = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
print("\\n".join(sorted(f"{name}=={version}" for name, version in versions.items())))
"""
"""Run by the Python of the environment: where its gatekeeper is, and what else is installed, without importing it."""


def pythons() -> "List[str]":
    """Return the installed Pythons, each once, in the order they are tried."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *FOLDERS]
    for pattern in FURTHER_FOLDERS:
        folders += sorted(glob.glob(os.path.expanduser(pattern)), reverse=True)
    by_real_path: Dict[str, str] = {}
    for name in PYTHONS:
        for folder in folders:
            path = os.path.join(os.path.expanduser(folder), name)
            if folder and os.access(path, os.X_OK) and not _is_stub(path):
                by_real_path.setdefault(os.path.realpath(path), path)
    return list(by_real_path.values())


def _is_stub(path: str) -> bool:
    """Return whether *path* is the placeholder of macOS, which opens a window that offers to install Python."""
    if path != "/usr/bin/python3" or sys.platform != "darwin":
        return False
    select = ["/usr/bin/xcode-select", "-p"]
    return subprocess.call(select, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0


def probe(path: str) -> "Tuple[Optional[str], bool]":
    """Return the version of a Python, if it is one, and whether it can make environments that have pip."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ran = _run([path, "-I", "-c", PROBE], timeout=20)
        words = ran.stdout.decode(errors="replace").split()
        if words and re.fullmatch(r"\d+\.\d+\.\d+", words[0]):
            return words[0], words[1:] == ["venv"]
    return None, False


def _run(argv: "List[str]", timeout: "Optional[float]" = None) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
        timeout=timeout, env=clean_environment(),
    )  # fmt: skip


class Environments:
    """Makes and checks environments; `python` is what they are made with."""

    def __init__(self, state: State, channel: Channel) -> None:
        self._state, self._channel = state, channel
        self.python: Optional[str] = None

    def do_install(self, key: str, wheel: str, lock: str) -> Items:
        """Make the environment *key* of an uploaded wheel and pinned requirements, unless it is ready."""
        folder = self._state.named("envs", key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock_file, ready = folder.parent / (key + ".lock"), folder / "ready"
        while is_locked(lock_file):  # another agent installs the same, for minutes: keep this stream alive
            yield {"line": ""}, b""
            self._channel.check(WAIT_S)
        with locked(lock_file, self._channel) as lock_fd:
            if ready.is_file():
                os.utime(str(ready))
            else:
                if folder.exists():
                    shutil.rmtree(str(folder))
                for line in self._install(folder, str(self._state.at(wheel)), str(self._state.at(lock)), lock_fd):
                    yield {"line": line}, b""
                listed = _run([*_pip(folder), "freeze", "--all"])
                listed.check_returncode()
                (folder / "installed.txt").write_bytes(listed.stdout)
                python = probe(str(folder / "bin" / "python"))[0]
                write(ready, {"key": key, "python": python, "installed": listed.stdout.decode().splitlines()})
                self._make_room(key)
        yield {"path": str(folder), "installed": read(ready)["installed"]}, b""

    def _install(self, folder: Path, wheel: str, lock: str, lock_fd: int) -> "Iterator[str]":
        """Yield the output of each step of an installation; a Refusal where one fails.

        Each step inherits the lock: if this agent is killed, no other may build in the same folder meanwhile.
        """
        if self.python is None:
            raise Refusal("python", "no Python on this host is new enough and can create virtual environments")
        install = [*_pip(folder), "install", "--no-deps"]
        for step, argv in (
            ("python -m venv", [self.python, "-I", "-m", "venv", str(folder)]),
            ("pip install of the pinned libraries", [*install, "--require-hashes", "-r", lock]),
            ("pip install of gatekeeper", [*install, "--no-index", wheel]),
        ):
            output = b""
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=clean_environment(), pass_fds=[lock_fd],
            )  # fmt: skip
            try:
                for _, content in outputs(child, self._channel):
                    output = (output + content)[-(1 << 14) :]
                    yield content.decode(errors="replace").rstrip()
            finally:
                if child.poll() is None:
                    child.kill()
                code = child.wait()
            if code != 0:
                lines = [line.rstrip() for line in output.decode(errors="replace").splitlines() if line.strip()]
                full = any("No space left" in line or "Disk quota" in line for line in lines[-41:])
                raise Refusal("disk_full" if full else "install", step + " failed:\n" + "\n".join(lines[-12:]))

    def _make_room(self, key: str) -> None:
        """Remove old environments, half a gigabyte each: all but the last used ones and those of jobs."""
        used = [read(job).get("environment") for job in (self._state.home / "jobs").glob("*/job.json")]
        ready = sorted((self._state.home / "envs").glob("*/ready"), key=lambda at: at.stat().st_mtime, reverse=True)
        for old in [at.parent for at in ready if at.parent.name != key][KEPT - 1 :]:
            if str(old) not in used:
                shutil.rmtree(str(old), ignore_errors=True)

    def do_verify(self, environment: str, package: "Dict[str, str]") -> Header:
        """Compare an environment the user made with the client's *package*: digests by path."""
        place = Path(os.path.expanduser(environment))
        python = place / "bin" / "python"
        if probe(str(python))[0] is None:
            raise Refusal("environment", "no Python at " + str(python))
        inspected = _run([str(python), "-I", "-c", INSPECT])
        if inspected.returncode != 0:
            raise Refusal("environment", "no gatekeeper in " + environment)
        origin, *installed = inspected.stdout.decode().splitlines()
        root = Path(origin).parent
        differing = [
            name
            for name, digest in sorted(package.items())
            if not (root / name).is_file() or sha256(root / name) != digest
        ]
        return {"differing": differing, "installed": installed}


def _pip(folder: Path) -> "List[str]":
    return [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
