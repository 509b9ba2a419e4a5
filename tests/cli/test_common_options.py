"""The options that every command has, and errors as every command prints them."""

import json
import shutil
from pathlib import Path

import click
import pytest

from gatekeeper.cli import main
from gatekeeper.cli.options import LazyCommand
from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ROOT, ProjectFolder

PROMOTED = ROOT / "tests" / "golden" / "runs" / "promoted"
FAILED = ROOT / "tests" / "golden" / "runs" / "failed"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFolder:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return ProjectFolder(tmp_path, {})


def commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, one in group.commands.items():
        command = one.load() if isinstance(one, LazyCommand) else one
        mine = f"{path} {name}".strip()
        found |= commands(command, mine) if isinstance(command, click.Group) else {mine: command}
    return found


@pytest.mark.parametrize("name", commands(main.gatekeeper))
def test_every_command_has_the_common_options(name: str) -> None:
    """
    Each command takes -q, -v and --color; one that prints a document takes --json, --format and --output too.
    """
    command = commands(main.gatekeeper)[name]
    options = {option for parameter in command.params for option in parameter.opts}

    if command.context_settings.get("ignore_unknown_options"):
        return  # its options are passed on to the remote host
    assert {"-q", "--quiet", "-v", "--verbose", "--color"} <= options
    if "--json" in options and name not in {"watch", "host"}:
        assert {"--format", "-o", "--output"} <= options
    assert "--out" not in options or "--output" in options


def test_every_command_stands_in_one_section_of_the_help() -> None:
    """
    `--help` lists each command once, under Measure, Decide, Operate or Machine, and no line is wider than 80.
    """
    listed = [name for names in main.gatekeeper.sections.values() for name in names]
    shown = main.gatekeeper.get_help(click.Context(main.gatekeeper, info_name="gatekeeper", max_content_width=80))

    assert sorted(main.gatekeeper.commands) == sorted(listed)
    assert [head in shown for head in ("Measure:", "Decide:", "Operate:", "Machine:")] == [True] * 4
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "begin"),
    [("x.html", "<!doctype html>"), ("x.xml", "<?xml"), ("x.json", "{"), ("x.md", "## "), ("x.txt", "golden")],
)
def test_the_extension_of_the_output_decides_the_format(project: ProjectFolder, name: str, begin: str) -> None:
    """
    `report -o x.html` writes the page, and says so in one line on stdout; -q keeps silent.
    """
    done = project.run("report", str(PROMOTED), "-o", name, code=0)
    silent = project.run("report", str(PROMOTED), "-o", name, "-q", code=0)

    assert (f"wrote {name}\n", "") == (done.out, silent.out)
    assert (project.path / name).read_text().lower().startswith(begin.lower())


def test_a_named_format_goes_before_the_extension(project: ProjectFolder) -> None:
    """
    --format wins over the extension, and an extension that stands for no format of the command is code 2.
    """
    project.run("report", str(PROMOTED), "--format", "json", "-o", "x.html", code=0)
    refused = project.run("judge", str(PROMOTED), "-o", "x.xml", code=2)

    assert "promoted" == json.loads((project.path / "x.html").read_text())["outcome"]
    assert "its formats: text, json" in refused.err
    assert not (project.path / "x.xml").exists()


def test_an_output_keeps_the_exit_code_of_the_command(project: ProjectFolder) -> None:
    """
    A verdict written to a file still ends with its own exit code; a file that cannot be written is code 4.
    """
    done = project.run("judge", str(FAILED), "-o", "v.json")
    nowhere = project.run("judge", str(FAILED), "-o", "no/folder/v.json", code=4)

    assert done.code == json.loads((project.path / "v.json").read_text())["exit_code"] != 0
    says("commands", "an output keeps the exit code of the command", lines_with("cannot write", nowhere.err))


def test_json_and_format_json_are_the_same(project: ProjectFolder) -> None:
    """
    --json is --format json in every command that has both.
    """
    for words in (("metrics",), ("judge", str(PROMOTED)), ("report", str(PROMOTED))):
        assert project.run(*words, "--json").document == project.run(*words, "--format", "json").document


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("plan no.toml", "no.toml", ""),
        ("plan", "missing argument 'SLO...'", "gatekeeper plan --help"),
        ("judge . --bogus", "no such option '--bogus'", "gatekeeper judge --help"),
        ("metrics --form json", "'--form'", "'--format'"),
        ("remote list", "missing option '--on'", "gatekeeper remote list --help"),
        ("host --samples x", "'--samples'", "gatekeeper host --help"),
        ("complete", "unknown command 'complete'", "completion"),
        ("admit x.toml --run latest", "no run in the folder runs", "name the run's folder"),
    ],
)
def test_an_error_has_one_style(project: ProjectFolder, words: str, message: str, hint: str) -> None:
    """
    Message and hint on stderr, whoever found the mistake; with --json one object on stdout says the same.
    """
    plain = project.run(*words.split(), code=2)
    told = project.run(*words.split(), "--json", code=2)

    assert plain.err.startswith("gatekeeper: ")
    assert message in plain.err
    assert hint in plain.err.partition("  hint: ")[2]
    assert not [word for word in ("Usage:", "Error:", "Traceback") if word in plain.err]
    assert "" == plain.out
    assert {"error", "hint", "exit_code"} == told.document.keys()
    assert (True, 2) == (message in told.document["error"], told.document["exit_code"])


@pytest.mark.parametrize(
    ("environment", "words", "coloured"),
    [
        ({}, (), False),
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, ("--color=never",), False),
    ],
)
def test_errors_obey_the_colour_that_is_asked_for(
    project: ProjectFolder, environment: dict[str, str], words: tuple[str, ...], coloured: bool
) -> None:
    """
    NO_COLOR and FORCE_COLOR hold for errors too, and --color is stronger than both.
    """
    done = ProjectFolder(project.path, environment).run("plan", "no.toml", *words, code=2)

    assert coloured == ("\x1b[" in done.err)


def test_latest_is_the_run_that_was_frozen_last(project: ProjectFolder) -> None:
    """
    `latest` stands for the newest run in the folder runs, whatever its name; a folder of that name is itself.
    """
    says(
        "commands",
        "latest is the run that was frozen last",
        lines_with("no run in the folder", project.run("judge", "latest", code=2).err),
    )
    for name in ("z-old", "a-new"):
        shutil.copytree(PROMOTED, project.path / "runs" / name)
    old = project.path / "runs" / "z-old" / "manifest.json"
    document = json.loads(old.read_text())
    old.write_text(json.dumps(document | {"frozen_at": "2020-01-01T00:00:00Z"}))
    (project.path / "runs" / "broken").mkdir()
    (project.path / "runs" / "broken" / "manifest.json").write_text("{")

    newest = project.run("judge", "latest", "--json", code=0).document
    shutil.copytree(FAILED, project.path / "latest")

    assert "promoted" == newest["outcome"]
    assert "promoted" != project.run("judge", "latest", "--json").document["outcome"]


def test_help_and_version_are_commands_as_well(project: ProjectFolder) -> None:
    """
    `gatekeeper help remote certify` prints what `gatekeeper remote certify --help` does; `version` what -V does.
    """
    for words in ((), ("plan",), ("remote", "certify")):
        shown = project.run("help", *words, code=0).out
        assert shown == project.run(*words, "--help", code=0).out
    assert project.run("--version", code=0).out == project.run("version", code=0).out
    assert "did you mean 'plan'" in project.run("help", "plam", code=2).err
    assert "has no commands" in project.run("help", "plan", "more", code=2).err


@pytest.mark.parametrize("written", ["60ms", "0.06", "0.06s"])
def test_durations_are_read_alike(project: ProjectFolder, written: str) -> None:
    """
    A duration is a number with a unit in every option; a bare number is seconds.
    """
    assert project.run("host", "--interval", written, "--json", code=0).document


def test_a_duration_of_another_unit_is_refused(project: ProjectFolder) -> None:
    """
    A size is no duration: code 2 with the units that are.
    """
    refused = project.run("host", "--interval", "60 MB", code=2)

    assert "ms, s, min" in refused.err
