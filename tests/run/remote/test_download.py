"""How a downloaded run ended, by what its host says; and runs that were changed there."""

from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.manifest import sha256
from gatekeeper.run.remote.download import failure_of
from gatekeeper.run.remote.run_list import RemoteJob, parse_job
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, REAL_TIME, Ended, Make, Pair, job_record

CERTIFY_RUN = (*CERTIFY, "--out", "run")


def finished_there(remote: Pair, ended: Ended) -> Path:
    """Let a run end without a client; return its remote directory."""
    process = remote.project.start(*CERTIFY_RUN)
    until(remote.measuring)
    process.kill()
    ended(process)
    until((remote.job() / "exit").exists)
    return remote.run()


def _improve_the_verdict(run: Path) -> None:
    verdict = run / "verdict.json"
    verdict.write_text(verdict.read_text().replace('"n": ', '"n": 1'))
    sums = (run / "SHA256SUMS").read_text().splitlines()
    other_sums = [line for line in sums if not line.endswith("  verdict.json")]
    (run / "SHA256SUMS").write_text("\n".join([*other_sums, f"{sha256(verdict.read_bytes())}  verdict.json"]) + "\n")


def test_a_run_that_was_changed_there_has_no_verdict(pair: Make, ended: Ended) -> None:
    """A verdict changed with its checksum before it was fetched: exit 3 that names it, and no 0."""
    remote = pair(REAL_TIME, soak={"duration": "2 s", "baseline_drift": 0.9})
    _improve_the_verdict(finished_there(remote, ended))

    done = remote.project.run(*CERTIFY_RUN, "--json")

    assert 3 == done.code
    assert not done.out or 3 == done.document["exit_code"]
    assert all(word in done.err for word in ("verdict.json", "records"))


def job(state: str = "ended", code: int | None = 0, *, cancelled_by: str = "", finished: bool = False) -> RemoteJob:
    fields = ["one", state, "" if code is None else str(code), cancelled_by, "", "yes" if finished else ""]
    return parse_job("mini", "\t".join([*fields, job_record()]))


@pytest.mark.parametrize(
    ("ended", "log", "code", "sentence"),
    [
        (job(code=2), "gatekeeper: slo.toml: unknown key", 2, "slo.toml: unknown key"),
        (job(code=3), "gatekeeper: no sensor", 3, "no sensor"),
        (job(code=0), "", 3, "ended with exit code 0"),
        (job(code=4), "gatekeeper: cannot write x", 4, "cannot write x"),
        (job(code=4, finished=True), "", 4, "ended with exit code 4"),
        (job(code=130), "", 3, "was interrupted on the remote host"),
        (job(code=137), "", 3, "killed by signal 9"),
        (job(code=130, cancelled_by="anna@laptop"), "", 3, "cancelled by anna@laptop"),
        (job(code=0, cancelled_by="anna@laptop", finished=True), "", 3, "cancelled by anna@laptop"),
        (job("died", None, cancelled_by="anna@laptop"), "", 3, "cancelled by anna@laptop"),
        (job("died", None), "", 3, "the host was restarted"),
        (job("ended", None), "", 3, "the host was restarted"),
        (job(code=77), "", 4, "ended with exit code 77"),
    ],
)
def test_every_other_end_is_an_error(ended: RemoteJob, log: str, code: int, sentence: str) -> None:
    """Killed, cancelled, restarted, refused or unknown: an error with its own message, and what to do next."""
    error: Any = failure_of(ended, log)

    assert (code, True) == (error.exit_code, sentence in error.message)
    assert error.hint
