"""Bad input: an error with file, line, key and the fix, and the right exit code."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.cli import main
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT, ProjectFolder

Scripted = Callable[..., ProjectFolder]
NAME = 'name = "scripted"'


def edit(project: ProjectFolder, old: str, new: str) -> None:
    slo = project.path / "slo.toml"
    text = slo.read_text()
    assert old in text
    slo.write_text(text.replace(old, new, 1))


TEMPERATURES = ", ".join(str(number) for number in range(1, 60))
KNOBS = "\n".join(f"{knob} = {[*range(1, 100)]}" for knob in ("block_size", "window", "draft_n_min", "max_tokens"))
BOUNDLESS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "nested-1500-deep": (NAME, NAME + "\nseed = " + "[" * 1500 + "]" * 1500, ("line 3", "100 levels")),
    "5000-digits": (NAME, NAME + "\nseed = " + "9" * 5000, ("line 3", "digits")),
    "50000-dots": (NAME, NAME + "\nseed" + ".x" * 50_000 + " = 3", ("line 3", "dots")),
    "40000-unknown-tables": (NAME, NAME + "\n" + "[[x]]\n" * 40_000, ("line 3", "x: unknown key")),
    "40000-equal-tables": (NAME, NAME + "\n" + "[x]\n" * 40_000, ("line 4", "not TOML")),
    "300-kB": (NAME, NAME + "\n# " + "x" * 300_000, ("longer than",)),
    "repeats-1e12": ("repeats = 1", f"repeats = {10**12}", ("sweep.repeats", "1000")),
    "budget-1e12": ("repeats = 1", f"budget = {10**12}", ("sweep.budget", "100000")),
    "warmups-1e12": ("repeats = 1", f"warmups = {10**12}", ("sweep.warmups", "1000")),
    "knob-1e12": ("repeats = 1", f"block_size = [{10**12}]", ("sweep.block_size", "10000000")),
    "a-million-requests": (
        "repeats = 1", f"repeats = 1000\nbudget = 100000\ntemperature = [{TEMPERATURES}]", ("requests", "sweep.budget")
    ),
    "a-grid-of-100-million": ("repeats = 1", f'design = "grid"\n{KNOBS}', ("max_runs",)),
    "duration-1e12": ('"60 s"', f'"{10**12} s"', ("soak.duration", "2592000")),
    "window-of-no-length": ('"60 s"', '"60 s"\nwindow = "1e-12 s"', ("soak.window", "0.001")),
    "duration-5000-digits": ('"60 s"', '"' + "1" * 5000 + ' s"', ("soak.duration", "cannot read")),
    "timeout-1e300": ('target = "t"', 'target = "t"\ntimeout = "1e300 s"', ("timeout", "86400")),
    "deadline-1e300": ('target = "t"', 'target = "t"\ndeadline = "1e300 s"', ("deadline", "1000000000")),
    "bound-400-digits": ("1.16", "1" * 400, ("line ", "64 bits")),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDLESS)
def test_an_slo_without_bounds_is_refused_at_once(scripted: Scripted, name: str) -> None:
    """Nesting, numbers, sizes and plans have limits: exit code 2 with the file and the line, before anything grows."""
    project = scripted()
    old, new, words = BOUNDLESS[name]
    edit(project, old, new)

    refused = project.run("plan", "slo.toml", code=2)

    assert [] == [word for word in words if word not in refused.err]
    assert "Traceback" not in refused.err


@pytest.mark.parametrize("role", ["slo", "canaries", "profile", "script"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "larger-than-any"])
def test_an_input_that_is_no_file_is_refused_at_once(scripted: Scripted, role: str, kind: str) -> None:
    """A pipe, an endless device, a folder, a loop of links and a file of gigabytes: exit code 2, none waited for."""
    project = scripted()
    edit(project, "[soak]", '[soak]\nprofile = "own.toml"')
    (project.path / "own.toml").write_text('schema = 1\nname = "own"\n')
    project.run("plan", "slo.toml", code=0)
    names = {"slo": "slo.toml", "canaries": "easy.jsonl", "profile": "own.toml", "script": "truth.json"}
    path = project.path / names[role]
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "larger-than-any":
        path.touch()
        os.truncate(path, 100 << 30)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path.name)

    refused = project.run("plan", "slo.toml", code=2)

    assert path.name in refused.err
    assert "Traceback" not in refused.err


def test_a_schema_on_a_server_is_never_fetched(scripted: Scripted) -> None:
    """A schema that refers to an address is refused with its line by certify and judge: no connection."""
    project = scripted()
    project.run("certify", "slo.toml", "--out", "run", code=0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        line = json.dumps({"id": "x", "messages": [{"role": "user"}], "expect": {"json_schema": {"$ref": address}}})
        for file in (project.path / "easy.jsonl", project.path / "run" / "inputs" / "canaries-easy.jsonl"):
            file.write_text(f"{line}\n{file.read_text()}")

        refused = project.run("certify", "slo.toml", "--out", "other", code=2)
        judged = project.run("judge", "run")

        with pytest.raises(BlockingIOError):
            server.accept()
    assert "easy.jsonl: line 1: " in refused.err
    assert "nothing is fetched" in refused.err
    assert "nothing is fetched" in judged.err
    assert 0 != judged.code


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["certfy", "slo.toml"], "'certify'"),
        (["judge", "nowhere"], "nowhere"),
        (["certify", "nowhere.toml"], "nowhere.toml"),
        (["certify"], "SLO"),
        (["certify", "slo.toml", "--resume"], "--output"),
        (["certify", "slo.toml", "--only", "soak", "--set", "num_draft_token=3"], "'num_draft_tokens'"),
        (["certify", "slo.toml", "--only", "soak", "--set", "fast"], "KNOB=VALUE"),
        (["certify", "slo.toml", "--set", "num_draft_tokens=3"], "--only soak"),
        (["certify", "slo.toml", "--only", "soak", "--resume", "--output", "run"], "leave out --only"),
        (["certify", "slo.toml", "--only", "sweep", "--extend", "60s"], "leave out --only"),
        (["certify", "slo.toml", "--only", "soak", "--grade", "certification"], "no certificate"),
        (["doctor", "--interval", "5s"], "--interval goes with --samples"),
        (["doctor", "--as", "linux"], "--as goes with --samples"),
    ],
)
def test_a_wrong_command_line_is_refused(scripted: Scripted, words: list[str], phrase: str) -> None:
    """A mistyped command, file or option is exit code 2 with a suggestion."""
    project = scripted()

    refused = project.run(*words, code=2)

    assert phrase in refused.err


@pytest.mark.parametrize("words", [("--version",), ("explain", "metrics", "--json")])
@pytest.mark.parametrize("stream", ["a full stdout", "a full stderr", "a reader that went away"])
def test_a_stream_that_cannot_be_written_is_no_verdict(
    project: ProjectFolder, stream: str, words: tuple[str, ...]
) -> None:
    """On a full disk or a closed pipe the exit code is 4: Python's own, 1, means a failed objective."""
    reading, writing = os.pipe()
    os.close(reading)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if stream == "a reader that went away":
        streams["stdout"] = writing
    elif Path("/dev/full").exists():
        streams[stream.rpartition(" ")[2]] = os.open("/dev/full", os.O_WRONLY)
        words = ("certify", "no.toml") if stream == "a full stderr" else words
    else:
        pytest.skip("this system has no /dev/full")

    ran = subprocess.run(
        project.argv(*words), cwd=project.path, env=project.environment, timeout=120, check=False, **streams
    )

    os.close(writing)
    assert 4 == ran.returncode
    assert (False, False) == tuple(word in (ran.stderr or b"") for word in (b"Traceback", b"Exception ignored"))


PRINTING = [
    "--help",
    "--version",
    "explain metrics",
    "explain metrics --json",
    "doctor --samples 1",
    "doctor --samples 1 --json",
    "doctor",
    "plan slo.toml",
    "certify slo.toml --quiet",
    "certify slo.toml --only sweep --quiet",
    "certify slo.toml --only soak --quiet",
    "judge RUN",
    "judge RUN --json",
    "report RUN",
    "report RUN --format html",
    "history RUNS",
    "init -o x.toml",
    "remote --help",
]


@pytest.mark.parametrize("words", PRINTING)
def test_stdout_on_a_full_disk_is_one_clear_line(
    scripted: Scripted, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever a command prints: exit code 4, and one line that says that the output cannot be written."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    project = scripted()
    runs = ROOT / "tests" / "golden" / "runs"
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 (closing it fails, as it must)
    monkeypatch.setattr(sys, "stdout", full)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.path))
    monkeypatch.chdir(project.path)

    code = main.run(words.replace("RUNS", str(runs)).replace("RUN", str(runs / "promoted")).split())

    monkeypatch.undo()
    with contextlib.suppress(OSError):
        full.close()
    output = capfd.readouterr().err
    (line,) = (line for line in output.splitlines() if line.startswith("gatekeeper: "))
    says("commands", "stdout on a full disk is one clear line", line)
    assert 4 == code
    assert "Traceback" not in output


LONG = "a" * 300


@pytest.mark.parametrize(
    "words",
    [
        f"plan {LONG}.toml",
        f"certify slo.toml --out {LONG}",
        f"certify slo.toml --out {LONG} --resume",
        f"certify slo.toml --only sweep --out {LONG}",
        f"judge {LONG}",
        f"report {LONG}",
        f"report {LONG} --format csv",
        f"history {LONG}",
        f"init -o {LONG}.toml",
        f"admit {LONG}.toml",
        f"watch {LONG}/policy.toml --rounds 1",
        f"try --target {LONG}/x --draft y",
    ],
)
def test_a_path_that_is_too_long_is_named(scripted: Scripted, words: str) -> None:
    """A path longer than the system allows is an error that names it, in every command."""
    failed = scripted().run(*words.split())

    assert failed.code in {2, 4}
    assert "too long" in failed.err
    assert "Traceback" not in failed.err


@pytest.mark.parametrize(
    "value",
    ["9" * 5000, "[" * 3000, "NaN", "1e999", "[1]", '"\\ud800"', "-1", str(10**30), "0"],
    ids=lambda text: text[:9],
)
def test_a_knob_that_is_no_number_is_refused(scripted: Scripted, value: str) -> None:
    """`--set` takes a value that an SLO file could hold; anything else is exit code 2 that names the knob."""
    refused = scripted().run("certify", "slo.toml", "--only", "soak", "--set", f"num_draft_tokens={value}", code=2)

    assert "--set num_draft_tokens" in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    "words",
    [
        "try slo.toml --seconds nan",
        "try slo.toml --seconds inf",
        "try slo.toml --seconds 1e300",
        "doctor --samples 1 --interval nan",
        "admit slo.toml --max-age 1e300d",
        "plan slo.toml --assume 1e400",
    ],
)
def test_an_option_that_is_no_quantity_is_refused(scripted: Scripted, words: str) -> None:
    """NaN, infinity and a duration of more than a lifetime are exit code 2 that names the option."""
    refused = scripted().run(*words.split(), code=2)

    assert words.split()[-2] in refused.err


@pytest.mark.parametrize("words", [["plan"], ["certify", "--out", "run"]])
def test_a_file_name_that_is_no_text_is_allowed(scripted: Scripted, words: list[str]) -> None:
    """A file name may hold any bytes; the manifest and the output are written all the same."""
    project = scripted()
    name = os.fsdecode(b"s\xff.toml")
    (project.path / "slo.toml").rename(project.path / name)

    done = project.run(words[0], name, *words[1:], code=0)

    assert done.out


def test_a_plan_without_a_draft_has_plain_decoding_alone(scripted: Scripted) -> None:
    """`drafts = []` with several workloads: there is nothing to route, and no traceback."""
    project = scripted()
    edit(project, 'drafts = [\n    "heavy",\n    "light",\n]', "drafts = []")

    done = project.run("plan", "slo.toml")

    assert done.code in {0, 2, 3}, done.err
    assert "this is a bug" not in done.err


def test_a_report_is_not_written_as_what_it_is_not(scripted: Scripted) -> None:
    """No format of a report makes a PDF; text with that name would be none."""
    project = scripted(soak={"duration": "30 s"})
    project.run("certify", "slo.toml", "--out", "run", "--quiet")

    refused = project.run("report", "run", "-o", "report.pdf", code=2)
    project.run("report", "run", "-o", "report.txt")

    assert "has no format for .pdf" in refused.err
    assert not (project.path / "report.pdf").exists()
    assert "scripted" in (project.path / "report.txt").read_text()
