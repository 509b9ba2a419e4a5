"""The commands that show what is there: open, explain and report."""

import csv
import json
import os
import stat
from pathlib import Path

import pytest

from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ROOT, ProjectFolder

PROMOTED = ROOT / "tests" / "golden" / "runs" / "promoted"


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


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("report odl", "there is no run odl", "did you mean 'runs/old'?"),
        ("report old", "there is no run old", "did you mean 'runs/old'?"),
        ("judge latst", "there is no run latst", "did you mean 'latest'?"),
        ("sign runs --key k", "runs is no run: it is a folder of 2", "such as runs/new"),
        ("report elsewhere", "there is no run elsewhere", "gatekeeper history lists"),
        ("history runs/new", "runs/new is a run", "gatekeeper history runs"),
    ],
)
def test_a_run_that_is_none_is_named_with_what_is_there(
    project: ProjectFolder, words: str, says: str, hint: str
) -> None:
    """A mistyped run, a folder of runs and a run in its place: exit code 2, and what to name instead."""
    message, _, advice = project.run(*words.split(), code=2).err.partition("hint:")

    assert says in message
    assert hint in advice


def test_with_a_display_the_system_opens_the_page(project: ProjectFolder) -> None:
    """The system's own program gets the path of the run that was named."""
    done = with_display(project).run("open", "runs/old", "--json", code=0)

    page = str(project.path / "runs" / "old" / "report.html")
    assert {"report": page, "opened": True} == done.document
    assert page == (project.path / "opened").read_text().strip()


def test_a_program_that_fails_and_a_run_without_a_page_are_errors(project: ProjectFolder) -> None:
    """Each says what to do instead."""
    (project.path / "fail").touch()
    assert "cannot open" in with_display(project).run("open", code=4).err
    (project.path / "runs" / "old" / "report.html").unlink()
    says(
        "commands",
        "a program that fails and a run without a page are errors",
        lines_with("gatekeeper report", project.run("open", "runs/old", code=2).err),
    )


def test_a_mistyped_word_has_a_suggestion(project: ProjectFolder) -> None:
    """The nearest word, or where all of them are listed."""
    assert project.run("explain", "worker-protocol", code=0).out.startswith("# The worker protocol")
    assert "nights" == project.run("explain", "nights", "--json", code=0).document["page"]
    assert "did you mean 'itl_p95'?" in project.run("explain", "itlp95", code=2).err
    assert "lists every word" in project.run("explain", "qqqq", code=2).err
    every = project.run("explain", code=0).out
    assert [True] * 3 == [word in every for word in ("throughput_ratio", "graded_back", "host_slept")]


def test_a_table_is_a_file_that_other_programs_read(project: ProjectFolder) -> None:
    """The extension decides the format, stdout has the rows alone, and what was not measured is an empty cell."""
    project.run("report", str(PROMOTED), "-o", "answers.csv", code=0)
    host_table = project.run("report", str(PROMOTED), "--of", "host", "--format", "ndjson", code=0)

    answers = list(csv.DictReader((project.path / "answers.csv").open(newline="")))
    assert ("", "") == (answers[0]["draft"], answers[0]["fault"])
    assert float(answers[0]["decode_tok_per_s"]) > 0
    samples = [json.loads(line) for line in host_table.out.splitlines()]
    assert {"soak-1", "soak-2", "soak-3"} >= {sample["phase"] for sample in samples}
    assert all(sample["memory_headroom_bytes"] > 0 for sample in samples)
    assert "" == host_table.err


def test_a_table_of_a_damaged_run_is_whole_records_and_code_3(project: ProjectFolder) -> None:
    """The rows that can be read are written, and each file that is not whole is named."""
    done = project.run("report", str(PROMOTED.with_name("damaged")), "--format", "csv", code=3)

    assert 43 == len(list(csv.DictReader(done.out.splitlines())))
    assert ["baseline.jsonl", "soak-1.jsonl"] == sorted(
        line.partition(":")[0].rpartition("/")[2] for line in done.err.splitlines()
    )


@pytest.mark.parametrize(
    "words",
    [("--of", "host"), ("--of", "host", "--format", "html"), ("--format", "csv", "--json"), ("--format", "xlsx")],
)
def test_rows_of_no_table_are_refused(project: ProjectFolder, words: tuple[str, ...]) -> None:
    """--of needs a format of rows, and a format that is none ends the command before anything is written."""
    assert "csv" in project.run("report", str(PROMOTED), *words, code=2).err
