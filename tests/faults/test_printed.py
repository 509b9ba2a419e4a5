"""What gatekeeper prints: text of others neither steers a terminal nor gives a command to a CI system."""

import re
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.report import FORMATS
from tests.builders.project_folder import Done, project_folder
from tests.builders.scripted_slo import EASY, write_scripted

NAMES = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "x\n::set-output name=a::b",
    "x\n  ::error::b",
    "x ##[add-path]/evil",
    "\u202egnp.exe",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("command", [("judge",), ("certify",), ("watch",), ("admit", "slo.toml", "--run")])
def test_an_error_prints_no_command(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    """A name from the command line, as a CI job may pass one of a stranger's branch, is printed without its effect."""
    project = project_folder(tmp_path)

    done = project.run(*command, name)

    assert 2 == done.code
    assert done.err.replace("\n", "").isprintable()
    assert not any(line.strip().startswith("::") for line in done.err.splitlines())
    assert "##[" not in done.err


HOSTILE = (
    "a\n\ufe0f::set-env name=x::y\n:\x00:add-mask::z\n"
    "::stop-commands::z\r  ::set-output name=x::y\u2028::add-mask::q\x85::error::e"
    " \x1b[31m##[add-path]/evil ::warning::w ##vso[task.setvariable variable=a]b"
)
SHORT: dict[str, Any] = {"sweep": {"repeats": 1, "num_draft_tokens": [4]}, "soak": {"duration": "20 s"}}


def is_printed_safely(done: Done) -> bool:
    """Return whether neither a terminal nor a CI system finds a command in what was printed."""
    text = f"{done.out}\n{done.err}"
    lines = [line.strip().lstrip("\ufe0f") for line in re.split(r"[\r\n]", text)]
    own_commands = ("::error file=", "::notice file=", "::warning file=")
    commands = [line for line in lines if line.startswith("::") and not line.startswith(own_commands)]
    return not commands and not re.search(r"##\w*\[", text) and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


@pytest.mark.parametrize("at_least", [0.5, 50.0], ids=["promoted", "graded back"])
def test_a_reason_of_the_slo_prints_no_command_in_any_format(tmp_path: Path, at_least: float) -> None:
    """The `why` of an SLO of a stranger commands no CI system, whatever is printed of it."""
    project = project_folder(tmp_path).with_environment(GITHUB_ACTIONS="true")
    objective = {"metric": "throughput_ratio", "at_least": at_least, "why": HOSTILE}
    write_scripted(project, why=HOSTILE, objective=[objective], workload=EASY, **SHORT)

    printed = [project.run("certify", "slo.toml", "--output", "run", "-v"), project.run("plan", "slo.toml")]
    printed += [project.run("report", "run", "--format", name) for name in FORMATS]
    further = ("judge run", "judge run --json", "admit slo.toml --run run", "explain run")
    printed += [project.run(*words.split()) for words in further]

    assert [] == [done for done in printed if not is_printed_safely(done)]


def test_names_of_the_slo_print_no_command(tmp_path: Path) -> None:
    """Names of a draft, a folder of runs and a key, as a stranger may write them, are printed safely."""
    project = project_folder(tmp_path)
    subject = {"backend": "scripted", "target": f"t{HOSTILE}", "drafts": [f"d{HOSTILE}"], "script": "truth.json"}
    write_scripted(project, subject=subject, **SHORT)

    printed = [project.run("certify", "slo.toml", "--output", "x ##[add-path]y", "-v", code=0)]
    write_scripted(project, None, **{HOSTILE: HOSTILE})
    commands = (("plan",), ("certify",), ("admit", "--runs", "."))
    printed += [project.run(*words, "slo.toml", code=2) for words in commands]

    assert [] == [done for done in printed if not is_printed_safely(done)]
