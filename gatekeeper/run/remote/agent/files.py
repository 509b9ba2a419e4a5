"""Parcels: files that go to the far side and come back."""

import contextlib
import glob
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from gatekeeper.run.remote.agent.frames import CHUNK, Channel, Header, Items, Refusal
from gatekeeper.run.remote.agent.state import State, sha256


class Parcels:
    """Takes and gives files below the state folder."""

    def __init__(self, state: State, channel: Channel) -> None:
        self._state, self._channel = state, channel

    def do_put(self, path: str, sha256: str, mode: int = 0o644) -> Header:
        """Take a file from the frames that follow; it appears whole or not at all."""
        part = None
        try:
            try:
                target = self._state.at(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                _sweep(target)
                part = _part(target)
                sink = part.open("wb")
            except (OSError, Refusal):
                self._drain()
                raise
            with sink:
                got = self._take(sink)
            if got != sha256:
                raise Refusal("damaged", path + " arrived damaged", got=got)  # noqa: TRY301
            part.chmod(mode)
            os.replace(str(part), str(target))
        except (OSError, Refusal):
            if part is not None:
                with contextlib.suppress(OSError):
                    part.unlink()
            raise
        return {"sha256": sha256}

    def _take(self, sink: "BinaryIO") -> str:
        """Write the frames that follow to *sink*, safely on the disk; return their digest."""
        digest = hashlib.sha256()
        while True:
            more, content = self._channel.receive()
            if not more.get("more"):
                break
            digest.update(content)
            try:
                sink.write(content)
            except OSError:
                self._drain()
                raise
        sink.flush()
        os.fsync(sink.fileno())
        return digest.hexdigest()

    def _drain(self) -> None:
        """Read what was still to come, or the next frame of a file would be taken for a question."""
        while self._channel.receive()[0].get("more"):
            pass

    def do_held(self, path: str) -> Header:
        """Say what a file holds; nothing where there is none."""
        at = self._state.at(path)
        return {"size": at.stat().st_size, "sha256": sha256(at)} if at.is_file() else {}

    def do_link(self, path: str, to: str) -> Header:
        """Lay a link at *path* to what is here already: a whole path of this machine, or one below the state folder."""
        at, target = self._state.at(path), Path(os.path.expanduser(to))
        target = target if target.is_absolute() else self._state.at(to)
        if not target.exists():
            raise Refusal("missing", "there is no " + str(target))
        at.parent.mkdir(parents=True, exist_ok=True)
        part = _part(at)
        os.symlink(str(target), str(part))
        os.replace(str(part), str(at))
        return {"to": str(target)}

    def do_get(self, path: str, offset: int = 0) -> Items:
        """Send a file from *offset* on, then the digest of what was sent."""
        at, digest = self._state.at(path), hashlib.sha256()
        if not at.is_file():
            raise Refusal("missing", "no file " + str(at))
        with at.open("rb") as source:
            source.seek(offset)
            for content in iter(lambda: source.read(CHUNK), b""):
                digest.update(content)
                yield {}, content
        yield {"sha256": digest.hexdigest()}, b""


def _part(target: Path) -> Path:
    """Return where a file stands until it is whole."""
    return target.with_name(target.name[:80] + ".part-" + str(os.getpid()))


def _sweep(target: Path) -> None:
    """Remove what agents left of this file whose connection was cut; it may be a model of many gigabytes."""
    for left in target.parent.glob(glob.escape(target.name[:80]) + ".part-*"):
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(left.name.rpartition("-")[2]), 0)
            except ProcessLookupError:
                left.unlink()
