"""soak/nightly.sh in a folder with spaces in its name, next to an SLO, with `gatekeeper` on PATH."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.builders.github import put_on_path
from tests.builders.place import ROOT, Done, Place

SCRIPT = ROOT / "soak" / "nightly.sh"
GATEKEEPER = f'exec "{sys.executable}" -m gatekeeper "$@"'


@dataclass
class Night:
    """Runs the script."""

    place: Place
    interpreter: str = "bash"

    @classmethod
    def lay_out(cls, place: Place, program: str = GATEKEEPER, interpreter: str = "bash") -> "Night":
        """Copy the script into *place*; *program* is the shell line that is its gatekeeper."""
        if shutil.which(interpreter) is None:
            pytest.skip(f"no {interpreter} to run the script")
        (place.path / "a soak").mkdir()
        shutil.copy(SCRIPT, place.path / "a soak")
        path = put_on_path(place.path / "a bin", place.environment["PATH"], gatekeeper=program)
        lock = str(place.path / "host lock")
        return cls(Place(place.path, {**place.environment, "PATH": path, "GATEKEEPER_HOST_LOCK": lock}), interpreter)

    @property
    def runs(self) -> Path:
        return self.place.path / "all runs"

    def start(self, *words: str, wrapped: Sequence[str] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*wrapped, self.interpreter, "a soak/nightly.sh", "--runs", "all runs", *words],
            cwd=self.place.path,
            env=self.place.environment,
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
        return replace(self, place=self.place.held(file, after=after))

    def written(self) -> list[str]:
        """Name the run directories."""
        return sorted(path.name for path in self.runs.iterdir() if path.is_dir())

    def logs(self) -> list[Path]:
        return sorted(self.runs.glob("nightly-*.log"))

    def last(self) -> str:
        return (self.runs / "last.txt").read_text()
