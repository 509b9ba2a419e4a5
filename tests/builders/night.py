"""soak/nightly.sh in a folder with spaces in its name, next to an SLO, with `gatekeeper` on PATH."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.builders.github import put_on_path
from tests.builders.project_folder import ROOT, Done, ProjectFolder

SCRIPT = ROOT / "soak" / "nightly.sh"
GATEKEEPER = f'exec "{sys.executable}" -m gatekeeper "$@"'


@dataclass
class Night:
    """Runs the script."""

    project: ProjectFolder
    interpreter: str = "bash"

    @classmethod
    def lay_out(cls, project: ProjectFolder, program: str = GATEKEEPER, interpreter: str = "bash") -> "Night":
        """Copy the script into *project*; *program* is the shell line that is its gatekeeper."""
        if shutil.which(interpreter) is None:
            pytest.skip(f"no {interpreter} to run the script")
        (project.path / "a soak").mkdir()
        shutil.copy(SCRIPT, project.path / "a soak")
        path = put_on_path(project.path / "a bin", project.environment["PATH"], gatekeeper=program)
        lock = str(project.path / "host lock")
        return cls(
            ProjectFolder(project.path, {**project.environment, "PATH": path, "GATEKEEPER_HOST_LOCK": lock}),
            interpreter,
        )

    @property
    def runs(self) -> Path:
        return self.project.path / "all runs"

    def start(self, *words: str, wrapped: Sequence[str] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*wrapped, self.interpreter, "a soak/nightly.sh", "--runs", "all runs", *words],
            cwd=self.project.path,
            env=self.project.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self, process: subprocess.Popen[str]) -> Done:
        out, err = process.communicate(timeout=240)
        return Done(process.returncode, out, err)

    def run(self, *words: str, wrapped: Sequence[str] = ()) -> Done:
        return self.ended(self.start(*words, wrapped=wrapped))

    def held(self, file: str, *, after: int = 0) -> "Night":
        return replace(self, project=self.project.held(file, after=after))

    def written(self) -> list[str]:
        """Name the run directories."""
        return sorted(path.name for path in self.runs.iterdir() if path.is_dir())

    def logs(self) -> list[Path]:
        return sorted(self.runs.glob("nightly-*.log"))

    def last(self) -> str:
        return (self.runs / "last.txt").read_text()
