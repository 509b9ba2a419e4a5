"""A sweep whose plain arm cannot be compared with, and other programs that make it so."""

import os
import signal
import subprocess
import sys

from tests.builders.scripted_slo import EASY
from tests.e2e.test_account import Scripted

UNSTABLE = {"modes": [{"share": 0.4, "slower": 6.0, "arm": "plain"}]}


def test_a_run_ends_with_a_sweep_that_no_soak_can_mend(scripted: Scripted) -> None:
    """
    Where plain decoding has no one speed in every workload, no soak is sent: unproven with the cause, exit code 3, and
    the same verdict from the stored run.
    """
    made = scripted(UNSTABLE, soak={"duration": "600 s"})

    done = made.run("certify", "slo.toml", "--out", "run", code=3)
    made.run("judge", "run", code=3)

    assert not list((made.path / "run").glob("soak-*.jsonl"))
    verdict = made.verdict()
    assert ["unproven", "unproven"] == [workload["outcome"] for workload in verdict["workloads"]]
    assert "unstable_arm" in {finding["kind"] for finding in verdict["findings"]}
    assert ["next:", "gatekeeper", "certify", "slo.toml"] == done.out.split()[-4:]


def test_other_programs_that_keep_the_machine_busy_are_named(scripted: Scripted) -> None:
    """
    Before the first request and before the soak, by a line and a finding; a virtual clock has no use for either.
    """
    real = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
    made = scripted(real, workload=EASY, soak={"duration": "1 s"})
    words = [
        sys.executable,
        "-S",
        "-c",
        "import time\nbegun = time.monotonic()\nwhile time.monotonic() - begun < 60: pass",
    ]
    script = f"import subprocess; print(subprocess.Popen({words!r}, stdout=subprocess.DEVNULL).pid)"
    pids = [
        int(subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout)
        for _ in range(2)
    ]
    try:
        done = made.run("certify", "slo.toml", "--out", "run")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    looks = [finding["about"] for finding in made.verdict()["findings"] if finding["kind"] == "busy_machine"]
    assert ["before the first request", "before soak-1"] == looks
    assert done.err.count("busy: ") == 2
