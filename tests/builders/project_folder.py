"""A folder with an SLO in it, and the command line run there as a user would."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper.cli import main

ROOT = Path(__file__).parents[2]
BRAKE = Path(__file__).parent / "brake"
WORDS = ["amber", "birch", "cedar", "delta", "ember", "frost", "grove", "haven", "inlet", "jetty", "knoll", "larch"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


@dataclass(frozen=True)
class ProjectFolder:
    """A folder with an SLO in it, and `gatekeeper` run inside it."""

    path: Path
    environment: Mapping[str, str]

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "gatekeeper", *words]

    def run(self, *words: str, code: int | None = None) -> Done:
        """Run a command inside this process, which saves seconds of imports, from the folder and its environment."""
        out, err = io.StringIO(), io.StringIO()
        folder, before = Path.cwd(), dict(os.environ)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            os.chdir(self.path)
            os.environ.update(self.environment)
            with redirect_stdout(out), redirect_stderr(err):
                ended = main.run(words)
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)
            signal.signal(signal.SIGTERM, handler)
        if code is not None:
            assert code == ended, out.getvalue() + err.getvalue()
        return Done(ended, out.getvalue(), err.getvalue())

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words),
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def with_environment(self, **variables: str) -> "ProjectFolder":
        """Return the same folder with more environment variables."""
        return replace(self, environment={**self.environment, **variables})

    def copied_to(self, folder: Path) -> "ProjectFolder":
        """Return a copy in *folder*, which need not be there."""
        shutil.copytree(self.path, folder)
        return replace(self, path=folder)

    def held(self, file: str, *, after: int = 0, word: str = "\n") -> "ProjectFolder":
        """Return this folder with a brake in what it starts: a scripted run stands once *file* has *word* so often.

        It stands until the process is ended or `go` is there: however busy the machine, a test acts at that point.
        """
        path = os.pathsep.join([str(BRAKE), self.environment["PYTHONPATH"]])
        hold = {"HOLD_FILE": file, "HOLD_COUNT": str(after), "HOLD_WORD": word, "HOLD_UNTIL": str(self.path / "go")}
        return self.with_environment(PYTHONPATH=path, **hold)

    def verdict(self, run: str = "run") -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads((self.path / run / "verdict.json").read_text())
        return parsed

    def write_slo(self, slo: Mapping[str, Any], name: str = "slo.toml") -> None:
        (self.path / name).write_text(tomli_w.dumps(slo))


def project_folder(parent: Path) -> ProjectFolder:
    """Make an empty one in *parent*, whose cache and state are its own; it needs no network."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": str(parent / "cache"),
        "XDG_STATE_HOME": str(parent / "state"),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    folder = parent / "a project"  # a space, as in many a home folder
    folder.mkdir()
    return ProjectFolder(folder, environment)


def canary_lines(prefix: str, count: int) -> str:
    """Canaries whose answers the scripted subject can construct and the expectations can mark."""
    lines = []
    for number in range(count):
        answer = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(12 + number % 5))
        canary = {
            "id": f"{prefix}-{number:03}",
            "messages": [{"role": "user", "content": f"Say line {number} of {prefix}."}],
            "max_tokens": 64,
            "expect": {"equals": answer},
        }
        lines.append(json.dumps(canary))
    return "\n".join(lines) + "\n"
