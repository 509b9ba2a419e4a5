"""What the end-to-end tests share."""

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.builders.project_folder import Done, ProjectFolder, project_folder
from tests.builders.scripted_slo import write_scripted


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    return project_folder(tmp_path)


@pytest.fixture
def scripted(project: ProjectFolder) -> Callable[..., ProjectFolder]:
    """Write an SLO for a scripted subject."""
    return partial(write_scripted, project)


@pytest.fixture(scope="session")
def certified_demo(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """Certify the SLO that `scripted` writes where nothing is changed."""
    project = write_scripted(project_folder(tmp_path_factory.mktemp("demo")))
    project.run("certify", "slo.toml", "--out", "run", "--quiet", code=0)
    return project


@pytest.fixture
def demo(certified_demo: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    """Return a copy of that folder with its run, for tests of what comes after a run."""
    return certified_demo.copied_to(tmp_path / "a demo")


@pytest.fixture
def ended() -> Callable[[subprocess.Popen[str]], Done]:
    """Wait for a started command and return what it said."""

    def wait(process: subprocess.Popen[str]) -> Done:
        out, err = process.communicate(timeout=240)
        return Done(process.returncode, out, err)

    return wait


@pytest.fixture
def kill_group() -> Callable[[subprocess.Popen[str], signal.Signals], None]:
    """Send a signal to the command alone, as a terminal or an operator would."""

    def send(process: subprocess.Popen[str], number: signal.Signals) -> None:
        os.kill(process.pid, number)

    return send
