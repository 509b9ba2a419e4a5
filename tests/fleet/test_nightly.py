"""A night of a fleet: one line, the fleet's exit code, and old runs deleted here and on the hosts."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.fleet.conftest import Fleet

NIGHTLY = Path(__file__).parents[2] / "soak" / "nightly.sh"


def night(made: Fleet, *words: str) -> subprocess.CompletedProcess[str]:
    program = made.place.path / "gatekeeper"
    program.write_text(f'#!/bin/sh\nexec {" ".join(made.place.argv())} "$@"\n')
    program.chmod(0o755)
    environment = {**made.place.environment, "GATEKEEPER": str(program)}
    argv = ["bash", str(NIGHTLY), *words]
    return subprocess.run(
        argv, cwd=made.place.path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_night_certifies_the_fleet(fleet: Callable[..., Fleet]) -> None:
    """
    Two nights with --keep 1: each prints one line with the fleet's outcome, and each host keeps one run.
    """
    made = fleet(2, {"one": {}})

    first = night(made, "--fleet", "--runs", "nights", "--keep", "1", "one.toml")
    second = night(made, "--fleet", "--runs", "nights", "--keep", "1", "one.toml")

    for one in (first, second):
        assert 0 == one.returncode, one.stdout + one.stderr
        assert one.stdout.startswith("fleet: 2 runs: 2 promoted (exit code 0); on the hosts of")
        assert 1 == one.stdout.count("\n")
    assert second.stdout == (made.place.path / "nights/last.txt").read_text()
    assert 1 == len(list((made.place.path / "nights/fleet").glob("fleet-*.json")))
    assert [1, 1] == [len(list((server.state / "jobs").iterdir())) for server in made.servers.values()]


def test_a_fleet_takes_its_hosts_from_the_file(fleet: Callable[..., Fleet]) -> None:
    """
    --fleet and --on contradict each other, and a fleet needs an SLO: code 2, in the line.
    """
    made = fleet(1, {"one": {}})

    assert 2 == night(made, "--fleet", "--on", "a", "one.toml").returncode
    assert 2 == night(made, "--fleet").returncode
