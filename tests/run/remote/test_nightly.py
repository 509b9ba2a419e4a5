"""soak/nightly.sh on a remote host, over a real ssh connection."""

import signal
from collections.abc import Callable

import pytest

from tests.builders.night import Night
from tests.builders.waiting import until
from tests.run.remote.conftest import HELD, ON, Make, Pair


@pytest.fixture
def night(pair: Make) -> Callable[..., tuple[Pair, Night]]:
    def make(*truth: object, **changes: object) -> tuple[Pair, Night]:
        remote = pair(*truth, **changes)
        return remote, Night.lay_out(remote.project)

    return make


@pytest.mark.nightly
def test_a_night_attaches_to_the_run_of_the_one_before(night: Callable[..., tuple[Pair, Night]]) -> None:
    """The script is ended, the run continues there; the next night attaches, and prints one line."""
    pair, night_run = night(remote=HELD)
    process = night_run.start("slo.toml", *ON)
    until(pair.soaking)
    process.send_signal(signal.SIGTERM)
    first = night_run.ended(process)

    pair.go()
    second = night_run.run("slo.toml", *ON)

    assert (130, "") == (first.code, first.err)
    assert first.out.startswith("slo: interrupted ")
    assert 0 == second.code, second.out
    (line,) = second.out.splitlines()
    (run,) = night_run.written()
    assert line.startswith("scripted: promoted ")
    assert line.endswith(f"; on mini; {night_run.runs}/{run}")
    assert 1 == len(pair.jobs)


def test_a_host_that_cannot_be_reached_proves_nothing(night: Callable[..., tuple[Pair, Night]]) -> None:
    """No ssh server: exit code 3, in the line as well, and no local run directory."""
    pair, night_run = night()
    closed = pair.server.words.replace("ssh ", "ssh -p 9 ", 1)
    night_run.project = night_run.project.with_environment(GATEKEEPER_SSH=closed)

    done = night_run.run("slo.toml", *ON, "--", "--patience", "0 s")

    assert (3, "") == (done.code, done.err)
    assert done.out.startswith("slo: unproven ")
    assert "(exit code 3)" in done.out
    assert [] == night_run.written()
