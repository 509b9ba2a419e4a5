"""The runs on a remote host: listed, attached to and cancelled."""

import pytest

from gatekeeper.run.remote.run_list import parse_job
from gatekeeper.run.remote.ssh_errors import SshError
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, ENDLESS, ON, REAL_TIME, Ended, Make, job_record


def test_a_run_is_listed_and_downloaded_later(pair: Make, ended: Ended) -> None:
    """A run that was not followed to its end is listed as not fetched; attach downloads it, and then none is left."""
    remote = pair(REAL_TIME, soak={"duration": "2 s", "baseline_drift": 0.9})
    process = remote.project.start(*CERTIFY)
    until(remote.measuring)
    process.kill()
    ended(process)
    until((remote.job() / "exit").exists)
    name = remote.job().name

    listed = remote.project.run("remote", "list", *ON, code=0)
    fetched = remote.project.run("remote", "attach", *ON, "--json")
    nothing = remote.project.run("remote", "attach", *ON, code=2)
    unknown = remote.project.run("remote", "attach", name[:-1], *ON, code=2)
    again = remote.project.run("remote", "attach", name, *ON, "--out", "copy")

    assert f"exit {fetched.code}, not fetched" in listed.out
    assert fetched.document == remote.verdict(fetched, f"runs/{name}")
    assert "all that ended are fetched" in nothing.err
    assert f"did you mean '{name}'?" in unknown.err
    assert "report: copy/report.html" in again.out


@pytest.mark.nightly
def test_a_run_of_another_owner_is_cancelled_only_by_name(pair: Make, ended: Ended) -> None:
    """Cancel without a name ends no run of another owner: the error names the owner and how to end it anyway."""
    remote = pair(REAL_TIME, soak=ENDLESS)
    process = remote.project.start(*CERTIFY)
    until(remote.measuring)
    bob = remote.with_environment(GATEKEEPER_OWNER="bob@desk").project

    unnamed = bob.run("remote", "cancel", *ON, code=2)
    running = process.poll() is None
    cancelled = bob.run("remote", "cancel", remote.job().name, *ON, code=0)
    done = ended(process)

    assert f"remote cancel {remote.job().name} --on mini" in unnamed.err
    assert running
    assert "ended cleanly" in cancelled.out
    assert "cancelled by bob@desk" in done.err


@pytest.mark.nightly
def test_a_run_that_does_not_end_is_killed_after_its_grace(pair: Make, ended: Ended) -> None:
    """A gatekeeper that takes no SIGTERM is killed after --grace, and whoever follows it is told who did it."""
    remote = pair(REAL_TIME, soak=ENDLESS)
    process = remote.project.start(*CERTIFY)
    until(remote.measuring)
    remote.process().suspend()

    cancelled = remote.project.run("remote", "cancel", *ON, "--grace", "1 s", "--json", code=0).document
    done = ended(process)

    assert "killed" == cancelled["how"]
    assert (3, True) == (done.code, "was cancelled by" in done.err)


ENDED = "run-1\tended\t{code}\t\t\tyes"
LINE = ENDED.format(code=0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        LINE,
        f"{LINE}\t{{",
        f"{LINE}\t[]",
        f"{LINE}\t" + "[" * 100_000,
        f"{LINE}\t{job_record()}\tmore",
        f"{LINE}\t{job_record(owner=7)}",
        f"{LINE}\t{job_record(owner='')}",
        f"{LINE}\t{job_record(started='2026-11-22T09:00:00')}",
        f"{LINE}\t{job_record(started=7)}",
        f"{LINE}\t{job_record(inputs_sha256='../x')}",
        f"{LINE}\t{job_record(more=1)}",
        f"{LINE.replace('ended', 'promoted')}\t{job_record()}",
        f"{ENDED.format(code='zero')}\t{job_record()}",
        f"{ENDED.format(code='9' * 5000)}\t{job_record()}",
    ],
)
def test_a_line_that_describes_no_run_is_one_clear_error(line: str) -> None:
    """Whatever a host lists in the place of a run: one error that says to check that host."""
    with pytest.raises(SshError, match="evil: malformed answer") as refused:
        parse_job("evil", line)

    assert (3, True) == (refused.value.exit_code, "check that host" in refused.value.hint)


@pytest.mark.parametrize("owner", ["anna@desk", "\x1b]0;title\x07eve", "a\nb"])
def test_what_a_host_names_has_no_control_characters(owner: str) -> None:
    """Names that a host lists are printed, so nothing in them reaches a terminal."""
    job = parse_job("evil", f"{LINE}\t{job_record(owner=owner)}")

    assert job.record.owner.isprintable()
    assert job.record.owner.endswith(owner[-1])
