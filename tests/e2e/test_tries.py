"""Certifying until a run passes: admit counts the tries, wherever the run lies and whatever became of the others."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ProjectFolder, project_folder
from tests.builders.scripted_slo import EASY, write_scripted

PROVABLE = {
    "workload": EASY,
    "objective": [
        {"metric": "throughput_ratio", "at_least": 1.05, "why": "it must pay"},
        {"metric": "throughput_ratio", "at_least": 0.8, "against": "certified", "why": "hardly slower than certified"},
    ],
    "promote": {"valid_for": "3650 d"},
}
THREE_OF_FOUR = {"finished": 4, "not_passed": 3, "at_least": False}


@pytest.fixture(scope="module")
def four_runs(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """Four runs of the same: compared with a run of other canaries three are unproven, the fourth passes."""
    project = project_folder(tmp_path_factory.mktemp("tries"))
    write_scripted(project, None, **PROVABLE)
    canaries = project.path / "easy.jsonl"
    text = canaries.read_text()
    canaries.write_text(text.replace("Say line", "Write line"))
    project.run("certify", "slo.toml", "--out", "other/run", "--baseline", "none", "--quiet", code=0)
    canaries.write_text(text)
    for number in range(3):
        name = f"runs/n{number}"
        project.run("certify", "slo.toml", "--out", name, "--baseline", "other/run", "--quiet", code=3)
    project.run("certify", "slo.toml", "--out", "runs/n3", "--baseline", "none", "--quiet", code=0)
    return project


@pytest.fixture
def tried(four_runs: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    """A copy of the four runs and of the record of their host."""
    folder, state = tmp_path / "project", tmp_path / "state"
    shutil.copytree(four_runs.path, folder)
    shutil.copytree(four_runs.environment["XDG_STATE_HOME"], state)
    return ProjectFolder(folder, {**four_runs.environment, "XDG_STATE_HOME": str(state)})


def record(project: ProjectFolder) -> Path:
    return Path(project.environment["XDG_STATE_HOME"]) / "gatekeeper" / "tries.jsonl"


def counts(project: ProjectFolder, *words: str) -> dict[str, Any]:
    document = project.run("admit", "slo.toml", *words, "--grade", "demo", "--json", code=0).document["tries"]
    assert isinstance(document, dict)
    return document


def without_reason(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "because"}


def test_the_tries_beside_a_run_are_counted(tried: ProjectFolder) -> None:
    """`admit --run` shows the same tries as `admit --runs`, also where those that did not pass were deleted."""
    output = tried.run("admit", "slo.toml", "--run", "runs/n3", "--grade", "demo", code=0).out
    assert lines_with("3 of 4 finished runs", output).startswith("tries ")
    for deleted in ("nothing", "n0", "n1", "n2"):
        shutil.rmtree(tried.path / "runs" / deleted, ignore_errors=True)
        assert THREE_OF_FOUR == counts(tried, "--run", "runs/n3") == counts(tried, "--runs", "runs")


def test_a_moved_run_keeps_its_tries(tried: ProjectFolder) -> None:
    """In a folder of its own, under another name, the record of the host still has them, and no run counts twice."""
    (tried.path / "mine").mkdir()
    (tried.path / "runs" / "n3").rename(tried.path / "mine" / "lucky")
    shutil.copytree(tried.path / "mine" / "lucky", tried.path / "mine" / "copy")

    assert THREE_OF_FOUR == counts(tried, "--run", "mine/lucky") == counts(tried, "--runs", "mine")


def test_without_a_record_the_tries_beside_a_run_are_a_lower_bound(tried: ProjectFolder) -> None:
    """On a host without a record the runs of the folder count, and admit says that there may be more."""
    record(tried).unlink()

    tries = counts(tried, "--run", "runs/n3")

    assert THREE_OF_FOUR | {"at_least": True} == without_reason(tries)
    output = tried.run("admit", "slo.toml", "--run", "runs/n3", "--grade", "demo", code=0).out
    assert all(word in lines_with("tries", output) for word in ("at least 3 of 4", "there is none on this"))


def test_a_certificate_carries_the_tries_before_it(tried: ProjectFolder) -> None:
    """Alone on another host, the run itself says how many tries there were before it."""
    certificate = json.loads((tried.path / "runs" / "n3" / "certificate.intoto.json").read_text())
    assert {"finished": 3, "not_passed": 3, "at_least": False} == certificate["predicate"]["gatekeeper"]["tries_before"]

    record(tried).unlink()
    for number in range(3):
        shutil.rmtree(tried.path / "runs" / f"n{number}")

    tries = counts(tried, "--run", "runs/n3")
    assert THREE_OF_FOUR | {"at_least": True} == without_reason(tries)


def forget_the_run(project: ProjectFolder) -> None:
    """Leave the record of a host on which the run was not certified."""
    lines = record(project).read_text().splitlines(keepends=True)
    record(project).write_text("".join(lines[:-1]))


def damage_a_try(project: ProjectFolder) -> None:
    """Add a run whose manifest cannot be read: it may be of this or not."""
    shutil.copytree(project.path / "runs" / "n0", project.path / "runs" / "damaged")
    (project.path / "runs" / "damaged" / "manifest.json").write_text("{")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (forget_the_run, "a record that does not know the run is a lower bound"),
        (damage_a_try, "a try that cannot be read makes a lower bound"),
    ],
)
def test_what_is_not_known_makes_a_lower_bound(
    tried: ProjectFolder, change: Callable[[ProjectFolder], None], words: str
) -> None:
    """A record that lacks the run, and a try that cannot be read: admit counts the others, and says so."""
    change(tried)

    tries = counts(tried, "--run", "runs/n3")

    assert THREE_OF_FOUR | {"at_least": True} == without_reason(tries)
    says("commands", words, tries["because"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1.05", "1.06"),
        pytest.param("it must pay", "it should pay", marks=pytest.mark.nightly),
        pytest.param('"scripted"\n', '"renamed"\n', marks=pytest.mark.nightly),
    ],
)
def test_an_edited_slo_does_not_forget_the_tries(tried: ProjectFolder, before: str, after: str) -> None:
    """Another SLO has tries of its own, and admit says what the same artifacts failed before."""
    slo = tried.path / "slo.toml"
    slo.write_text(slo.read_text().replace(before, after, 1))
    tried.run("certify", "slo.toml", "--out", "runs/other", "--baseline", "none", "--quiet", code=0)

    reason = "3 runs of these artifacts by another SLO, or with other inputs, did not pass"
    expected = {"finished": 1, "not_passed": 0, "at_least": True, "because": reason}
    assert expected == counts(tried, "--run", "runs/other") == counts(tried, "--runs", "runs")
    record(tried).unlink()
    assert counts(tried, "--run", "runs/other")["at_least"]


def test_a_host_that_lost_its_record_says_so(tried: ProjectFolder) -> None:
    """The first run after the record was removed cannot know the tries before it."""
    shutil.rmtree(record(tried).parent)
    tried.run("certify", "slo.toml", "--out", "alone/n4", "--baseline", "none", "--quiet", code=0)

    assert {"finished": 1, "not_passed": 0, "at_least": True} == without_reason(counts(tried, "--run", "alone/n4"))


@pytest.mark.parametrize("trouble", ["pipe", "file for a folder"])
def test_a_record_that_cannot_be_written_is_a_warning(tried: ProjectFolder, trouble: str) -> None:
    """The run ends with its own exit code and a warning that names the file; admit counts what it finds."""
    if trouble == "pipe":
        record(tried).unlink()
        os.mkfifo(record(tried))
    else:
        shutil.rmtree(record(tried).parent)
        record(tried).parent.write_text("")

    done = tried.run("certify", "slo.toml", "--out", "runs/n4", "--baseline", "none", "--quiet", code=0)

    assert "the record of tries" in done.err
    assert str(record(tried).parent) in done.err
    assert THREE_OF_FOUR | {"finished": 5, "at_least": True} == without_reason(counts(tried, "--run", "runs/n4"))
    certificate = (tried.path / "runs" / "n4" / "certificate.intoto.json").read_text()
    assert {"finished": 0, "not_passed": 0, "at_least": True} == (
        json.loads(certificate)["predicate"]["gatekeeper"]["tries_before"]
    )
    assert str(tried.environment["XDG_STATE_HOME"]) not in certificate


def test_a_run_killed_before_its_line_is_added_by_resume(tried: ProjectFolder) -> None:
    """A finished run that the record lacks is in it after `certify --resume`."""
    text = record(tried).read_text()
    record(tried).write_text("".join(text.splitlines(keepends=True)[:-1]))

    tried.run("certify", "slo.toml", "--resume", "--output", "runs/n3", "--quiet", code=0)

    assert text == record(tried).read_text()


def test_a_soak_alone_is_a_try(tried: ProjectFolder) -> None:
    """A soak of one setting gives a verdict, so it counts."""
    before = len(record(tried).read_text().splitlines())

    tried.run("certify", "slo.toml", "--only", "soak", "--out", "alone/soak", "--quiet", code=0)

    assert before + 1 == len(record(tried).read_text().splitlines())
    assert 5 == counts(tried, "--run", "runs/n3")["finished"]
