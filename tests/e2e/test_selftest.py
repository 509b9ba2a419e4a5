"""`gatekeeper selftest` as a contributor runs it."""

import json

import pytest

from gatekeeper.run.start import selftest
from tests.builders.project_folder import ProjectFolder


@pytest.mark.mlx
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_whole_of_it_runs(project: ProjectFolder) -> None:
    """Every part ends without an error on a machine with mlx-lm; the file has figures and no name of a home."""
    done = project.run("selftest", "-o", "x.json", code=0)

    text = (project.path / "x.json").read_text()
    sections = json.loads(text)["sections"]
    assert {} == {name: part["error"] for name, part in sections.items() if part["error"] is not None}
    assert 11 == len(done.out.splitlines())
    assert {part["result"]["exit_code"] for name, part in sections.items() if name.startswith("certify")} <= {0, 1, 3}
    assert min(sections["sampling"]["result"][arm]["n"] for arm in ("with", "without")) > 100
    assert sections["sampling"]["result"]["samples"] > 4
    assert sections["widths"]["result"]["tokens"] > 50
    assert sections["widths"]["result"]["flips"]["1"] == 0
    assert str(project.path.home()) not in text


def test_a_file_is_shown_again(project: ProjectFolder) -> None:
    """`--read` prints the lines and every source's values; another file is exit code 2."""
    path = project.path / "x.json"
    readings = [{"source": "vm_stat", "values": {"memory_wired": 5.0}, "missing": {"swapin_bytes": "absent"}}]
    selftest.selftest(path, lambda _: None, {"telemetry": selftest.SelftestPart(lambda _: readings, 60.0)})

    finished = project.run("selftest", "--read", "x.json", code=0)

    assert {("vm_stat", "memory_wired", "5"), ("vm_stat", "swapin_bytes", "absent")} <= {
        tuple(line.split()) for line in finished.out.splitlines()
    }
    path.write_text('{"schema": 1}')
    project.run("selftest", "--read", "x.json", code=2)
    project.run("selftest", "--read", "absent.json", code=2)
