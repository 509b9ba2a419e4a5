"""Disks and folders that fail under a run: our error, with what and where, and nothing that was recorded is lost."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper import host
from tests.builders.disk import at_line, largest_file, small_disk
from tests.builders.project_folder import Done, ProjectFolder
from tests.builders.small_run import RECORDS, lines, small, stored

RUN = ("certify", "slo.toml", "--out", "run")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFolder:
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 20.0)
    return small(tmp_path)


def continued(project: ProjectFolder, out: str = "run") -> None:
    """Continue a run, and check that each of its records is kept."""
    before = stored(project.path / out)
    project.run("certify", "slo.toml", "--out", out, "--resume", code=0)
    after = stored(project.path / out)
    for name in RECORDS:
        lines_before = lines(before.get(name))
        assert lines_before == lines(after[name])[: len(lines_before)]


@pytest.mark.parametrize(
    ("size", "file"),
    [
        pytest.param(200, "inputs", id="for the inputs"),
        pytest.param(5000, ".jsonl", id="in the sweep"),
        pytest.param(20_000, "soak-1.jsonl", id="in the soak"),
        pytest.param(55_000, "report.html", id="for the report"),
    ],
)
def test_a_disk_that_takes_no_more_loses_nothing(project: ProjectFolder, size: int, file: str) -> None:
    """No room in any stage is code 4 with the file and the way on; with room, --resume ends as it should."""
    with largest_file(size):
        full = project.run(*RUN, code=4)

    assert file in full.err
    assert "--resume" in full.err
    assert "this is a bug" not in full.err
    if (project.path / "run" / "manifest.json").exists() and file != "report.html":
        project.run("judge", "run", code=3)
    continued(project)


def test_a_disk_that_is_full_for_the_host_samples_is_our_fault(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that cannot be written ends the run with code 4, and leaves no doubt about the host."""
    monkeypatch.setattr(host, "SAMPLE_INTERVAL_S", 0.1)
    with largest_file(12_000):
        full = project.run(*RUN, code=4)

    assert all(word in full.err for word in ("run/host.jsonl: ", "File too large"))
    assert not (project.path / "run" / "soak-1.jsonl").exists()
    assert b"sampler_died" not in (project.path / "run" / "events.jsonl").read_bytes()
    continued(project)


@pytest.mark.parametrize("kilobytes", [24, 80, 200])
def test_a_small_disk_is_enlarged(project: ProjectFolder, kilobytes: int) -> None:
    """A real disk is full in some stage: code 4; once it is larger, --resume ends as it should."""
    with small_disk(project.path / "disk", f"size={kilobytes}k") as disk:
        full = project.run("certify", "slo.toml", "--out", "disk/run", code=4)
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        continued(project, "disk/run")

    assert "No space left on device" in full.err


def test_a_disk_without_inodes_is_named(project: ProjectFolder) -> None:
    """No more files: code 4 with the file; what was written is kept and continued."""
    with small_disk(project.path / "disk", "nr_inodes=14") as disk:
        full = project.run("certify", "slo.toml", "--out", "disk/run", code=4)
        subprocess.run(["mount", "-o", "remount,nr_inodes=1000", disk], check=True)
        continued(project, "disk/run")

    assert "disk/run/" in full.err


def test_a_disk_that_can_only_be_read_is_named(project: ProjectFolder) -> None:
    """--out on a read-only disk is code 4 with the path, before anything is measured."""
    with small_disk(project.path / "disk", "ro") as disk:
        done = project.run("certify", "slo.toml", "--out", "disk/run", code=4)
        assert [] == list(disk.iterdir())

    assert all(word in done.err for word in ("disk/run: ", "Read-only"))


PLACES: dict[str, tuple[str, Callable[[Path], object] | None, int]] = {
    "a file": ("out", lambda path: path.write_text("mine"), 2),
    "a loop of links": ("out", lambda path: path.symlink_to(path), 4),
    "below a file": ("file/out", lambda path: path.parent.write_text("mine"), 4),
    "a name of 300 characters": ("x" * 300, None, 4),
    "in a file system of the kernel": ("/proc/gatekeeper/out", None, 4),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_where_no_run_can_be_is_refused(project: ProjectFolder, name: str) -> None:
    """--out that cannot hold a run ends before anything is measured, with the path."""
    out, make, code = PLACES[name]
    if make is not None:
        make(project.path / out)

    for words in ((), ("--resume",)):
        done = project.run("certify", "slo.toml", "--out", out, *words)

        assert done.code in {code, 2 if words else code}
        assert out[:100] in done.err
        assert ("hint:" in done.err, "this is a bug" in done.err) == (True, False)


@pytest.mark.parametrize("way", [shutil.rmtree, lambda run: run.rename(run.with_name("archive"))], ids=["rm", "mv"])
def test_a_run_directory_that_disappears_in_mid_soak_ends_the_run(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path], object]
) -> None:
    """Deleted or renamed while it soaks: code 4 at the next record; renamed back, it continues."""
    with monkeypatch.context() as patch:
        at_line(patch, "soak-1.jsonl", 5, lambda: way(project.path / "run"))
        done = project.run(*RUN, code=4)

    assert "run/" in done.err
    assert "removed, renamed" in done.err
    assert not (project.path / "run").exists()
    if (project.path / "archive").exists():
        assert 5 == len(lines((project.path / "archive" / "soak-1.jsonl").read_bytes()))
        (project.path / "archive").rename(project.path / "run")
        continued(project)


def link(path: Path) -> None:
    target = path.parents[1] / "thesis"
    target.write_text("mine")
    path.symlink_to(target)


KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file": link,
    "a folder": Path.mkdir,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """Make one run; tests replace a file of a copy."""
    small_project = small(tmp_path_factory.mktemp("links"))
    small_project.run(*RUN, code=0)
    return small_project


def without(finished: ProjectFolder, folder: Path, name: str, kind: str, *, sealed: bool) -> ProjectFolder:
    """Return a copy of the finished run in which *name* is something else than a file."""
    copy = ProjectFolder(folder / "copy", finished.environment)
    shutil.copytree(finished.path, copy.path)
    run = copy.path / "run"
    if not sealed:
        (run / "SHA256SUMS").unlink()
    (run / name).unlink(missing_ok=True)
    KINDS[kind](run / name)
    return copy


def untouched(copy: ProjectFolder) -> bool:
    thesis = copy.path / "thesis"
    return not thesis.exists() or "mine" == thesis.read_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["host.jsonl", "soak-1.jsonl", "events.jsonl", "plan.json", "manifest.json"])
def test_what_is_no_file_is_no_evidence(finished: ProjectFolder, tmp_path: Path, name: str, kind: str) -> None:
    """A pipe, a device, a link or a folder in place of a file of a run: judge and admit end with code 3 and name it."""
    copy = without(finished, tmp_path, name, kind, sealed=True)

    judged: Done = copy.run("judge", "run", code=3)
    admitted = copy.run("admit", "slo.toml", "--run", "run", code=3)

    assert name in judged.out + judged.err
    assert name in admitted.out + admitted.err


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["host.jsonl", "soak-1.jsonl", "null.jsonl", "events.jsonl", "lock"])
def test_a_resumed_run_writes_through_no_link(finished: ProjectFolder, tmp_path: Path, name: str, kind: str) -> None:
    """The same in a run that is continued: code 3 with the file, and what a link leads to stays as it is."""
    copy = without(finished, tmp_path, name, kind, sealed=False)

    done = copy.run(*RUN, "--resume", code=3)

    assert f"{name}: it is " in done.err
    assert untouched(copy)


@pytest.mark.parametrize("name", ["verdict.json", "policy.toml", "certificate.intoto.json", "report.html"])
def test_a_published_file_replaces_a_link(finished: ProjectFolder, tmp_path: Path, name: str) -> None:
    """A link under a name that the run publishes is replaced by the file."""
    copy = without(finished, tmp_path, name, "a link to a file", sealed=False)

    copy.run(*RUN, "--resume", code=0)

    assert not (copy.path / "run" / name).is_symlink()
    assert untouched(copy)


def test_a_folder_of_the_run_that_is_a_link_is_refused(finished: ProjectFolder, tmp_path: Path) -> None:
    """inputs/ that leads elsewhere is not written to, and not read as the run's inputs."""
    copy = ProjectFolder(tmp_path / "copy", finished.environment)
    shutil.copytree(finished.path, copy.path)
    (copy.path / "run" / "inputs").rename(copy.path / "elsewhere")
    (copy.path / "run" / "inputs").symlink_to(copy.path / "elsewhere")

    judged = copy.run("judge", "run", code=3)

    assert "inputs" in judged.out + judged.err
    assert "it is a link" in judged.out + judged.err
