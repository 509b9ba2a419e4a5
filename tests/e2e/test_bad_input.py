"""Bad input: an error with file, line, key and the fix, and the right exit code."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tomllib
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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "scripted"', 'name = "scripted"\nconfidense = 0.9', ("line 3", "confidense", "'confidence'")),
        ('"easy.jsonl"', '"essy.jsonl"', ("essy.jsonl", "does not exist", "'easy.jsonl'")),
        ('duration = "60 s"', 'duration = "60 s', ("slo.toml", "not TOML", "line")),
    ],
)
def test_a_wrong_slo_is_refused(scripted: Scripted, old: str, new: str, words: tuple[str, ...]) -> None:
    """A mistake in an SLO file is exit code 2, with its line and what is allowed; tests/core/test_slo.py has every
    kind.
    """
    project = scripted()
    edit(project, old, new)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert [] == [word for word in words if word not in refused.err]
    assert not (project.path / "run").exists()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"id": "x", "messages": [{"role": "user", "con', "line 13"),
        ('{"id": "x", "messages": [], "expect": {"regex": "("}}', "regular expression"),
    ],
)
def test_a_wrong_canary_is_refused(scripted: Scripted, line: str, word: str) -> None:
    """Half a line or a bad pattern is exit code 2 with its line; tests/core/test_canary.py has every kind."""
    project = scripted()
    file = project.path / "easy.jsonl"
    file.write_text(file.read_text() + line + "\n")

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert "line 13" in refused.err
    assert word in refused.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param(
            NAME, NAME + "\nseed = " + "[" * 1500 + "]" * 1500, ("line 3", "100 levels"), id="nested-1500-deep"
        ),
        pytest.param(NAME, NAME + "\nseed = " + "9" * 5000, ("line 3", "digits"), id="5000-digits"),
        pytest.param(NAME, NAME + "\nseed" + ".x" * 50_000 + " = 3", ("line 3", "dots"), id="50000-dots"),
        pytest.param(NAME, NAME + "\n" + "[[x]]\n" * 40_000, ("line 3", "x: unknown key"), id="40000-unknown-tables"),
        pytest.param(NAME, NAME + "\n" + "[x]\n" * 40_000, ("line 4", "not TOML"), id="40000-equal-tables"),
        pytest.param(NAME, NAME + "\n# " + "x" * 300_000, ("longer than",), id="300-kB"),
        pytest.param("repeats = 1", f"repeats = {10**12}", ("sweep.repeats", "1000"), id="repeats-1e12"),
        pytest.param("repeats = 1", f"budget = {10**12}", ("sweep.budget", "100000"), id="budget-1e12"),
        pytest.param("repeats = 1", f"warmups = {10**12}", ("sweep.warmups", "1000"), id="warmups-1e12"),
        pytest.param("repeats = 1", f"block_size = [{10**12}]", ("sweep.block_size", "10000000"), id="knob-1e12"),
        pytest.param(
            "repeats = 1",
            "repeats = 1000\nbudget = 100000\ntemperature = ["
            + ", ".join(str(number) for number in range(1, 60))
            + "]",
            ("requests", "sweep.budget"),
            id="a-million-requests",
        ),
        pytest.param(
            "repeats = 1",
            'design = "grid"\n'
            + "\n".join(
                f"{knob} = {[*range(1, 100)]}" for knob in ("block_size", "window", "draft_n_min", "max_tokens")
            ),
            ("max_runs",),
            id="a-grid-of-100-million",
        ),
        pytest.param('"60 s"', f'"{10**12} s"', ("soak.duration", "2592000"), id="duration-1e12"),
        pytest.param('"60 s"', '"60 s"\nwindow = "1e-12 s"', ("soak.window", "0.001"), id="window-of-no-length"),
        pytest.param('"60 s"', '"' + "1" * 5000 + ' s"', ("soak.duration", "cannot read"), id="duration-5000-digits"),
        pytest.param('target = "t"', 'target = "t"\ntimeout = "1e300 s"', ("timeout", "86400"), id="timeout-1e300"),
        pytest.param(
            'target = "t"', 'target = "t"\ndeadline = "1e300 s"', ("deadline", "1000000000"), id="deadline-1e300"
        ),
        pytest.param("1.16", "1" * 400, ("line ", "64 bits"), id="bound-400-digits"),
    ],
)
def test_an_slo_without_bounds_is_refused_at_once(
    scripted: Scripted, old: str, new: str, words: tuple[str, ...]
) -> None:
    """Nesting, numbers, sizes and plans have limits: exit code 2 with the file and the line, before anything grows."""
    project = scripted()
    edit(project, old, new)

    refused = project.run("plan", "slo.toml", code=2)

    assert [] == [word for word in words if word not in refused.err]
    assert "Traceback" not in refused.err


@pytest.mark.parametrize("role", ["slo", "canaries", "profile", "script"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "larger-than-any"])
def test_an_input_that_is_no_file_is_refused_at_once(scripted: Scripted, role: str, kind: str) -> None:
    """A pipe, an endless device, a folder, a loop of links and a file of gigabytes are exit code 2: none is waited
    for.
    """
    project = scripted()
    edit(project, "[soak]", '[soak]\nprofile = "own.toml"')
    (project.path / "own.toml").write_text('schema = 1\nname = "own"\n')
    project.run("plan", "slo.toml", code=0)
    path = (
        project.path
        / {"slo": "slo.toml", "canaries": "easy.jsonl", "profile": "own.toml", "script": "truth.json"}[role]
    )
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
    """A schema that refers to an address is refused with its line by certify, and by judge on a stored run: no
    connection.
    """
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


def test_what_no_run_could_prove_is_refused(scripted: Scripted) -> None:
    """A p99 over twelve canaries can never be proven: exit code 2 before the first token, with the number it takes."""
    project = scripted(objective=[{"metric": "itl_p99", "at_most": "1 s", "why": "smooth"}])

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert "the workload has 12" in refused.err
    assert not (project.path / "run").exists()


def test_an_output_that_cannot_be_written_is_ours(scripted: Scripted) -> None:
    """A run directory that cannot be created is exit code 4, and the error names the path."""
    project = scripted()
    (project.path / "file").write_text("in the way")

    failed = project.run("certify", "slo.toml", "--out", "file/run", code=4)

    assert "file/run" in failed.err


def test_a_used_directory_is_not_overwritten(scripted: Scripted) -> None:
    """--out on a finished run is exit code 2, and says how to look at it."""
    project = scripted()
    project.run("certify", "slo.toml", "--out", "run", code=0)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert "gatekeeper report run" in refused.err


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


def little(project: ProjectFolder, **subject: Any) -> dict[str, Any]:
    """An SLO about copies of the little pair, so that they can be damaged."""
    for name in ("little-target", "little-draft", "little-draft-alien"):
        shutil.copytree(ROOT / "models" / name, project.path / name, dirs_exist_ok=True)
    slo = {
        **tomllib.loads((ROOT / "slos" / "smoke.toml").read_text()),
        "subject": {"backend": "mlx", "target": "little-target", "drafts": ["little-draft"], **subject},
        "workload": [{"name": "json", "canaries": str(ROOT / "canaries" / "little" / "json.jsonl"), "first": 8}],
    }
    slo["objective"] = [objective for objective in slo["objective"] if "workloads" not in objective]
    project.write_slo(slo)
    return slo


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def test_missing_models_name_the_commands_that_fetch_them(project: ProjectFolder) -> None:
    """Models are never downloaded: hub ids that are not in the cache are exit code 2, all of them with their
    commands.
    """
    target, draft = "mlx-community/Qwen3-8B-4bit", "mlx-community/Qwen3-0.6B-4bit"
    hf = Path(sys.executable).with_name("hf")
    little(project, target=target, drafts=[draft])

    refused = project.run("certify", "slo.toml", "--out", "run", code=2).err
    planned = project.run("plan", "slo.toml", code=3).out

    for printed in (" ".join(refused.split()), " ".join(planned.split())):
        assert f"models '{target}' and '{draft}' are not on this machine" in printed
        assert f"download them: {hf} download {target} && {hf} download {draft}" in printed


@pytest.mark.parametrize("share", [0.00001, 0.5, 0.999])
def test_truncated_weights_are_refused(project: ProjectFolder, share: float) -> None:
    """A safetensors file cut anywhere is exit code 2 before anything is started."""
    little(project)
    truncate(project.path / "little-target" / "model.safetensors", share)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert "truncated" in refused.err
    assert not (project.path / "run").exists()


def test_a_draft_with_another_vocabulary_is_refused(project: ProjectFolder) -> None:
    """A draft with another vocabulary is exit code 2: the target would verify other tokens."""
    little(project, drafts=["little-draft-alien"])

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert "different vocabularies" in refused.err


@pytest.mark.parametrize(
    "stream", [{"stdout": ("--version",)}, {"stderr": ("certify", "no.toml")}], ids=["stdout", "stderr"]
)
def test_a_full_disk_behind_a_stream_is_no_verdict(project: ProjectFolder, stream: dict[str, tuple[str, ...]]) -> None:
    """If stderr cannot be written, such as on a full disk, the exit code is 4: Python's own, 1, means a failed
    objective.
    """
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    ((name, words),) = stream.items()
    with Path("/dev/full").open("w") as full:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, name: full}
        ran = subprocess.run(
            project.argv(*words), cwd=project.path, env=project.environment, **streams, timeout=120, check=False
        )

    assert 4 == ran.returncode


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
    "value", ["9" * 5000, "[" * 3000, "NaN", "1e999", "[1]", '"\\ud800"', "-1", str(10**30)], ids=lambda text: text[:9]
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


@pytest.mark.parametrize(
    "words", [("--version",), ("--help",), ("explain",), ("explain", "metrics", "--json"), ("doctor", "--samples", "1")]
)
def test_a_reader_that_went_away_is_no_verdict(project: ProjectFolder, words: tuple[str, ...]) -> None:
    """`gatekeeper ... | head -1` may end before everything is written; that is 4 as well, and nothing is complained
    of.
    """
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            project.argv(*words),
            cwd=project.path,
            env=project.environment,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writing)

    assert (4, False) == (ran.returncode, b"Traceback" in ran.stderr or b"Exception ignored" in ran.stderr)


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
