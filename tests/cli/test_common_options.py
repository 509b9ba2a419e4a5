"""The options that every command has, and errors as every command prints them."""

import json
import shlex
import shutil
from contextlib import chdir
from pathlib import Path

import click
import pytest

from gatekeeper.cli import main
from gatekeeper.cli.options import LazyCommand
from gatekeeper.core.exit_codes import ExitCode
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
    command_by_path: dict[str, click.Command] = {}
    for name, entry in group.commands.items():
        command = entry.load() if isinstance(entry, LazyCommand) else entry
        text = f"{path} {name}".strip()
        command_by_path |= commands(command, text) if isinstance(command, click.Group) else {text: command}
    return command_by_path


@pytest.mark.parametrize("name", commands(main.gatekeeper))
def test_a_command_that_prints_a_document_writes_it_to_a_file_too(name: str) -> None:
    """Each command that takes --json takes -o, but for the stream of `watch`; a short name stands for one long name."""
    command = commands(main.gatekeeper)[name]
    options = {option for parameter in command.params for option in parameter.opts}
    long_names = {"-o": "--output", "-q": "--quiet", "-v": "--verbose", "-h": "--help"}

    if "--json" in options and name != "watch":
        assert {"-o", "--output"} <= options
    assert "--out" not in options or "--output" in options
    assert all(long_names[short] in options for short in options & long_names.keys())


def test_every_command_stands_in_the_help_which_fits_one_screen() -> None:
    """`--help` describes at most 14 commands and names the others, in 24 lines of 80 columns."""
    described = [name for rows in main.SECTIONS.values() for name in rows]
    help_text = main.gatekeeper.get_help(click.Context(main.gatekeeper, info_name="gatekeeper", max_content_width=80))

    assert sorted(main.gatekeeper.commands) == sorted([*described, *main.FURTHER])
    assert len(described) <= 14
    assert max(map(len, help_text.splitlines())) <= 80
    assert len(help_text.splitlines()) <= 24
    assert all(f"{code} {code.words}" in " ".join(help_text.split()) for code in ExitCode)


def helps() -> dict[str, str]:
    """Return the help of each command."""
    help_by_name = {}
    for name, command in commands(main.gatekeeper).items():
        context = click.Context(command, info_name=f"gatekeeper {name}", max_content_width=80, terminal_width=80)
        help_by_name[name] = command.get_help(context)
    return help_by_name


def example_of(name: str) -> list[str]:
    """Return the words of the one example in the help of a command."""
    (line,) = [line for line in helps()[name].splitlines() if line.startswith(f"  gatekeeper {name}")]
    return shlex.split(line)[1:]


@pytest.mark.parametrize("name", helps())
def test_the_help_of_a_command_is_about_one_screen_with_an_example(project: ProjectFolder, name: str) -> None:
    """At most 40 lines of 80 columns; one example, whose words the command takes; global options are only named."""
    for folder in ("runs/first", "runs/last"):
        shutil.copytree(PROMOTED, project.path / folder)
    help_text = helps()[name]
    command = commands(main.gatekeeper)[name]

    assert len(help_text.splitlines()) <= 40
    assert max(map(len, help_text.splitlines())) <= 80
    assert help_text.splitlines()[-1].startswith("  See gatekeeper --help: ")
    with chdir(project.path):
        assert command.make_context(name, example_of(name)[len(name.split()) :]).params


@pytest.mark.parametrize("name", ["plan", "report", "explain", "history", "compare", "judge"])
def test_the_example_of_the_help_runs(project: ProjectFolder, name: str) -> None:
    """Typed as it stands, in a folder with two runs."""
    for folder in ("runs/first", "runs/last"):
        shutil.copytree(PROMOTED, project.path / folder)

    assert project.run(*example_of(name), code=0).out


@pytest.mark.parametrize(
    ("name", "begin"),
    [("x.html", "<!doctype html>"), ("x.xml", "<?xml"), ("x.json", "{"), ("x.md", "## "), ("x.txt", "golden")],
)
def test_the_extension_of_the_output_decides_the_format(project: ProjectFolder, name: str, begin: str) -> None:
    """`report -o x.html` writes the page, and says so in one line on stdout."""
    done = project.run("report", str(PROMOTED), "-o", name, code=0)

    assert f"wrote {name}\n" == done.out
    assert (project.path / name).read_text().lower().startswith(begin.lower())


def test_an_output_keeps_the_exit_code_of_the_command(project: ProjectFolder) -> None:
    """A verdict written to a file still ends with its own exit code; a file that cannot be written is code 4."""
    done = project.run("judge", str(FAILED), "-o", "v.json")
    nowhere = project.run("judge", str(FAILED), "-o", "no/folder/v.json", code=2)

    assert done.code == json.loads((project.path / "v.json").read_text())["exit_code"] != 0
    says("commands", "an output keeps the exit code of the command", lines_with("cannot write", nowhere.err))


def test_a_device_that_takes_nothing_stays(project: ProjectFolder) -> None:
    """What --output names is removed after a full disk where it is a file, and never where it is a device."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    project.run("report", str(PROMOTED), "--output", "/dev/full", code=4)

    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("plan no.toml", "no.toml", ""),
        ("plan", "missing argument 'SLO...'", "gatekeeper plan --help"),
        ("judge . --bogus", "no such option '--bogus'", "gatekeeper judge --help"),
        ("certify smok", "SLO file smok does not exist", "did you mean 'smoke'? It is a shipped SLO file"),
        ("certify smoke --serve many", "'many' is no port", "gatekeeper certify --help"),
        ("init --backend vllm", "init writes no file for it", "write [subject] yourself"),
        ("report . --form json", "'--form'", "'--format'"),
        ("remote list", "missing option '--on'", "gatekeeper remote list --help"),
        ("doctor --samples x", "'--samples'", "gatekeeper doctor --help"),
        ("certfy", "unknown command 'certfy'", "certify"),
        ("admit x.toml --run latest", "no run in the folder runs", "name the run's folder"),
        ("latest", "unknown command 'latest'", "gatekeeper report latest"),
        ("mine.toml", "unknown command 'mine.toml'", "gatekeeper certify mine.toml"),
        ("versus smoke smok", "'smok' is no SLO file", "--slo"),
        ("certify smoke --only soak --set draft_length=4", "--set draft_length", "'num_draft_tokens'"),
    ],
)
def test_an_error_has_one_style(project: ProjectFolder, words: str, message: str, hint: str) -> None:
    """Message and hint on stderr, whoever found the mistake; with --json one object on stdout says the same."""
    plain = project.run(*words.split(), code=2)
    json_error = project.run(*words.split(), "--json", code=2)

    assert plain.err.startswith("gatekeeper: ")
    assert message in plain.err
    assert hint in plain.err.partition("  hint: ")[2]
    assert not [word for word in ("Usage:", "Error:", "Traceback") if word in plain.err]
    assert "" == plain.out
    assert {"error", "hint", "exit_code"} == json_error.document.keys()
    assert (True, 2) == (message in json_error.document["error"], json_error.document["exit_code"])


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_errors_obey_the_colour_that_is_asked_for(
    project: ProjectFolder, environment: dict[str, str], *, coloured: bool
) -> None:
    """NO_COLOR and FORCE_COLOR hold for errors too."""
    done = ProjectFolder(project.path, environment).run("plan", "no.toml", code=2)

    assert coloured == ("\x1b[" in done.err)


def test_latest_is_the_run_that_was_frozen_last(project: ProjectFolder) -> None:
    """`latest` stands for the newest run in the folder runs, whatever its name; a folder of that name is itself."""
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


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [("plan", "smoke"), ("compare", str(PROMOTED), str(PROMOTED)), ("explain", "ttft")])
def test_lines_break_between_words_on_a_terminal(
    words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command prints on a terminal fits its width, with every word whole, but for commands, which are pasted."""
    monkeypatch.setenv("COLUMNS", str(columns))
    code = main.run([*words])
    piped = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert code == main.run([*words])
    output = capsys.readouterr().out

    assert piped.split() == output.split()
    longest = max(map(len, output.split()))
    prose = [line for line in output.splitlines() if "gatekeeper " not in line]
    assert max(map(len, prose)) <= max(columns, longest + 12)
