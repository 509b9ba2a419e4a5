"""Disks that take no more: a limit on the size of files, and a small disk of its own where root may mount one."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
