"""`./run`: the user's environment and the developers' are apart, and neither is cleared while it is in use."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.project_folder import ROOT

NOTES = '#!/bin/sh\n# {path}\necho "$(basename "$0") $*" >> calls\n'
"""A program that writes down how it was called."""

BSD_PS = """#!/bin/bash
for word; do
  if [ "$before" = -o ]; then columns+=(-o "${word%%=*}="); else [ "$word" = -o ] || columns+=("$word"); fi
  before=$word
done
exec /bin/ps "${columns[@]}"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with `run` and an environment for each kind of people; its programs write down their arguments."""
    if not (ROOT / "run").is_file():
        pytest.skip("this is no checkout")
    (tmp_path / "tests").mkdir()
    for name in ("run", "pyproject.toml", "tests/constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for venv in (".venv", ".venv-dev"):
        programs = tmp_path / venv / "bin"
        programs.mkdir(parents=True)
        for name in ("python", "gatekeeper"):
            (programs / name).write_text(NOTES.format(path=programs / "python"))
            (programs / name).chmod(0o755)
        (tmp_path / venv / "own-package").touch()
    return tmp_path


@pytest.fixture
def run(checkout: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `./run` with a Python that only writes down that it was called."""
    (checkout / "python").write_text(NOTES.format(path=""))
    (checkout / "python").chmod(0o755)
    environment = {"PATH": f"{checkout}:/usr/bin:/bin", "PYTHON": str(checkout / "python")}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "run", *words], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )

    return call


def test_tests_leave_the_environment_of_the_user_alone(
    checkout: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Other extras are installed into the developers' environment as it is: nothing is cleared, in neither of the
    two.
    """
    before = (checkout / ".venv").stat().st_mtime_ns

    ran = run("unit")

    calls = (checkout / "calls").read_text()
    assert (0, 1) == (ran.returncode, calls.count("uv pip install")), ran.stderr
    assert "--clear" not in calls
    assert (checkout / ".venv-dev" / "own-package").exists()
    assert before == (checkout / ".venv").stat().st_mtime_ns
    assert "test,lint,docs" in (checkout / ".venv-dev" / ".installed").read_text()
    assert 0 == run("quickstart").returncode
    assert ["certify", "slos/quickstart.toml"] == (checkout / "calls").read_text().split()[-2:]


def test_pip_installs_what_uv_cannot(checkout: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Where uv fails, for instance because pip alone is told of an index, pip installs the same; without both it
    fails.
    """
    program = checkout / ".venv-dev" / "bin" / "python"
    program.write_text(f"{program.read_text()}case $* in *'uv pip'*) exit 1; esac\n")

    ran = run("unit")

    installed = installations(checkout)
    assert (0, 2) == (ran.returncode, len(installed)), ran.stderr
    assert installed[1].startswith("python -m pip install")
    program.write_text(program.read_text().replace("'uv pip'", "install"))
    (checkout / ".venv-dev" / ".installed").unlink()
    assert 0 != run("unit").returncode
    assert not (checkout / ".venv-dev" / ".installed").exists()


def installations(checkout: Path) -> list[str]:
    """Return the calls that installed gatekeeper for its developers."""
    return [line for line in (checkout / "calls").read_text().splitlines() if ".[mlx,test,lint,docs]" in line]


def test_the_locked_versions_are_installed_and_others_only_where_they_cannot_be(
    checkout: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A renewed lock is installed anew; where a version of it is missing, `./run` says so, and takes what fits."""
    assert 0 == run("unit").returncode
    (checkout / "tests" / "constraints.txt").write_text("pytest==1.0\n")
    program = checkout / ".venv-dev" / "bin" / "python"
    program.write_text(f"{program.read_text()}case $* in *--constraint*) exit 1; esac\n")

    ran = run("unit")

    locked, *by_uv_and_pip, newest = installations(checkout)
    assert (0, 2) == (ran.returncode, len(by_uv_and_pip)), ran.stderr
    assert all("--constraint tests/constraints.txt" in call for call in (locked, *by_uv_and_pip))
    assert "--constraint" not in newest
    assert "the versions of tests/constraints.txt cannot be installed here" in ran.stderr


def test_an_environment_that_does_not_start_is_not_cleared_while_it_is_in_use(
    checkout: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """After its folder was moved an environment is made anew, but not under a program that runs from it: exit code 2.

    The ps of a Mac takes all that follows `=` for the heading of one column, so each column is an option of its own.
    """
    (checkout / "ps").write_text(BSD_PS)
    (checkout / "ps").chmod(0o755)
    program = checkout / ".venv-dev" / "bin" / "gatekeeper"
    program.write_text("#!/elsewhere/python\n")
    waits = checkout / ".venv-dev" / "bin" / "waits"
    waits.write_text("#!/bin/sh\nread -r line\n")
    waits.chmod(0o755)
    measuring = subprocess.Popen([waits], stdin=subprocess.PIPE)
    try:
        refused = run("unit")
    finally:
        measuring.kill()
        measuring.wait()

    assert (2, True) == (refused.returncode, str(measuring.pid) in refused.stderr.split())
    assert 0 == run("unit").returncode
    assert {"venv", "--clear"} <= set((checkout / "calls").read_text().split())
