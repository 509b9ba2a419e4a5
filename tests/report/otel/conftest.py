"""What the telemetry tests share: a scripted run that told a collector of itself."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.manifest import sha256
from gatekeeper.core.records import Generation
from gatekeeper.core.system import record_files
from tests.builders.otlp import Receiver, over_http
from tests.builders.project_folder import ROOT, Done, ProjectFolder, canary_lines

NOT_ANSWERS = {"host.jsonl", "events.jsonl"}
SETTINGS = {
    "sampling": {"max_tokens": 64},
    "sweep": {"repeats": 1, "num_draft_tokens": [4]},
    "soak": {"duration": "20 s"},
}


def lay(path: Path, **changes: Any) -> ProjectFolder:
    """Write an SLO for a scripted subject that drafts well into *path*."""
    path.mkdir(parents=True)
    truth = {
        "seed": 3,
        "token": "60 ms",
        "verify": "66 ms",
        "draft_token": {"heavy": "6 ms"},
        "canaries": {"easy-": {"acceptance": 0.8}},
    }
    (path / "truth.json").write_text(json.dumps(truth | changes.pop("truth", {})))
    (path / "easy.jsonl").write_text(canary_lines("easy", 8))
    slo = {
        "schema": 1,
        "name": "told",
        "subject": {"backend": "scripted", "target": "target", "drafts": ["heavy"], "script": "truth.json"},
        "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
        "objective": [{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}],
        **SETTINGS,
        # What a machine under load takes to start an exporter is not what these tests are about.
        "telemetry": {"timeout": "120 s", **changes.pop("telemetry", {})},
        **changes,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    project = ProjectFolder(path, {**environment, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(path / "cache")})
    project.write_slo(slo)
    return project


def within(project: ProjectFolder, **variables: str) -> ProjectFolder:
    """Return the project folder with more environment variables."""
    return project.with_environment(**variables)


def answers(run: Path) -> list[tuple[str, Generation]]:
    """Return every answer of a run with its record file."""
    files = [path for path in sorted(run.glob("*.jsonl")) if path.name not in NOT_ANSWERS]
    return [
        (file.name, record)
        for file in files
        for record in record_files.read_records(file, record_files.ANSWERS).records
    ]


@dataclass(frozen=True)
class ExportedRun:
    """A finished run, what its collector took, and which record files were open whenever a request came."""

    project: ProjectFolder
    done: Done
    receiver: Receiver
    open_files: list[str]

    @property
    def run(self) -> Path:
        return self.project.path / "run"

    @property
    def manifest_sha256(self) -> str:
        return sha256((self.run / "manifest.json").read_text())


@pytest.fixture(scope="session")
def exported_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExportedRun]:
    """Certify once, telling a collector over HTTP."""
    project = lay(tmp_path_factory.mktemp("told") / "project", telemetry={"rounds": True})
    run = project.path / "run"
    unfinished: list[str] = []

    def look() -> None:
        files = [path for path in run.glob("*.jsonl") if path.name not in NOT_ANSWERS]
        unfinished.extend(
            path.name for path in files if record_files.read_records(path, record_files.ANSWERS).trouble is not None
        )

    with over_http() as receiver:
        receiver.look = look
        done = project.with_environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url).run(
            "certify", "slo.toml", "--out", "run", code=0
        )
        yield ExportedRun(project, done, receiver, unfinished)


Lay = Callable[..., ProjectFolder]


@pytest.fixture
def fresh(tmp_path: Path) -> Lay:
    """Write a project folder of a test's own; *environment* adds variables."""

    def write(environment: Mapping[str, str] | None = None, **changes: Any) -> ProjectFolder:
        return within(lay(tmp_path / "project", **changes), **(environment or {}))

    return write
