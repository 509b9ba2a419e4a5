"""Fixtures of the host's tests: a folder of stand-in tools, which is the whole PATH."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_AS
from tests.builders import mac_tools

# Tests import their helpers as `tests.host.…`, also where the package under test is an installed wheel.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

HELPERS = ("cat", "head", "seq", "sleep", "touch", "tr", "yes")
"""Programs that the scripts themselves need; PATH holds nothing else."""

StandIn = Callable[[str, str], Path]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Return a function that puts a shell script on PATH under a tool's name; no real tool of a Mac is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in HELPERS:
        if program := shutil.which(name):
            (folder / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv(GATEKEEPER_HOST_AS, "macos")  # on a real Mac its calls would answer in place of these tools

    def write(name: str, script: str) -> Path:
        mac_tools.write_tools(folder, {name: script})
        return folder / name

    return write


PATIENCE = 20.0
"""Seconds to wait for what must happen: far more than any of it takes."""


@pytest.fixture
def healthy_mac(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put every tool of a healthy Mac on PATH, and the library of its calls; return the function that replaces one.

    The call for the pages of memory fails, so that they come from vm_stat.
    """
    for name, script in mac_tools.healthy().items():
        stand_in(name, script)
    mac_tools.build_library(Path(os.environ["PATH"]))
    monkeypatch.setenv("STAND_IN", "no_pages")
    return stand_in
