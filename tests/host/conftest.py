"""What the host's tests share: a folder of stand-in tools put first on PATH."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Tests import their helpers as `tests.host.…`, also where the package under test is an installed wheel.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

HELPERS = ("cat", "head", "seq", "sleep", "touch", "tr", "yes")
"""What the scripts themselves need; PATH holds nothing else."""

StandIn = Callable[[str, str], Path]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Return a function that puts a shell script on PATH under a tool's name; the real tools of a Mac are not there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in HELPERS:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write
