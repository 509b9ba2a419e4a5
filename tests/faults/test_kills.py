"""A kill at every write of a run: what it leaves is continued, and ends as the undisturbed run does."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gatekeeper import host
from gatekeeper.core.system import run_directory
from tests.builders.project_folder import ProjectFolder
from tests.builders.small_run import PUBLISHED, RECORDS, SWEEP, Files, gist, lines, restored, small, stored

POINTS = (
    "before the manifest",
    "a line of the sweep",
    "a line of the soak",
    "a host sample",
    "an event",
    "a closing line",
    *PUBLISHED,
    "the record of tries",
)
FEW = 3
"""Kills at each point: the night takes all, more than a hundred."""


@dataclass(frozen=True)
class Crash:
    """What a kill in one write leaves behind."""

    point: str
    files: Files


class Recorder:
    """Keeps what the folder holds before and in each change that this process makes to it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.crashes: list[Crash] = []
        self._folder, self._names = folder, dict[int, str]()
        self._open, self._write, self._replace = os.open, os.write, os.replace
        patch.setattr(os, "open", self.open)
        patch.setattr(os, "write", self.write)
        patch.setattr(os, "replace", self.replace)
        for name in ("mkdir", "unlink", "ftruncate"):
            patch.setattr(os, name, self._before(getattr(os, name)))

    def _keep(self, name: str, content: bytes = b"") -> None:
        files = stored(self._folder)
        if self._folder.is_dir() and (not self.crashes or self.crashes[-1].files != files):
            self.crashes.append(Crash(_point(name, content, files), files))

    def _before(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(path: Any, *args: Any, **options: Any) -> Any:
            self._keep(self._names[path] if isinstance(path, int) else Path(path).name)
            return change(path, *args, **options)

        return changing

    def open(self, path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            self._keep(Path(path).name)
        descriptor = self._open(path, flags, *args, **options)
        self._names[descriptor] = Path(path).name
        return descriptor

    def write(self, descriptor: int, content: memoryview) -> int:
        name, half = self._names[descriptor], len(content) // 2
        # Half a line ends like the whole one before it, so most lines need no other point.
        if name not in RECORDS or bytes(content[:6]) == b'{"end"':
            self._keep(name, bytes(content))
        self._write(descriptor, content[:half])
        self._keep(name, bytes(content))
        return half + self._write(descriptor, content[half:])

    def replace(self, old: Any, new: Any, **options: Any) -> None:
        self._keep(str(new))
        self._replace(old, new, **options)


def _point(name: str, content: bytes, files: Files) -> str:
    if "manifest.json" not in files:
        return "before the manifest"
    if name in RECORDS and content.startswith(b'{"end"'):
        return "a closing line"
    kinds = {"soak-1.jsonl": "a line of the soak", "host.jsonl": "a host sample", "events.jsonl": "an event"}
    kinds |= dict.fromkeys(SWEEP, "a line of the sweep")
    final_name = name.lstrip(".").removesuffix(f".{os.getpid()}")
    # The run is finished, and its folder changes no more: making the folder of the record is the first write after it.
    return "the record of tries" if final_name == "gatekeeper" else kinds.get(final_name, final_name)


@dataclass(frozen=True)
class Undisturbed:
    project: ProjectFolder
    crashes: list[Crash]
    files: Files


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """Make a whole run once, and keep what its folder held at each write."""
    project = small(tmp_path_factory.mktemp("kills"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "SAMPLE_INTERVAL_S", 10.0)
        patch.setattr(os, "fsync", lambda _: None)  # a killed process loses nothing that the kernel has
        project.run("certify", "slo.toml", "--out", "warm", code=0)
        with pytest.MonkeyPatch.context() as hooks:
            recorder = Recorder(project.path / "run", hooks)
            project.run("certify", "slo.toml", "--out", "run", code=0)
        yield Undisturbed(project, recorder.crashes, stored(project.path / "run"))


def test_there_are_crash_points_of_every_kind(undisturbed: Undisturbed) -> None:
    """The run is stopped in each of its writes, and where half a write is no line that is cut off, also before it."""
    assert set(POINTS) == {crash.point for crash in undisturbed.crashes}
    assert len(undisturbed.crashes) > 100


@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_there_ends_as_the_undisturbed_one(undisturbed: Undisturbed, point: str) -> None:
    """Killed before or in any such write, --resume reaches the same verdict, and each whole record is still there."""
    crashes = [crash for crash in undisturbed.crashes if crash.point == point]
    for crash in crashes[:: -(-len(crashes) // FEW)]:
        resumed(undisturbed, crash)


@pytest.mark.nightly
@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_at_every_such_write_ends_so(undisturbed: Undisturbed, point: str) -> None:
    """The same of each write of the kind."""
    for crash in undisturbed.crashes:
        if crash.point == point:
            resumed(undisturbed, crash)


def resumed(undisturbed: Undisturbed, crash: Crash) -> None:
    """Continue the run from what *crash* left, and compare it with the undisturbed one."""
    project, run = undisturbed.project, undisturbed.project.path / "run"
    restored(run, crash.files)

    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    after = stored(run)
    assert gist(undisturbed.files["verdict.json"]) == gist(after["verdict.json"])
    for name in RECORDS:
        before = lines(crash.files.get(name))
        assert before == lines(after[name])[: len(before)]
    for name in SWEEP:
        assert keys(undisturbed.files[name]) == keys(after[name])
    assert [] == run_directory.RunDirectory(run).changed_files()


def keys(content: bytes | None) -> list[str]:
    """Return what was measured: its order follows the manifest, and a resumed sweep may warm up once more."""
    documents = [json.loads(line) for line in lines(content)]
    return sorted(record["key"] for record in documents if record["role"] != "warmup")


def test_a_new_start_takes_over_what_was_killed_before_its_manifest(undisturbed: Undisturbed) -> None:
    """A folder without a manifest holds nothing that was measured: starting again in it works without --resume, too."""
    project, run = undisturbed.project, undisturbed.project.path / "run"
    early = [crash for crash in undisturbed.crashes if crash.point == "before the manifest"]
    for crash in early[:: -(-len(early) // FEW)]:
        restored(run, crash.files)
        assert not run_directory.is_run(run)  # it keeps no deploy from being admitted

        project.run("certify", "slo.toml", "--out", "run", code=0)

        assert gist(undisturbed.files["verdict.json"]) == gist(stored(run)["verdict.json"])
