"""What is measured is kept: interrupts, kills, and damaged or missing records."""

import json
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import Done, ProjectFolder
from tests.builders.scripted_slo import BOTH
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]
Ended = Callable[[subprocess.Popen[str]], Done]

REAL_TIME = {"time": "real", "token": "2 ms", "verify": "2.2 ms", "draft_token": "0.2 ms", "prefill": "2 ms"}
"""Only what takes real time occupies the host. What is measured then is the machine's business."""


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGINT, ["--serve", "0"]), pytest.param(signal.SIGTERM, [], marks=pytest.mark.nightly)],
)
def test_an_interrupt_is_130_and_resumable(
    scripted: Scripted, ended: Ended, number: signal.Signals, options: list[str]
) -> None:
    """Ctrl-C or SIGTERM during the soak ends with 130; --resume keeps what was measured and reaches a verdict.

    The live page ends with the run.
    """
    project = scripted()
    soak = project.path / "run" / "soak-1.jsonl"
    process = project.held("run/soak-1.jsonl", after=5).start("certify", "slo.toml", "--out", "run", *options)
    until(lambda: len(lines(soak)) > 5)

    process.send_signal(number)
    interrupted = ended(process)
    before = lines(soak)
    if options:
        (address,) = re.findall(r"^page: http://127.0.0.1:(\d+)/$", interrupted.err, re.MULTILINE)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address)))
    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    assert 130 == interrupted.code
    assert "--resume" in interrupted.err
    assert before == lines(soak)[: len(before)]
    assert "promoted" == project.verdict()["outcome"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "file", "outcome"),
    [
        (("certify", "slo.toml", "--only", "sweep"), "baseline.jsonl", "promoted"),
        (("certify", "slo.toml", "--only", "soak", "--set", "num_draft_tokens=2"), "soak-1.jsonl", "failed"),
    ],
)
def test_an_interrupted_stage_continues_as_its_hint_says(
    scripted: Scripted, ended: Ended, words: tuple[str, ...], file: str, outcome: str
) -> None:
    """Ctrl-C in a single stage prints the command that continues it, and that command reaches a verdict; a soak alone
    stays one, and is not swept.
    """
    project = scripted(workload=BOTH)
    process = project.held(f"run/{file}", after=5).start(*words, "--out", "run")
    until(lambda: len(lines(project.path / "run" / file)) > 5)

    process.send_signal(signal.SIGINT)
    interrupted = ended(process)
    (command,) = re.findall(r"to continue: .*?gatekeeper (.*)$", interrupted.err, flags=re.MULTILINE)
    resumed = project.run(*shlex.split(command))

    assert 130 == interrupted.code
    assert ["certify", "slo.toml", "--resume", "--output", "run"] == shlex.split(command)
    assert outcome == project.verdict()["outcome"]
    assert ("sweep" in words) == (project.path / "run" / "baseline.jsonl").exists()
    assert ("writes no policy" in resumed.out) == ("soak" in words)


@pytest.mark.parametrize("stage", ["baseline.jsonl", "soak-1.jsonl"])
def test_a_killed_gate_loses_at_most_the_answer_in_flight(scripted: Scripted, stage: str) -> None:
    """Kill -9 in the sweep or in the soak: every whole record stays, and the resumed run ends as any other."""
    project = scripted()
    file = project.path / "run" / stage
    process = project.held(f"run/{stage}", after=3).start("certify", "slo.toml", "--out", "run")
    until(lambda: len(lines(file)) > 3)

    process.kill()
    process.communicate()
    before = [line for line in lines(file) if line.endswith("}")]
    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    verdict = project.verdict()
    assert before == lines(file)[: len(before)]
    assert (verdict["outcome"], verdict["exit_code"]) == ("promoted", 0)
    assert json.dumps(verdict) == json.dumps(project.run("judge", "run", "--json", code=0).document)


def test_an_unfinished_run_is_unproven(scripted: Scripted) -> None:
    """Judging what a killed run left says unproven, with what is missing, and never more."""
    project = scripted()
    process = project.held("run/soak-1.jsonl", after=5).start("certify", "slo.toml", "--out", "run")
    until(lambda: len(lines(project.path / "run" / "soak-1.jsonl")) > 5)
    process.kill()
    process.communicate()

    judged = project.run("judge", "run", "--json", code=3).document

    assert "soak-1.jsonl" in judged["incomplete"]


def test_a_second_gate_is_locked_out(scripted: Scripted, ended: Ended) -> None:
    """Two processes never write one run directory."""
    project = scripted()
    process = project.held("run/baseline.jsonl", after=2).start("certify", "slo.toml", "--out", "run")
    until((project.path / "run" / "baseline.jsonl").exists)

    second = project.run("certify", "slo.toml", "--out", "run", "--resume", code=2)

    process.terminate()
    ended(process)
    assert "another gatekeeper" in second.err


def test_a_changed_slo_is_not_resumed(scripted: Scripted, ended: Ended) -> None:
    """A verdict cannot rest on two states of the inputs: a changed SLO file asks for a new run."""
    project = scripted()
    process = project.held("run/baseline.jsonl", after=2).start("certify", "slo.toml", "--out", "run")
    until(lambda: len(lines(project.path / "run" / "baseline.jsonl")) > 2)
    process.terminate()
    ended(process)
    slo = project.path / "slo.toml"
    slo.write_text(slo.read_text().replace("1.16", "1.01"))

    refused = project.run("certify", "slo.toml", "--out", "run", "--resume", code=2)

    assert "SLO file" in refused.err


def test_a_run_is_not_resumed_on_another_host(scripted: Scripted, ended: Ended) -> None:
    """A verdict cannot rest on two machines: a host fact that is not as frozen ends the resumption with code 3."""
    project = scripted()
    process = project.held("run/baseline.jsonl", after=2).start("certify", "slo.toml", "--out", "run")
    until(lambda: len(lines(project.path / "run" / "baseline.jsonl")) > 2)
    process.terminate()
    ended(process)
    manifest = project.path / "run" / "manifest.json"
    frozen = json.loads(manifest.read_text())
    frozen["host"] |= {"chip": "Apple M0", "uptime_s": 1.0}
    manifest.write_text(json.dumps(frozen))

    refused = project.run("certify", "slo.toml", "--out", "run", "--resume", code=3)

    assert "chip was 'Apple M0'" in refused.err
    assert "uptime_s" not in refused.err


def test_two_runs_never_measure_at_once(scripted: Scripted, ended: Ended) -> None:
    """While a run measures, another one, a sweep, a soak and a probe are refused with its owner."""
    project = scripted(REAL_TIME)
    process = project.held("run/baseline.jsonl", after=2).start("certify", "slo.toml", "--out", "run")
    until((project.path / "run" / "baseline.jsonl").exists)

    refused = [
        project.run(*words, code=3).err
        for words in (
            ("certify", "slo.toml", "--out", "second"),
            ("certify", "slo.toml", "--only", "sweep", "--out", "second"),
            ("certify", "slo.toml", "--only", "soak", "--out", "second"),
            ("try", "slo.toml"),
        )
    ]
    process.terminate()
    ended(process)
    after = project.run("try", "slo.toml", "--seconds", "1")

    assert all("this host is locked by " in message and ", run run (process " in message for message in refused)
    assert not (project.path / "second").exists()
    assert 0 == after.code


def test_resuming_a_finished_run_measures_nothing(scripted: Scripted) -> None:
    """--resume on a finished run judges it again and gives the same verdict."""
    project = scripted()
    first = project.run("certify", "slo.toml", "--out", "run", "--json", code=0)
    before = (project.path / "run" / "soak-1.jsonl").read_bytes()

    again = project.run("certify", "slo.toml", "--out", "run", "--resume", "--json", code=0)

    assert (first.out, before) == (again.out, (project.path / "run" / "soak-1.jsonl").read_bytes())


def _drop_a_line(path: Path, dice: random.Random) -> None:
    records_left = path.read_text().splitlines(keepends=True)
    del records_left[dice.randrange(len(records_left))]
    path.write_text("".join(records_left))


def _cut(path: Path, dice: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: dice.randrange(len(content))])


def _delete(path: Path, _: random.Random) -> None:
    path.unlink()


def _garble(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 0x55
    path.write_bytes(bytes(content))


def test_damaged_records_are_never_better_than_unproven(scripted: Scripted) -> None:
    """Any record file cut, deleted, garbled or short of a line: judge never ends in code 0, and promotes nothing."""
    project = scripted()
    project.run("certify", "slo.toml", "--out", "run", code=0)
    dice = random.Random(5)
    outcomes_by_damage: list[tuple[str, str, Any]] = []
    for path in sorted((project.path / "run").glob("*.jsonl")):
        for damage in (_drop_a_line, _cut, _delete, _garble):
            copy = project.path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(project.path / "run", copy)
            damage(copy / path.name, dice)
            judged = project.run("judge", "copy", "--json")
            outcomes = {workload["outcome"] for workload in judged.document["workloads"]}
            outcomes_by_damage.append((path.name, damage.__name__, (judged.code, "promoted" in outcomes)))

    assert [] == [outcome for outcome in outcomes_by_damage if outcome[2] != (3, False)]


def test_new_checksums_do_not_hide_a_missing_record(scripted: Scripted) -> None:
    """With SHA256SUMS written again, a missing line is found by the closing count."""
    project = scripted()
    project.run("certify", "slo.toml", "--out", "run", code=0)
    _drop_a_line(project.path / "run" / "soak-1.jsonl", random.Random(1))
    RunDirectory(project.path / "run").write_checksums()

    judged = project.run("judge", "run", "--json", code=3)

    assert "soak-1.jsonl" in judged.document["incomplete"]
