"""What gatekeeper prints: text of others neither steers a terminal nor gives a command to a CI system."""

from pathlib import Path

import pytest

from tests.builders.place import Place
from tests.e2e.conftest import place as place_in

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
    """
    A name from the command line, as a CI job may pass one of a stranger's branch, is printed without its effect.
    """
    place: Place = place_in.__wrapped__(tmp_path)  # type: ignore[attr-defined]

    done = place.run(*command, name)

    assert 2 == done.code
    assert done.err.replace("\n", "").isprintable()
    assert not any(line.strip().startswith("::") for line in done.err.splitlines())
    assert "##[" not in done.err
