"""`plan --lint`, which a pre-commit hook runs on files of strangers, and `fleet plan`: nothing in them is started."""

from pathlib import Path
from typing import Any

import pytest

from tests.builders.background_server import BackgroundServer, QuietHandler
from tests.builders.project_folder import ProjectFolder, canary_lines, project_folder

PROGRAMS = (
    *("mlx", "mlx-server", "llama-server", "vllm", "sglang", "vllm-mlx", "mlx-vlm", "rapid-mlx", "mtplx"),
    *("dflash-mlx", "mlx-omni", "zlab-dflash", "redrafter"),
)
COMMANDS = ("openai", "ddtree", "worker", "llama-server", "vllm")
OBJECTIVE = {"metric": "error_rate", "at_most": 0.0, "why": "no answer may fail"}


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    folder = project_folder(tmp_path)
    (folder.path / "easy.jsonl").write_text(canary_lines("easy", 12))
    mark = folder.path / "mark"
    for name in ("python3", "server"):  # one that is taken for a Python, and one whose first line names one
        script = folder.path / name
        script.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
        script.chmod(0o755)
    (folder.path / "script.py").write_text(f"#!{folder.path / 'python3'}\n")
    (folder.path / "script.py").chmod(0o755)
    return folder


def slo(folder: ProjectFolder, objective: dict[str, Any] = OBJECTIVE, **subject: Any) -> None:
    drafts = ["mtp"] if subject["backend"] == "mtplx" else ["small"]
    document = {
        "schema": 1,
        "name": "foreign",
        "subject": {"target": "org/big", "drafts": drafts, **subject},
        "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
        "objective": [objective],
    }
    folder.write_slo(document)


@pytest.mark.parametrize("program", ["python3", "server", "script.py"])
@pytest.mark.parametrize("backend", PROGRAMS)
def test_no_program_is_started(project: ProjectFolder, backend: str, program: str) -> None:
    """The file is checked, and the program that it names leaves no mark."""
    slo(project, backend=backend, program=[str(project.path / program)])

    project.run("plan", "--lint", "slo.toml", code=0)

    assert not (project.path / "mark").exists()


@pytest.mark.parametrize("program", ["python3", "server"])
@pytest.mark.parametrize("backend", COMMANDS)
def test_no_command_is_started(project: ProjectFolder, backend: str, program: str) -> None:
    """Nor do its commands; a worker's greeting is not asked for."""
    port = [] if backend == "worker" else ["{port}"]
    command = [str(project.path / program), "-m", "x", *port, "{target}", "{draft}"]
    plain: dict[str, Any] = {} if backend == "worker" else {"plain_command": [str(project.path / program), *port]}
    slo(project, backend=backend, command=command, **plain)

    project.run("plan", "--lint", "slo.toml", code=0)

    assert not (project.path / "mark").exists()


def test_a_worker_that_is_not_started_is_checked_for_what_none_can_prove(project: ProjectFolder) -> None:
    """An objective that no system could ever prove is wrong of a worker, too."""
    impossible = {"metric": "canary_pass_rate", "at_least": 1.5, "why": "more than all"}
    slo(project, impossible, backend="worker", command=["./server", "{target}", "{draft}"])

    project.run("plan", "--lint", "slo.toml", code=2)

    assert not (project.path / "mark").exists()


class _Counting(QuietHandler):
    def do_GET(self) -> None:  # noqa: N802
        setattr(self.server, "fetched", True)  # noqa: B010 (a server of the standard library has no such field)
        self.send(200, b"{}", "application/json")


def test_no_address_is_fetched(project: ProjectFolder) -> None:
    """A server that the file names by its address is not asked for its version."""
    with BackgroundServer(_Counting) as server:
        slo(project, backend="sglang", url=server.url, plain_url=server.url)
        project.run("plan", "--lint", "slo.toml", code=0)

        assert not hasattr(server, "fetched")


@pytest.mark.parametrize("backend", ["llama-server", "worker"])
def test_a_plan_for_other_hosts_starts_nothing_here(project: ProjectFolder, backend: str) -> None:
    """`fleet plan` expects a time without the version of a program or the greeting of a worker."""
    words = [str(project.path / "server")]
    started = {"command": [*words, "{target}", "{draft}"]} if backend == "worker" else {"program": words}
    slo(project, backend=backend, **started)  # type: ignore[arg-type]
    (project.path / "hosts.toml").write_text('[host.away]\nssh = "away.invalid"\n')

    project.run("fleet", "plan", "slo.toml", "--hosts", "hosts.toml", code=3)

    assert not (project.path / "mark").exists()


def test_plan_says_what_it_starts(project: ProjectFolder) -> None:
    """Without --lint the program is started for its version, as the help says."""
    slo(project, backend="llama-server", program=[str(project.path / "server")])

    project.run("plan", "slo.toml")

    assert (project.path / "mark").exists()
    assert "starts the SLO's program for its version" in " ".join(project.run("plan", "--help", code=0).out.split())
