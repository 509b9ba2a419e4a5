"""A printed command runs as it is pasted: by the program's path where it is not on PATH."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gatekeeper.core.system import own_command


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in an environment of the current folder, which is not on PATH."""
    program = tmp_path / ".venv" / "bin" / "gatekeeper"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [str(program)])
    return program


def test_a_program_that_is_not_on_path_is_named_by_its_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative in the current folder, absolute elsewhere; the plain name once it is on PATH."""
    assert ".venv/bin/gatekeeper" == own_command.own_command()
    (elsewhere := installed.parents[2] / "a folder").mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "argv", [str(installed)])
    assert str(installed) == own_command.own_command()
    monkeypatch.setenv("PATH", f"/usr/bin:{installed.parent}")
    assert "gatekeeper" == own_command.own_command()


def test_models_are_downloaded_by_a_command_that_runs(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hf` on PATH, else the one beside our Python, which an installed tool keeps to itself, else through uvx."""
    monkeypatch.setattr(sys, "executable", str(installed.with_name("python")))
    assert "uvx hf" == own_command.hub_command()

    (beside := installed.with_name("hf")).symlink_to(installed)
    assert str(beside) == own_command.hub_command()
    monkeypatch.setenv("PATH", str(installed.parent))
    assert "hf" == own_command.hub_command()


def test_a_pasted_command_runs() -> None:
    """What `python -m` prints as the next command is a command of the same installation."""
    script = (
        "from gatekeeper.cli import main; import sys; sys.argv[0] = main.__file__.replace('cli/main', '__main__')\n"
    )
    script += "from gatekeeper.core.system import own_command; print(own_command.own_command())"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[3], env={"PATH": "/usr/bin"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip

    process = subprocess.run(
        [*shlex.split(ran.stdout), "--version"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )

    assert process.stdout.startswith("gatekeeper ")


@pytest.mark.parametrize("from_an_index", [False, True])
def test_an_extra_is_installed_beside_the_program(monkeypatch: pytest.MonkeyPatch, *, from_an_index: bool) -> None:
    """An index that has no gatekeeper, from a checkout, still has the libraries of an extra."""

    class Installed:
        requires = ("numpy>=2", 'aiohttp>=3.13; extra == "proxy"', "grpcio>=1.66; extra == 'grpc'")

        def read_text(self, _name: str) -> str | None:
            return None if from_an_index else '{"url": "file:///gatekeeper"}'

    monkeypatch.setattr(own_command, "distribution", lambda _name: Installed())
    hint = "pip install 'gatekeeper-slo[proxy]'"

    printed = own_command.with_own_commands(f"{hint}, or none", ())

    if from_an_index:
        assert printed == f"{hint}, or none"
    else:
        assert printed.startswith(shlex.quote(sys.executable))
        assert printed.endswith("'aiohttp>=3.13', or none")
