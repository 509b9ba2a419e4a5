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
CERTIFY = ("certify", "slo.toml", "--out", "run")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def halted(project: ProjectFolder, file: str, *words: str, after: int = 3) -> subprocess.Popen[str]:
    """Start a command, `certify` where none is named; return it as it stands still behind *after* records of *file*."""
    process = project.held(f"run/{file}", after=after).start(*(words or CERTIFY))
    until(lambda: len(lines(project.path / "run" / file)) > after)
    return process


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGINT, ["--serve", "0"]), pytest.param(signal.SIGTERM, [], marks=pytest.mark.nightly)],
)
def test_an_interrupt_is_130_and_resumable(
    scripted: Scripted, ended: Ended, number: signal.Signals, options: list[str]
) -> None:
    """A signal during the soak ends with 130, the live page too; --resume keeps what was measured."""
    project = scripted()
    soak = project.path / "run" / "soak-1.jsonl"
    process = halted(project, "soak-1.jsonl", *CERTIFY, *options)

    process.send_signal(number)
    interrupted = ended(process)
    before = lines(soak)
    if options:
        (address,) = re.findall(r"^page: http://127.0.0.1:(\d+)/$", interrupted.err, re.MULTILINE)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address)))
    project.run(*CERTIFY, "--resume", code=0)

    assert (130, True) == (interrupted.code, "--resume" in interrupted.err)
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
    """The printed command continues the stage; a soak alone stays one, and is not swept."""
    project = scripted(workload=BOTH)
    process = halted(project, file, *words, "--out", "run")

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
    process = halted(project, stage)

    process.kill()
    process.communicate()
    before = [line for line in lines(file) if line.endswith("}")]
    project.run(*CERTIFY, "--resume", code=0)

    verdict = project.verdict()
    assert before == lines(file)[: len(before)]
    assert ("promoted", 0) == (verdict["outcome"], verdict["exit_code"])
    assert verdict == project.run("judge", "run", "--json", code=0).document


def test_an_unfinished_run_is_unproven(scripted: Scripted) -> None:
    """Judging what a killed run left says unproven, with what is missing, and never more."""
    project = scripted()
    process = halted(project, "soak-1.jsonl")
    process.kill()
    process.communicate()

    assert "soak-1.jsonl" in project.run("judge", "run", "--json", code=3).document["incomplete"]


def test_a_second_gate_is_locked_out(scripted: Scripted, ended: Ended) -> None:
    """Two processes never write one run directory."""
    project = scripted()
    process = halted(project, "baseline.jsonl")

    second = project.run(*CERTIFY, "--resume", code=2)

    process.terminate()
    ended(process)
    assert "another gatekeeper" in second.err


def test_a_changed_slo_is_not_resumed(scripted: Scripted, ended: Ended) -> None:
    """A verdict cannot rest on two states of the inputs: a changed SLO file asks for a new run."""
    project = scripted()
    process = halted(project, "baseline.jsonl")
    process.terminate()
    ended(process)
    slo = project.path / "slo.toml"
    slo.write_text(slo.read_text().replace("1.16", "1.01"))

    assert "SLO file" in project.run(*CERTIFY, "--resume", code=2).err


def test_a_run_is_not_resumed_on_another_host(scripted: Scripted, ended: Ended) -> None:
    """A verdict cannot rest on two machines: a host fact that is not as frozen ends the resumption with code 3."""
    project = scripted()
    process = halted(project, "baseline.jsonl")
    process.terminate()
    ended(process)
    manifest = project.path / "run" / "manifest.json"
    frozen = json.loads(manifest.read_text())
    frozen["host"] |= {"chip": "Apple M0", "uptime_s": 1.0}
    manifest.write_text(json.dumps(frozen))

    refused = project.run(*CERTIFY, "--resume", code=3)

    assert "chip was 'Apple M0'" in refused.err
    assert "uptime_s" not in refused.err


def test_two_runs_never_measure_at_once(scripted: Scripted, ended: Ended) -> None:
    """While a run measures, another one, a sweep, a soak and a probe are refused with its owner."""
    project, second = scripted(REAL_TIME), ("certify", "slo.toml", "--out", "second")
    process = halted(project, "baseline.jsonl")

    commands = (second, (*second, "--only", "sweep"), (*second, "--only", "soak"), ("try", "slo.toml"))
    refused = [project.run(*words, code=3).err for words in commands]
    process.terminate()
    ended(process)

    assert all("this host is locked by " in message and ", run run (process " in message for message in refused)
    assert not (project.path / "second").exists()
    project.run("try", "slo.toml", "--seconds", "1", code=0)


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


def test_damaged_records_are_never_better_than_unproven(finished: Scripted) -> None:
    """Any record file cut, deleted, garbled or short of a line: judge never ends in code 0, and promotes nothing."""
    project, dice = finished(), random.Random(5)
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

    assert len(outcomes_by_damage) > 16
    assert [] == [outcome for outcome in outcomes_by_damage if outcome[2] != (3, False)]


def test_new_checksums_do_not_hide_a_missing_record(finished: Scripted) -> None:
    """With SHA256SUMS written again, a missing line is found by the closing count."""
    project = finished()
    _drop_a_line(project.path / "run" / "soak-1.jsonl", random.Random(1))
    RunDirectory(project.path / "run").write_checksums()

    assert "soak-1.jsonl" in project.run("judge", "run", "--json", code=3).document["incomplete"]
