"""A sweep whose plain arm cannot be compared with, and other programs that make it so."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper import host
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.records import Event
from gatekeeper.run.certify import certify, sweep_alone
from gatekeeper.run.open_run import RunRequest
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import BOTH, EASY

Scripted = Callable[..., ProjectFolder]
UNSTABLE = {"modes": [{"share": 0.5, "slower": slower, "arm": "plain"} for slower in (3.0, 9.0)]}
"""Four speeds a factor of three apart: with two, one sweep in ten looked steady, by the luck of its seed."""


def test_a_run_ends_with_a_sweep_that_no_soak_can_mend(scripted: Scripted) -> None:
    """Where plain decoding has no one speed anywhere, no soak is sent: code 3 with the cause."""
    project = scripted(UNSTABLE, workload=BOTH, soak={"duration": "600 s"})

    done = project.run("certify", "slo.toml", "--out", "run", code=3)
    project.run("judge", "run", code=3)

    assert not list((project.path / "run").glob("soak-*.jsonl"))
    verdict = project.verdict()
    assert ["unproven", "unproven"] == [workload["outcome"] for workload in verdict["workloads"]]
    assert "unstable_arm" in {finding["kind"] for finding in verdict["findings"]}
    assert ["gatekeeper", "certify", "slo.toml", "--resume", "--output", "run"] == done.out.split()[-6:]


def test_a_run_ends_with_its_sweep_where_the_one_workload_that_must_draft_is_hopeless(scripted: Scripted) -> None:
    """No soak of a workload that may decode plainly is sent for its own sake: the run would stay unproven."""
    uneven = {f"easy-{number:03}": {"token": "400 ms" if number % 3 == 0 else "100 ms"} for number in range(12)}
    canaries = {"hard-": {"acceptance": 0.05}, **uneven}
    project = scripted({"canaries": canaries}, workload=BOTH, soak={"duration": "600 s"})

    project.run("certify", "slo.toml", "--out", "run", code=3)

    assert not list((project.path / "run").glob("soak-*.jsonl"))
    assert ["unproven", "unproven"] == [workload["outcome"] for workload in project.verdict()["workloads"]]


WHOLE = {"duration": "600 s"}
"""The shortest soak that makes no demo."""
PASSING = {"modes": [mode | {"file": "busy"} for mode in UNSTABLE["modes"]]}


def test_a_baseline_that_is_steady_once_more_begins_the_sweep_again(scripted: Scripted) -> None:
    """What was swept before is set aside, with a finding, and the run is promoted on what was measured since."""
    project = scripted(PASSING, soak=WHOLE)
    busy = project.path / "busy"
    busy.touch()

    def calm_down(event: Event) -> None:
        if event.kind == "warning" and event.detail["about"] == "the sweep":
            busy.unlink()

    finished = certify(RunRequest(project.path / "slo.toml", project.path / "run", [calm_down]))

    assert ExitCode.OK == finished.decision.exit_code
    assert "an earlier sweep" in {finding.about for finding in finished.verdict.findings}
    assert_swept_again(project.path / "run", 1)
    project.run("judge", "run", code=0)


def test_a_run_that_ended_with_its_sweep_continues_when_the_machine_is_quiet(scripted: Scripted) -> None:
    """The command that the end names measures the baseline first, and sweeps anew once it is steady."""
    project = scripted(PASSING, soak=WHOLE)
    (project.path / "busy").touch()
    command = project.run("certify", "slo.toml", "--out", "run", code=3).out.split()[-5:]

    still = project.run(*command, code=3)
    (project.path / "busy").unlink()
    done = project.run(*command, code=0)

    assert command == still.out.split()[-5:]
    assert_swept_again(project.path / "run", 3)
    assert project.run(*command, code=0).out == done.out


def assert_swept_again(run: Path, attempt: int) -> None:
    """Every record file of the sweep was set aside once, and written anew."""
    aside = sorted(path.name for path in run.glob("*.aside-*"))
    trials = json.loads((run / "plan.json").read_text())["trials"]
    assert sorted(f"{trial['file']}.aside-{attempt}" for trial in trials) == aside
    for name in aside:
        again = run / name.partition(".aside")[0]
        assert again.read_bytes() != (run / name).read_bytes()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("the baseline once more", marks=pytest.mark.nightly),
        pytest.param("the first file is set aside", marks=pytest.mark.nightly),
        "the sweep begins again",
    ],
)
def test_a_run_that_is_killed_while_it_sweeps_again_counts_nothing_of_before(scripted: Scripted, moment: str) -> None:
    """Whenever it is killed, --resume ends with a whole sweep of after the busy time, or still with none."""
    project = scripted(PASSING, soak=WHOLE)
    run, busy = project.path / "run", project.path / "busy"
    busy.touch()

    def kill(event: Event) -> None:
        again = (run / "baseline-again-1.jsonl").exists()
        busy.unlink(missing_ok=True) if again else None
        happens = {
            "the baseline once more": event.kind == "answer" and again,
            "the first file is set aside": event.kind == "baseline_again",
            "the sweep begins again": event.kind == "answer" and any(run.glob("*.aside-1")),
        }
        if happens[moment]:
            if moment == "the first file is set aside":
                (run / "baseline.jsonl").rename(run / "baseline.jsonl.aside-1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(RunRequest(project.path / "slo.toml", run, [kill]))

    project.run("certify", "slo.toml", "--resume", "--output", "run", code=0)

    assert_swept_again(run, 1)


@pytest.mark.alone  # its program would be the noise of other tests
def test_other_programs_that_keep_the_machine_busy_are_named(scripted: Scripted) -> None:
    """Before the first request and before the soak by a line, and during each by a finding."""
    real = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
    project = scripted(real, soak={"duration": "1 s"})
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
        done = project.run("certify", "slo.toml", "--out", "run")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    looks = [finding["about"] for finding in project.verdict()["findings"] if finding["kind"] == "busy_machine"]
    assert ["during the sweep", "during soak-1"] == looks
    assert done.err.count("busy: ") == 4


OFTEN = tuple(number / 4 for number in range(1000))


@pytest.mark.parametrize(
    ("truth", "soak", "looks", "outcome"),
    [
        (UNSTABLE, {}, OFTEN, "stays unproven: plain decoding has no one speed to compare with in easy"),
        (
            {},
            {"max_duration": "1.5 s"},
            OFTEN,
            "stays unproven: the soak would reach its max_duration of 1.5 s before it has enough answers",
        ),
        ({}, {}, (0.0,), "takes several times as long, and may prove nothing"),
    ],
)
def test_a_sweep_on_a_busy_machine_says_early_that_it_proves_nothing(
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    truth: dict[str, Any],
    soak: dict[str, str],
    looks: tuple[float, ...],
    outcome: str,
) -> None:
    """Once, with the programs, the reason, what it has so far, and what to do; on a quiet machine nothing is said."""
    real = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
    small = {"repeats": 1, "num_draft_tokens": [4], "default": {"num_draft_tokens": 4}}
    project = scripted({**real, **truth}, workload=EASY, sweep=small, soak={"duration": "1 s", **soak})
    monkeypatch.setattr("gatekeeper.run.busy_sweep.LOOKS_S", looks)
    notes = {}
    for cores in (0.4, 1.9):
        monkeypatch.setattr(
            "gatekeeper.host.used_between", lambda *_, used=cores: host.OtherPrograms(used, 2, (("make", used),))
        )
        events: list[Event] = []
        sweep_alone(RunRequest(project.path / "slo.toml", project.path / f"run-{cores}", [events.append]))
        notes[cores] = [event.detail["because"] for event in events if event.detail.get("about") == "this machine"]

    (early,) = notes[1.9]
    assert [] == notes[0.4]
    assert early.startswith(
        f"other programs used 1.9 of 2 cores: make 1.9; if that goes on, this run {outcome}; so far: "
    )
    assert re.search(r"; so far: (easy [\d.]+x|plain decoding alone); close them, or press Ctrl-C", early)
