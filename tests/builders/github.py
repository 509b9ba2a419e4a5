"""Actions and workflows: their steps, and a runner that runs the shell steps in order, as GitHub's does."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FILES = {
    "GITHUB_OUTPUT": "outputs.txt",
    "GITHUB_STEP_SUMMARY": "summary.md",
    "GITHUB_ENV": "env.txt",
    "GITHUB_PATH": "path.txt",
}


def document(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = YAML(typ="safe").load(path)
    return read


def steps_of(path: Path) -> list[dict[str, Any]]:
    """Return all steps of an action or of a workflow's jobs."""
    read = document(path)
    if "jobs" in read:
        return [step for job in read["jobs"].values() for step in job["steps"]]
    steps: list[dict[str, Any]] = read["runs"]["steps"]
    return steps


@dataclass
class Finished:
    code: int
    outputs: dict[str, str]
    log: str
    summary: str
    uploaded: str | None


@dataclass
class Runner:
    """Runs steps in *cwd*; the files they write for each other are in *folder*."""

    steps: list[dict[str, Any]]
    folder: Path
    cwd: Path
    values: dict[str, str]
    """What expressions may name; an unknown name is a mistake of the workflow."""
    environment: dict[str, str]

    def run(self, *, without: str = "") -> Finished:
        """Run the steps, except the one named *without*, which fails."""
        finished, before = Finished(0, {}, "", "", None), dict(self.values)
        for step in self.steps:
            condition = str(step.get("if", ""))
            if not self._holds(condition) or (finished.code and "always()" not in condition):
                continue
            if "uses" in step:
                if step["uses"].startswith("actions/upload-artifact"):
                    finished.uploaded = self.fill(step["with"]["path"])
            elif without and step.get("name") == without:
                finished.code = 1
            else:
                ran = self.run_step(step)
                finished.log += ran.stdout + ran.stderr
                finished.code = finished.code or ran.returncode
                if "id" in step:
                    finished.outputs = self._read("outputs.txt")
                    self.values |= {
                        f"steps.{step['id']}.outputs.{name}": value for name, value in finished.outputs.items()
                    }
        self.values, summary = before, self.folder / "summary.md"
        finished.summary = summary.read_text() if summary.exists() else ""
        return finished

    def run_step(self, step: Mapping[str, Any], **values: str) -> subprocess.CompletedProcess[str]:
        """Run one shell step; *values* replace those of its own environment."""
        environment = {name: self.fill(value) for name, value in step.get("env", {}).items()} | values
        (self.folder / "step.sh").write_text(step["run"])
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", self.folder / "step.sh"],
            cwd=self.cwd,
            env={
                **self.environment,
                **{name: str(self.folder / file) for name, file in FILES.items()},
                **environment,
                "GITHUB_ACTIONS": "true",
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.environment |= self._read("env.txt")
        return ran

    def fill(self, text: Any) -> str:
        """Replace each expression by the first of `a || b || 'c'` that is not empty."""

        def value(expression: re.Match[str]) -> str:
            words = [word.strip() for word in expression[1].split("||")]
            operands = (word[1:-1] if word.startswith("'") else self.values[word] for word in words)
            return next(filter(None, operands), "")

        return re.sub(r"\$\{\{ (.+?) \}\}", value, str(text))

    def _holds(self, condition: str) -> bool:
        """Return whether a condition made of `always()`, `==`, `!=` and `&&` holds."""
        for part in condition.removeprefix("${{").removesuffix("}}").split("&&"):
            if compared := re.fullmatch(r"(\S+) (==|!=) '(.*)'", part.strip()):
                name, sign, word = compared.groups()
                if (self.values[name] == word) != (sign == "=="):
                    return False
            else:
                assert part.strip() in {"always()", ""}, part
        return True

    def _read(self, file: str) -> dict[str, str]:
        path = self.folder / file
        lines = path.read_text().splitlines() if path.exists() else []
        return {name: value for name, _, value in (line.partition("=") for line in lines)}


def put_on_path(folder: Path, path: str, **programs: str) -> str:
    """Write shell programs into *folder*; return *path* with it in front."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{path}"
