"""Environments of the far side: virtual ones that were made from here, and one that somebody else made."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from gatekeeper.run.remote.agent.frames import Channel, Header, Items, Refusal
from gatekeeper.run.remote.agent.machine import probe
from gatekeeper.run.remote.agent.processes import clean, lines
from gatekeeper.run.remote.agent.state import State, held, locked, read, sha256, write

KEPT = 3
"""Environments that stay: the one of now, and what a return to the last versions would need."""

WAITING_S = 0.5

FIND = """
import importlib.metadata, importlib.util
print(importlib.util.find_spec("gatekeeper").origin)
versions = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
print("\\n".join(sorted(f"{name}=={version}" for name, version in versions.items())))
"""
"""Run by the Python of the environment: where its gatekeeper is, and what else is installed, without importing it."""


class Environments:
    """Makes and checks environments; `python` is what they are made with."""

    def __init__(self, state: State, channel: Channel) -> None:
        self._state, self._channel = state, channel
        self.python: Optional[str] = None

    def do_install(self, key: str, wheel: str, lock: str) -> Items:
        """Make the environment *key* of a wheel and pinned requirements that were put here, or find it ready."""
        folder = self._state.named("envs", key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock_file = folder.parent / (key + ".lock")
        while held(
            lock_file
        ):  # somebody else installs the same: that takes minutes, and this stream is not to be silent
            yield {"line": ""}, b""
            self._channel.check(WAITING_S)
        with locked(lock_file, self._channel) as lock_held:
            ready = folder / "ready"
            if ready.is_file():
                os.utime(str(ready))
                yield dict(read(ready), ready=True, fresh=False), b""
                return
            if self.python is None:
                raise Refusal("python", "no Python here is new enough and makes environments")
            if folder.exists():
                shutil.rmtree(str(folder))
            pinned = ["install", "--require-hashes", "--no-deps", "-r", str(self._state.at(lock))]
            ours = ["install", "--no-deps", "--no-index", str(self._state.at(wheel))]
            for what, words in (
                ("python -m venv", [self.python, "-I", "-m", "venv", str(folder)]),
                ("pip install of the pinned libraries", [*_pip(folder), *pinned]),
                ("pip install of gatekeeper", [*_pip(folder), *ours]),
            ):
                for item in self._step(what, words, lock_held):
                    yield item, b""
            frozen = subprocess.run(
                [*_pip(folder), "freeze", "--all"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=True,
                env=clean(),
            ).stdout.decode()
            (folder / "installed.txt").write_text(frozen)
            made = {"key": key, "python": probe(str(folder / "bin" / "python"))[0], "installed": frozen.splitlines()}
            write(ready, made)
            self._make_room(key)
        yield dict(made, ready=True, fresh=True), b""

    def _make_room(self, key: str) -> None:
        """Remove environments of the past, half a gigabyte each: all but the last used that no job lives in."""
        used = [read(job).get("environment") for job in (self._state.home / "jobs").glob("*/job.json")]
        ready = sorted((self._state.home / "envs").glob("*/ready"), key=lambda at: at.stat().st_mtime, reverse=True)
        for old in [at.parent for at in ready if at.parent.name != key][KEPT - 1 :]:
            if str(old) not in used:
                shutil.rmtree(str(old), ignore_errors=True)

    def _step(self, what: str, words: "List[str]", lock_held: int) -> "Iterator[Header]":
        """Run one step of an installation; tell what it says, and refuse to go on where it fails.

        The step holds the lock as well: were this agent killed, nobody may build in the same folder meanwhile.
        """
        said: List[str] = []
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=clean(),
            pass_fds=[lock_held],
        )
        try:
            for line in lines(child, self._channel):
                if line:
                    said = [*said[-40:], line]
                yield {"line": line}
        finally:
            if child.poll() is None:
                child.kill()
            code = child.wait()
        if code != 0:
            full = any("No space left" in line or "Disk quota" in line for line in said)
            told = "\n".join(said[-12:])
            raise Refusal("disk_full" if full else "install", what + " failed:\n" + told)

    def do_verify(self, environment: str, package: "Dict[str, str]") -> Header:
        """Compare an environment somebody else made with the *package* of the near side: digests by path."""
        python = Path(os.path.expanduser(environment)) / "bin" / "python"
        version, _ = probe(str(python))
        if version is None:
            raise Refusal("environment", "no Python at " + str(python))
        found = subprocess.run(
            [str(python), "-I", "-c", FIND],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, env=clean(),
        )  # fmt: skip
        if found.returncode != 0:
            raise Refusal("environment", "no gatekeeper in " + environment)
        origin, *installed = found.stdout.decode().splitlines()
        root = Path(origin).parent
        differing = [
            name
            for name, digest in sorted(package.items())
            if not (root / name).is_file() or sha256(root / name) != digest
        ]
        return {"python": version, "root": str(root), "differing": differing, "installed": installed}

    def place(self, key: str, environment: str) -> Path:
        """Return the folder of an environment that is ready."""
        if environment:
            return Path(os.path.expanduser(environment))
        folder = self._state.named("envs", key)
        if not (folder / "ready").is_file():
            raise Refusal("environment", "the environment " + key + " is not installed")
        return folder


def _pip(folder: Path) -> "List[str]":
    return [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
