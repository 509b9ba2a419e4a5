"""Disks that take no more: a limit on the size of files, and a small disk of its own where root may mount one."""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond *size* bytes: the write that would is cut short or refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """Mount a disk of its own at *folder* with tmpfs *options* (`size=200k`); skip the test where that is forbidden."""
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no mount here")
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def at_line(patch: pytest.MonkeyPatch, name: str, number: int, act: Callable[[], object]) -> None:
    """Call *act* before this process writes line *number* (from 1) to a file called *name*."""
    opened, before, lines_written = os.open, os.write, [0]
    names: dict[int, str] = {}

    def opening(path: Any, *args: Any, **options: Any) -> int:
        descriptor = opened(path, *args, **options)
        names[descriptor] = Path(path).name
        return descriptor

    def writing(descriptor: int, content: Any) -> int:
        if names.get(descriptor) == name:
            lines_written[0] += 1
            if lines_written[0] == number:
                act()
        return before(descriptor, content)

    patch.setattr(os, "open", opening)
    patch.setattr(os, "write", writing)
