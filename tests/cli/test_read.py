"""The commands that show what is there: open and explain."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ProjectFolder


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    """A folder with two finished runs in `runs`, where no display and no ssh session is known."""
    for name, day in (("old", 1), ("new", 2)):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "manifest.json").write_text(json.dumps({"schema": 1, "frozen_at": f"2026-01-0{day}T00:00:00Z"}))
        (run / "report.html").write_text("<!doctype html>")
    program = tmp_path / "bin" / "xdg-open"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ -e fail ] && { echo "no browser" >&2; exit 3; }\necho "$1" > opened\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return ProjectFolder(tmp_path, {"PATH": path, "DISPLAY": "", "WAYLAND_DISPLAY": ""})


@pytest.fixture(autouse=True)
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


def with_display(project: ProjectFolder) -> ProjectFolder:
    return project.with_environment(DISPLAY=":0")


def test_without_a_display_the_path_is_printed(project: ProjectFolder) -> None:
    """
    The newest run counts where none is named; nothing is opened, and the path can be copied.
    """
    done = project.run("open", code=0)

    assert done.out.startswith(f"{project.path / 'runs' / 'new' / 'report.html'}  (no display")
    assert not (project.path / "opened").exists()


def test_with_a_display_the_system_opens_the_page(project: ProjectFolder) -> None:
    """
    The system's own program gets the path of the run that was named.
    """
    done = with_display(project).run("open", "runs/old", "--json", code=0)

    page = str(project.path / "runs" / "old" / "report.html")
    assert {"report": page, "opened": True} == done.document
    assert page == (project.path / "opened").read_text().strip()


def test_over_ssh_no_browser_is_started(project: ProjectFolder) -> None:
    """
    A browser would open on a screen in another room.
    """
    far = ProjectFolder(project.path, {**with_display(project).environment, "SSH_CONNECTION": "a b c d"})

    assert "no display here" in far.run("open", code=0).out


def test_a_program_that_fails_and_a_run_without_a_page_are_errors(project: ProjectFolder) -> None:
    """
    Each says what to do instead.
    """
    (project.path / "fail").touch()
    assert "cannot open" in with_display(project).run("open", code=4).err
    (project.path / "runs" / "old" / "report.html").unlink()
    says(
        "commands",
        "a program that fails and a run without a page are errors",
        lines_with("gatekeeper report", project.run("open", "runs/old", code=2).err),
    )


def test_a_word_is_explained(project: ProjectFolder) -> None:
    """
    What it means, its formula and what to do; several words may be one.
    """
    done = project.run("explain", "counter", "lie", code=0)

    assert "counter_lie (finding)" == done.out.splitlines()[0]
    assert all(f"  {field}: " in done.out for field in ("means", "what to do"))
    (metric,) = json.loads(project.run("explain", "ttft_delta", "--json", code=0).out)
    assert {"word", "kind", "means", "formula", "what_to_do"} == metric.keys()


def test_a_mistyped_word_has_a_suggestion(project: ProjectFolder) -> None:
    """
    The nearest word, or where all of them are listed.
    """
    assert "did you mean 'itl_p95'?" in project.run("explain", "itlp95", code=2).err
    assert "lists every word" in project.run("explain", "qqqq", code=2).err
    every = project.run("explain", code=0).out
    assert [True] * 3 == [word in every for word in ("throughput_ratio", "graded_back", "host_slept")]
