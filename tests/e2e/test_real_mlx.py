"""Whole runs on the real mlx-lm in our worker, with the little pair."""

import json
import os
import signal
import subprocess
from collections.abc import Callable

import psutil
import pytest

from tests.builders.project_folder import ROOT, Done, ProjectFolder, project_folder
from tests.builders.real_pair import certified_as, records, smoke
from tests.builders.waiting import until

pytestmark = pytest.mark.mlx

Ended = Callable[[subprocess.Popen[str]], Done]


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProjectFolder, Done]:
    """The shipped smoke SLO, certified."""
    project = project_folder(tmp_path_factory.mktemp("smoke"))
    return project, certified_as(smoke(project), {"json": "promoted", "random": "graded_back"})


@pytest.mark.alone
def test_the_smoke_slo_is_promoted(certified: tuple[ProjectFolder, Done]) -> None:
    """The real mlx-lm on the real pair: JSON is promoted, random text is decoded plainly, and judging agrees."""
    project, ran = certified

    assert 0 == ran.code
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_the_manifest_names_what_answered(certified: tuple[ProjectFolder, Done]) -> None:
    """The manifest holds the checksum of every model file and the versions of the decoding packages."""
    project, _ = certified

    manifest = json.loads((project.path / "run" / "manifest.json").read_text())
    sums = {
        name: digest
        for digest, _, name in (
            line.partition("  ") for line in (ROOT / "models" / "SHA256SUMS").read_text().splitlines()
        )
    }
    expected = {name.split("/")[1]: digest for name, digest in sums.items() if name.startswith("little-target/")}
    assert expected == manifest["target"]["files"]
    assert {"gatekeeper", "mlx", "mlx-lm", "numpy", "python"} <= manifest["versions"].keys()


@pytest.mark.nightly  # tests/e2e/test_interruptions.py kills scripted runs in every place
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_gate(project: ProjectFolder, ended: Ended, number: signal.Signals) -> None:
    """Interrupted or killed, gatekeeper leaves no worker behind; the run resumes and ends in a verdict."""
    smoke(project, only="json", seconds=2, tokens=24)
    soak = project.path / "run" / "soak-1.jsonl"
    process = project.start("certify", "slo.toml", "--out", "run")
    until(lambda: len(records(soak)) > 3)
    child_processes = children(process)

    os.kill(process.pid, number)
    stopped = ended(process)
    _, alive = psutil.wait_procs(child_processes, timeout=30)
    resumed = project.run("certify", "slo.toml", "--out", "run", "--resume")

    assert {signal.SIGINT: 130, signal.SIGKILL: -9}[number] == stopped.code
    assert [] == alive
    assert resumed.code == project.verdict()["exit_code"]
    assert "incomplete" not in project.verdict(), resumed.out


@pytest.mark.nightly  # two minutes in which no other test may run
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_the_quickstart_ends_as_the_readme_says(project: ProjectFolder) -> None:
    """The README's first command: JSON and code are promoted, random text is sent to plain decoding, a demo, code 0."""
    hoped = {"json": "promoted", "code": "promoted", "random": "graded_back"}

    ran = certified_as(project, hoped, slo=ROOT / "slos" / "quickstart.toml")

    assert ("demo", 0) == (project.verdict()["grade"], ran.code)
