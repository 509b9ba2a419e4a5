"""What the end-to-end tests share."""

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import Done, ProjectFolder, project_folder
from tests.builders.scripted_slo import BOTH, write_scripted


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    return project_folder(tmp_path)


@pytest.fixture
def scripted(project: ProjectFolder) -> Callable[..., ProjectFolder]:
    """Write an SLO for a scripted subject."""
    return partial(write_scripted, project)


@pytest.fixture(scope="session")
def certified_folders() -> dict[str, ProjectFolder]:
    """The folders that `finished` made, by what was written into each."""
    return {}


@pytest.fixture
def finished(
    certified_folders: dict[str, ProjectFolder], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ProjectFolder]:
    """Return a copy of a folder as `scripted` writes it, and of its finished `run`; equal ones are certified once."""

    def copy(truth: Any = None, *, code: int = 0, canaries: str | None = None, **changes: Any) -> ProjectFolder:
        key = json.dumps([truth, canaries, changes], sort_keys=True)
        if key not in certified_folders:
            certified = write_scripted(project_folder(tmp_path_factory.mktemp("finished")), truth, **changes)
            if canaries is not None:
                (certified.path / "easy.jsonl").write_text(canaries)
            certified.run("certify", "slo.toml", "--out", "run", "--quiet", code=code)
            certified_folders[key] = certified
        return certified_folders[key].copied_to(tmp_path / f"finished {len([*tmp_path.iterdir()])}")

    return copy


@pytest.fixture
def demo(finished: Callable[..., ProjectFolder]) -> ProjectFolder:
    """Return a folder with a run of both workloads, for tests of what comes after a run."""
    return finished(workload=BOTH)


@pytest.fixture
def ended() -> Callable[[subprocess.Popen[str]], Done]:
    """Wait for a started command and return what it said."""

    def wait(process: subprocess.Popen[str]) -> Done:
        out, err = process.communicate(timeout=240)
        return Done(process.returncode, out, err)

    return wait
